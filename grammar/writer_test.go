package grammar

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// writer makes random values that satisfy a schema, in the order and spelling
// that docs/grammar.md promises. ok is false where it has given up.
type writer struct {
	*oracle
	r    *rand.Rand
	root *value // the schema again, with its members in order
	text string
}

func (w *writer) space() string {
	return []string{"", "", " ", "\n", "\n  ", "\n\t"}[w.r.IntN(6)]
}

func (w *writer) anyString(least, most int) string {
	pieces := []string{"a", "b", " ", "the", "é", "日", "😀", `\"`, `\\`, `\/`, `\n`, `\u00e9`, `\uD83D\uDE00`, "1", "}", "]", ",", "\x7f"}
	n := least + w.r.IntN(6)
	if most >= 0 {
		n = min(n, most)
	}
	var b strings.Builder
	for chars := 0; chars < n; {
		p := pieces[w.r.IntN(len(pieces))]
		if p == "the" && chars+3 > n {
			continue
		}
		if chars++; p == "the" {
			chars += 2
		}
		b.WriteString(p)
	}
	return `"` + b.String() + `"`
}

func (w *writer) value(s *value, deep int) (string, bool) {
	if s.kind == 't' {
		s = &value{kind: '{'}
	}
	if s.kind != '{' || deep > 6 {
		return "", false
	}
	if v := s.get("const"); v != nil {
		return w.spell(v), true
	}
	if v := s.get("enum"); v != nil {
		return w.spell(v.items[w.r.IntN(len(v.items))]), true
	}
	if v := s.get("$ref"); v != nil {
		at := w.root
		for _, step := range strings.Split(v.text, "/")[1:] {
			at = at.get(step)
		}
		return w.value(at, deep+1)
	}
	for _, key := range []string{"anyOf", "oneOf", "allOf"} {
		if v := s.get(key); v != nil && (s.get("type") == nil || w.r.IntN(2) == 0) {
			return w.value(v.items[w.r.IntN(len(v.items))], deep+1) // the oracle drops what is wrong
		}
	}
	list := []string{"null", "boolean", "integer", "number", "string", "array", "object"}
	if t := s.get("type"); t != nil {
		list = list[:0]
		for _, item := range append(t.items, t) {
			if item.kind == '"' {
				list = append(list, item.text)
			}
		}
	}
	number := func(key string, otherwise int) int {
		if v := s.get(key); v != nil {
			n, _ := strconv.Atoi(v.text)
			return n
		}
		return otherwise
	}
	switch list[w.r.IntN(len(list))] {
	case "null":
		return "null", true
	case "boolean":
		return []string{"true", "false"}[w.r.IntN(2)], true
	case "integer":
		return fmt.Sprint(w.r.IntN(2001) - 1000 + number("minimum", 0)), true
	case "number":
		base := 0.0
		for _, key := range []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"} {
			if v := s.get(key); v != nil && w.r.IntN(2) == 0 {
				base, _ = strconv.ParseFloat(v.text, 64)
			}
		}
		spread := []int{1, 11, 201, 40001}[w.r.IntN(4)]
		n := strconv.FormatFloat(base+float64(w.r.IntN(spread)-spread/2)/float64([]int{1, 10, 100, 1000}[w.r.IntN(4)]), 'f', -1, 64)
		if s.get("minimum") == nil && s.get("maximum") == nil && s.get("exclusiveMinimum") == nil && s.get("exclusiveMaximum") == nil && w.r.IntN(3) == 0 {
			n += []string{"e5", "E-12", "e+0"}[w.r.IntN(3)]
		}
		return n, true
	case "string":
		if s.get("pattern") != nil || s.get("format") != nil {
			return "", false
		}
		return w.anyString(number("minLength", 0), number("maxLength", -1)), true
	case "array":
		return w.array(s, number("minItems", 0), number("maxItems", -1), deep)
	}
	return w.object(s, deep)
}

func (w *writer) spell(v *value) string {
	switch v.kind {
	case '[', '{':
		out := string(v.kind)
		for i, item := range v.items {
			if i > 0 {
				out += ","
			}
			out += w.space()
			if v.kind == '{' {
				out += w.quote(v.keys[i]) + ":" + w.space()
			}
			out += w.spell(item)
		}
		if len(v.items) > 0 {
			out += w.space()
		}
		return out + map[byte]string{'[': "]", '{': "}"}[v.kind]
	case '"':
		return w.quote(v.text)
	case 't':
		return "true"
	case 'f':
		return "false"
	case 'n':
		return "null"
	}
	return v.text
}

func (w *writer) quote(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s)
	return strings.NewReplacer(`\u2028`, "\u2028", `\u2029`, "\u2029").Replace(strings.TrimSuffix(b.String(), "\n"))
}

func (w *writer) array(s *value, least, most int, deep int) (string, bool) {
	n := least + w.r.IntN(4)
	if most >= 0 {
		n = min(n, most)
	}
	out := "[" + w.space()
	for i := range n {
		item := s.get("items")
		if prefix := s.get("prefixItems"); prefix != nil && i < len(prefix.items) {
			item = prefix.items[i]
		}
		if item == nil {
			item = &value{kind: 't'}
		}
		v, ok := w.value(item, deep+1)
		if !ok {
			return "", false
		}
		if i > 0 {
			out += "," + w.space()
		}
		out += v
	}
	if n > 0 {
		out += w.space()
	}
	return out + "]", true
}

func (w *writer) object(s *value, deep int) (string, bool) {
	out, members := "{"+w.space(), 0
	member := func(key, v string) {
		if members > 0 {
			out += "," + w.space()
		}
		members++
		out += key + ":" + w.space() + v
	}
	required := make(map[string]bool)
	if r := s.get("required"); r != nil {
		for _, item := range r.items {
			required[item.text] = true
		}
	}
	if p := s.get("properties"); p != nil {
		for i, k := range p.keys {
			if !required[k] && w.r.IntN(2) == 0 {
				continue
			}
			v, ok := w.value(p.items[i], deep+1)
			if !ok {
				return "", false
			}
			member(w.quote(k), v)
		}
	}
	additional := s.get("additionalProperties")
	if additional == nil {
		additional = &value{kind: 't'}
	}
	if r := s.get("required"); r != nil {
		for _, item := range r.items {
			if p := s.get("properties"); p != nil && p.get(item.text) != nil {
				continue
			}
			v, ok := w.value(additional, deep+1)
			if !ok {
				return "", false
			}
			member(w.quote(item.text), v)
		}
	}
	if additional.kind != 'f' && s.get("patternProperties") == nil {
		for range w.r.IntN(3) {
			v, ok := w.value(additional, deep+1)
			if !ok {
				return "", false
			}
			key := w.quote([]string{"x", "extra", "a b", "", "日本", "\n\"", "na", "names"}[w.r.IntN(8)])
			if strings.Contains(w.text, key) {
				continue // a name of the schema has a place in its order
			}
			member(key, v)
		}
	}
	if members > 0 {
		out += w.space()
	}
	return out + "}", true
}
