package jinja

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
)

// toJSON is the tojson of transformers: Python's json.dumps with
// ensure_ascii=False and nothing escaped for HTML.
func toJSON(ev *evaluator, v value, c *call) value {
	a := c.bind("tojson", 0, "ensure_ascii", "indent", "separators", "sort_keys")
	w := &jsonWriter{ev: ev, item: ", ", key: ": ", line: -1}
	w.ascii = a[0] != nil && truth(a[0])
	if a[1] != nil && a[1] != none {
		w.item, w.line = ",", 0
		if s, ok := text(a[1]); ok {
			w.indent = s
		} else {
			w.indent = ev.repeatText(" ", wantInt(a[1]))
		}
	}
	if a[2] != nil && a[2] != none {
		next := ev.iter(a[2])
		x, _ := next()
		y, ok := next()
		if _, more := next(); more || !ok {
			fail("tojson wants two separators")
		}
		w.item, w.key = wantText(x), wantText(y)
	}
	w.sorted = a[3] != nil && truth(a[3])
	w.value(v, 0)
	ev.alloc(int64(w.Len()))
	return w.String()
}

// jsonWriter writes values as Python's json.dumps does.
type jsonWriter struct {
	strings.Builder
	ev            *evaluator
	item, key     string
	indent        string
	line          int // 0 where each item has a line of its own, -1 where not
	ascii, sorted bool
}

func (w *jsonWriter) put(s string) {
	w.ev.alloc(2 * int64(len(s)))
	w.WriteString(s)
}

func (w *jsonWriter) value(v value, depth int) {
	w.ev.deep(depth)
	switch v := v.(type) {
	case string:
		w.str(v)
	case markup:
		w.str(string(v))
	case noneType, bool, int64, *big.Int, float64:
		w.put(w.scalar(v))
	case *list:
		w.list('[', ']', len(v.items), depth, func(i int) { w.value(v.items[i], depth+1) })
	case *dict:
		w.dict(v, depth)
	default:
		needDefined(v)
		fail("a %s cannot be written as JSON", quote(typeName(v)))
	}
}

func (w *jsonWriter) scalar(v value) string {
	switch v := v.(type) {
	case noneType:
		return "null"
	case bool:
		if v {
			return "true"
		}
		return "false"
	case float64:
		switch {
		case math.IsNaN(v):
			return "NaN"
		case math.IsInf(v, 1):
			return "Infinity"
		case math.IsInf(v, -1):
			return "-Infinity"
		}
		return floatRepr(v)
	}
	return w.ev.intText(v)
}

func (w *jsonWriter) dict(d *dict, depth int) {
	order := make([]int, 0)
	w.ev.times(int64(len(d.keys)), 16)
	for i := range d.keys {
		order = append(order, i)
	}
	if w.sorted {
		slices.SortStableFunc(order, func(i, j int) int {
			switch {
			case w.ev.less(d.keys[i], d.keys[j]):
				return -1
			case w.ev.less(d.keys[j], d.keys[i]):
				return 1
			}
			return 0
		})
	}
	w.list('{', '}', len(order), depth, func(i int) {
		switch key := d.keys[order[i]].(type) {
		case string:
			w.str(key)
		case markup:
			w.str(string(key))
		case noneType, bool, int64, *big.Int, float64:
			w.str(w.scalar(key))
		default:
			fail("keys of JSON must be strings or numbers, not %s", quote(typeName(key)))
		}
		w.put(w.key)
		w.value(d.values[order[i]], depth+1)
	})
}

// list writes n items between brackets.
func (w *jsonWriter) list(open, end byte, n, depth int, item func(int)) {
	w.put(string(open))
	for i := range n {
		if i > 0 {
			w.put(w.item)
		}
		w.newline(depth + 1)
		item(i)
	}
	if n > 0 {
		w.newline(depth)
	}
	w.put(string(end))
}

func (w *jsonWriter) newline(depth int) {
	if w.line < 0 {
		return
	}
	w.put("\n")
	if len(w.indent) > 0 {
		w.ev.times(int64(depth), 2*int64(len(w.indent)))
		w.WriteString(strings.Repeat(w.indent, depth))
	}
}

func (w *jsonWriter) str(s string) {
	w.ev.text(3 * len(s))
	w.WriteByte('"')
	from := 0
	for i, r := range s {
		escape := ""
		switch {
		case r == '"':
			escape = `\"`
		case r == '\\':
			escape = `\\`
		case r == '\n':
			escape = `\n`
		case r == '\r':
			escape = `\r`
		case r == '\t':
			escape = `\t`
		case r == '\b':
			escape = `\b`
		case r == '\f':
			escape = `\f`
		case r < 0x20 || w.ascii && r > 0x7e && r < 0x10000:
			escape = fmt.Sprintf(`\u%04x`, r)
		case w.ascii && r >= 0x10000:
			r -= 0x10000
			escape = fmt.Sprintf(`\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			continue
		}
		w.ev.alloc(int64(2 * len(escape)))
		w.WriteString(s[from:i])
		w.WriteString(escape)
		from = i + 1
		for from < len(s) && s[from]&0xC0 == 0x80 {
			from++
		}
	}
	w.WriteString(s[from:])
	w.WriteByte('"')
}
