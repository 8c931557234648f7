package jinja

import (
	"fmt"
	"math/big"
	"strings"
	"unicode/utf8"
)

func errorf(format string, args ...any) error { return fmt.Errorf(format, args...) }

// str is Python's str(v), what printing writes.
func (ev *evaluator) str(v value) string {
	switch v := v.(type) {
	case string:
		return v
	case markup:
		return string(v)
	case *undefined, nil:
		return ""
	case int64, bool, float64, noneType:
		ev.alloc(24)
		return ev.simple(v)
	}
	return ev.repr(v)
}

func (ev *evaluator) simple(v value) string {
	switch v := v.(type) {
	case noneType:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case float64:
		return floatRepr(v)
	}
	return ev.intText(v)
}

// repr is Python's repr(v).
func (ev *evaluator) repr(v value) string {
	w := &shower{ev: ev}
	w.value(v, 0)
	ev.alloc(int64(w.Len()))
	return w.String()
}

type shower struct {
	strings.Builder
	ev   *evaluator
	open []value // lists and dictionaries being written: Python shows one within itself as ...
}

func (w *shower) put(s string) {
	w.ev.alloc(2 * int64(len(s)))
	w.WriteString(s)
}

func (w *shower) isOpen(v value) bool {
	for _, o := range w.open {
		if o == v {
			return true
		}
	}
	return false
}

func (w *shower) value(v value, depth int) {
	w.ev.deep(depth)
	switch v := v.(type) {
	case string:
		w.put(quoteString(w.ev, v))
	case markup:
		w.put("Markup(" + quoteString(w.ev, string(v)) + ")")
	case noneType, bool, int64, float64, *big.Int:
		w.put(w.ev.simple(v))
	case *undefined, nil:
		w.put("Undefined")
	case *list:
		w.list(v, depth)
	case *dict:
		w.dict(v, depth)
	case *rangeValue:
		w.put(fmt.Sprintf("range(%d, %d", v.start, v.stop))
		if v.step != 1 {
			w.put(fmt.Sprintf(", %d", v.step))
		}
		w.put(")")
	case *view:
		w.put("dict_" + v.what + "([")
		next := w.ev.iter(v)
		for i := 0; ; i++ {
			item, ok := next()
			if !ok {
				break
			}
			if i > 0 {
				w.put(", ")
			}
			w.value(item, depth+1)
		}
		w.put("])")
	case *namespace:
		w.put("<Namespace ")
		w.dict(v.attrs, depth+1)
		w.put(">")
	case *macro:
		w.put("<Macro " + quoteString(w.ev, v.st.name) + ">")
	case *loopValue:
		w.put(fmt.Sprintf("<LoopContext %d/%d>", v.index0+1, v.length()))
	case *generator:
		switch {
		case strings.HasSuffix(v.name, "iterator") || v.name == "reversed":
			w.put("<" + v.name + " object at 0x0>")
		default:
			w.put("<generator object " + v.name + " at 0x0>")
		}
	case *function:
		w.put(v.show)
	default:
		w.put("<jinja2.utils." + typeName(v) + " object at 0x0>")
	}
}

func (w *shower) list(v *list, depth int) {
	open, end := "[", "]"
	if v.tuple {
		open, end = "(", ")"
		if len(v.items) == 1 {
			end = ",)"
		}
	}
	if w.isOpen(v) {
		w.put(open + "..." + strings.TrimPrefix(end, ","))
		return
	}
	w.open = append(w.open, v)
	w.put(open)
	for i, item := range v.items {
		if i > 0 {
			w.put(", ")
		}
		w.value(item, depth+1)
	}
	w.put(end)
	w.open = w.open[:len(w.open)-1]
}

func (w *shower) dict(v *dict, depth int) {
	if w.isOpen(v) {
		w.put("{...}")
		return
	}
	w.open = append(w.open, v)
	w.put("{")
	for i, key := range v.keys {
		if i > 0 {
			w.put(", ")
		}
		w.value(key, depth+1)
		w.put(": ")
		w.value(v.values[i], depth+1)
	}
	w.put("}")
	w.open = w.open[:len(w.open)-1]
}

// quoteString is Python's repr of a string.
func quoteString(ev *evaluator, s string) string {
	ev.text(8 * len(s))
	quote := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	var b strings.Builder
	b.WriteByte(quote)
	for _, r := range s {
		switch {
		case r == rune(quote) || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x7f || isPrintable(r):
			b.WriteRune(r)
		default:
			b.WriteString(escapeRune(r))
		}
	}
	b.WriteByte(quote)
	return b.String()
}

// escapeRune writes a character as Python does in repr and ascii.
func escapeRune(r rune) string {
	switch {
	case r < 0x100:
		return fmt.Sprintf(`\x%02x`, r)
	case r < 0x10000:
		return fmt.Sprintf(`\u%04x`, r)
	}
	return fmt.Sprintf(`\U%08x`, r)
}

// asciiEscape is escapeRune without its backslash.
func asciiEscape(r rune) string { return `\` + escapeRune(r)[1:] }

// validText replaces what is not UTF-8.
func validText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

var htmlEscapes = strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;")

// escaped is markupsafe's escape: the text of v as safe HTML.
func (ev *evaluator) escaped(v value) string {
	if m, ok := v.(markup); ok {
		return string(m)
	}
	s := ev.str(v)
	if !strings.ContainsAny(s, `&<>'"`) {
		return s
	}
	ev.text(5 * len(s))
	return htmlEscapes.Replace(s)
}
