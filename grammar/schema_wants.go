package grammar

import (
	"fmt"
	"strconv"
)

// types is a set of JSON Schema's types; number is both of its kinds.
type types uint8

const (
	isNull types = 1 << iota
	isBoolean
	isInteger
	isFraction
	isString
	isArray
	isObject
	isAny = 1<<iota - 1
)

var typeNames = map[string]types{
	"null": isNull, "boolean": isBoolean, "integer": isInteger, "number": isInteger | isFraction, "string": isString, "array": isArray, "object": isObject,
}

func (v *value) types() types {
	switch v.kind {
	case '{':
		return isObject
	case '[':
		return isArray
	case '"':
		return isString
	case 'n':
		return isNull
	case 't', 'f':
		return isBoolean
	}
	if d, ok := parseDecimal(v.text); ok && d.fraction == "" {
		return isInteger
	}
	return isFraction
}

// wants is what a list of parts asks of a value, keyword by keyword, but for
// what is inside objects and arrays.
type wants struct {
	types    types
	hasEnum  bool
	enum     []*value
	bounds   bounded
	length   [2]int // of a string: at least, at most; -1 is no bound
	items    [2]int // of an array
	patterns []located
	formats  []located
}

// perCopy is the nodes that a counted character or item takes, about.
const perCopy = 11

type located struct{ text, at string }

// besides are the keywords that would have to be tested on each value of an enum.
var besides = set(`properties required additionalProperties patternProperties items prefixItems minItems maxItems minLength maxLength
	pattern format minimum maximum exclusiveMinimum exclusiveMaximum`)

func (s *schemaBuilder) wants(parts []part) *wants {
	w := &wants{types: isAny, length: [2]int{0, -1}, items: [2]int{0, -1}}
	beside, enumAt := "", ""
	for _, p := range parts {
		for i, key := range p.v.keys {
			s.tick()
			v, at := p.v.items[i], pointer(p.at, key)
			if besides[key] {
				beside = at
			}
			switch key {
			case "type":
				w.types &= typesOf(v, at)
			case "enum":
				if v.kind != '[' || len(v.items) == 0 {
					stop(ErrSyntax, shown(at), "is not a list of values")
				}
				w.only(v.items)
				enumAt = at
			case "const":
				w.only([]*value{v})
				enumAt = at
			case "minLength", "maxLength", "minItems", "maxItems":
				span := &w.length
				if key[3:] == "Items" {
					span = &w.items
				}
				n := count(v, at)
				if n > s.Nodes/perCopy {
					stop(ErrLimit, shown(at), fmt.Sprintf("is %d: up to %d are counted", n, s.Nodes/perCopy))
				}
				if key[:3] == "min" {
					span[0] = max(span[0], n)
				} else if span[1] < 0 || n < span[1] {
					span[1] = n
				}
			case "pattern", "format":
				if v.kind != '"' {
					stop(ErrSyntax, shown(at), "is not a string")
				}
				if key == "pattern" {
					w.patterns = append(w.patterns, located{v.text, at})
				} else {
					w.formats = append(w.formats, located{v.text, at})
				}
			case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum":
				w.bounds.take(key, v, at)
			}
		}
	}
	if w.hasEnum {
		if beside != "" {
			stop(ErrUnsupported, shown(beside), "is not supported beside "+shown(enumAt))
		}
		kept := w.enum[:0:0]
		for _, v := range w.enum {
			if v.types()&w.types != 0 {
				kept = append(kept, v)
			}
		}
		w.enum = kept
	}
	return w
}

// only keeps the values that are in a list, too.
func (w *wants) only(list []*value) {
	if !w.hasEnum {
		w.hasEnum, w.enum = true, list
		return
	}
	var kept []*value
	for _, v := range w.enum {
		for _, other := range list {
			if same(v, other) {
				kept = append(kept, v)
				break
			}
		}
	}
	w.enum = kept
}

func typesOf(v *value, at string) (t types) {
	list := []*value{v}
	if v.kind == '[' && len(v.items) > 0 {
		list = v.items
	}
	for _, item := range list {
		of, ok := typeNames[item.text]
		if item.kind != '"' || !ok {
			stop(ErrSyntax, shown(at), "is not null, boolean, integer, number, string, array or object, or a list of these")
		}
		t |= of
	}
	return t
}

// count reads a number of characters or items.
func count(v *value, at string) int {
	n, err := strconv.Atoi(v.text)
	if d, ok := parseDecimal(v.text); v.kind == '0' && err != nil && ok && d.fraction == "" && !d.negative {
		n, err = strconv.Atoi(d.whole)
	}
	if v.kind != '0' || err != nil || n < 0 {
		stop(ErrSyntax, shown(at), "is not a whole number from 0 up")
	}
	return n
}
