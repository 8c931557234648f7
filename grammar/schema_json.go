package grammar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A value is JSON that was read, with its members in order.
type value struct {
	kind  byte     // '{', '[', '"', '0' (a number), 't', 'f', 'n'
	keys  []string // of an object
	items []*value // of an object or an array
	text  string   // of a string or a number
	id    int      // the same for values that are written alike
}

// readJSON reads a schema. Its depth is bounded: a subschema is two deep, as in
// {"properties": {"x": …}}.
func (b *builder) readJSON(data []byte) *value {
	if !utf8.Valid(data) {
		stop(ErrSyntax, b.what, "is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var read func(deep int) *value
	ids := make(map[string]int)
	known := func(v *value) *value {
		key := fmt.Sprintf("%c %q %q", v.kind, v.text, v.keys)
		for _, item := range v.items {
			key += " " + strconv.Itoa(item.id)
		}
		if _, ok := ids[key]; !ok {
			ids[key] = len(ids)
		}
		v.id = ids[key]
		return v
	}
	token := func() json.Token {
		t, err := d.Token()
		if err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			stop(ErrSyntax, b.what, fmt.Sprintf("is not JSON, at byte %d: %s", d.InputOffset(), strings.ReplaceAll(err.Error(), "\n", " ")))
		}
		return t
	}
	read = func(deep int) *value {
		b.tick()
		if deep > 2*b.Depth {
			stop(ErrLimit, b.what, fmt.Sprintf("has more than %d subschemas inside each other", b.Depth))
		}
		switch t := token().(type) {
		case string:
			return known(&value{kind: '"', text: t})
		case json.Number:
			return known(&value{kind: '0', text: t.String()})
		case bool:
			if t {
				return known(&value{kind: 't'})
			}
			return known(&value{kind: 'f'})
		case json.Delim:
			v := &value{kind: byte(t)}
			seen := make(map[string]bool)
			for d.More() {
				if t == '{' {
					key, ok := token().(string)
					if !ok || seen[key] {
						stop(ErrSyntax, b.what, "has the member "+quote(key)+" twice in one object")
					}
					seen[key] = true
					v.keys = append(v.keys, key)
				}
				v.items = append(v.items, read(deep+1))
			}
			token()
			return known(v)
		}
		return known(&value{kind: 'n'})
	}
	v := read(0)
	if _, err := d.Token(); err != io.EOF {
		stop(ErrSyntax, b.what, "goes on after the end of its JSON")
	}
	return v
}

// get returns a member of an object; nil if there is none.
func (v *value) get(key string) *value {
	for i, k := range v.keys {
		if k == key {
			return v.items[i]
		}
	}
	return nil
}

// pointer writes a step of a JSON pointer.
func pointer(at, key string) string {
	return at + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}

// shown is a pointer in a message: on one line, and not too long.
func shown(at string) string {
	const longest = 120
	if r := []rune(at); len(r) > longest {
		at = string(r[:longest]) + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7F || r == 0x2028 || r == 0x2029 {
			return '?'
		}
		return r
	}, at)
}

// resolve finds what a $ref names in the schema itself.
func (s *schemaBuilder) resolve(ref *value, at string) part {
	if ref.kind != '"' {
		stop(ErrSyntax, shown(at), "is not a string")
	}
	if !strings.HasPrefix(ref.text, "#/") && ref.text != "#" {
		stop(ErrUnsupported, shown(at), "refers to "+quote(ref.text)+", which is not supported: only #/… in the same schema is")
	}
	v, where := s.root, "#"
	if ref.text != "#" {
		for _, step := range strings.Split(ref.text[2:], "/") {
			if plain, err := url.PathUnescape(step); err == nil {
				step = plain
			}
			step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
			where = pointer(where, step)
			switch i, err := strconv.Atoi(step); {
			case v.kind == '{':
				v = v.get(step)
			case v.kind == '[' && err == nil && i >= 0 && i < len(v.items):
				v = v.items[i]
			default:
				v = nil
			}
			if v == nil {
				stop(ErrSyntax, shown(at), "refers to "+quote(ref.text)+", which is not in the schema")
			}
		}
	}
	return part{v: v, at: where}
}

// same reports whether two values are equal, as JSON Schema has it: 1 is 1.0,
// and the order of members is nothing.
func same(a, b *value) bool {
	if a.kind != b.kind || len(a.items) != len(b.items) {
		return false
	}
	switch a.kind {
	case '0':
		x, okX := parseDecimal(a.text)
		y, okY := parseDecimal(b.text)
		if okX && okY {
			return x.compare(y) == 0
		}
		return a.text == b.text
	case '{':
		for i, k := range a.keys {
			if other := b.get(k); other == nil || !same(a.items[i], other) {
				return false
			}
		}
		return true
	case '[':
		for i := range a.items {
			if !same(a.items[i], b.items[i]) {
				return false
			}
		}
	}
	return a.text == b.text
}
