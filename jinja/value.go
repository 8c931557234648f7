package jinja

import (
	"fmt"
	"math"
	"math/big"
	"unicode"
)

// A value is one of Python's, as follows:
//
//	noneType    None
//	bool        bool
//	int64       int; *big.Int where int64 does not hold it
//	float64     float
//	string      str, valid UTF-8
//	markup      markupsafe.Markup: a str that is safe HTML
//	*list       list, or tuple
//	*dict       dict, in order of insertion
//	*undefined  jinja2.Undefined
//	*rangeValue range
//	*view       dict_keys, dict_values, dict_items
//	*generator  what can be iterated once
//	*namespace, *macro, *loopValue, *cycler, *joiner, *function
//
// A nil value is a variable that was never set.
type value any

type noneType struct{}

var none value = noneType{}

type markup string

type list struct {
	items []value
	tuple bool
	group bool // of groupby: items are also named grouper and list
}

// undefined has a message for errors, or is the attribute that an object of a
// type lacks: templates ask for such by the thousand, for each letter of a text
// that they take for parts, and only an error needs it in words.
type undefined struct {
	message         string
	object, missing string
}

func (u *undefined) says() string {
	if u.message != "" {
		return u.message
	}
	return fmt.Sprintf("%s object has no attribute %s", quote(u.object), quote(u.missing))
}

type rangeValue struct{ start, stop, step, n int64 }

func (r *rangeValue) at(i int64) int64 { return r.start + i*r.step }

type view struct {
	of   *dict
	what string // keys, values or items
}

// generator is an iterator; after the first walk it is empty.
type generator struct {
	name string
	next func() (value, bool)
}

type namespace struct{ attrs *dict }

type cycler struct {
	items []value
	at    int
}

type joiner struct {
	sep  value
	used bool
}

// function is a method bound to its value, or a global function.
type function struct {
	name  string
	show  string // Python's repr
	class bool
	call  func(*evaluator, *call) value
}

// call holds the evaluated arguments of a call.
type call struct {
	pos   []value
	names []string
	named []value
}

// dict keeps its keys in order.
type dict struct {
	keys, values []value
	index        map[any]int // of hash(key); nil for a small one
}

const smallDict = 8

func (d *dict) find(h any) int {
	if d.index != nil {
		if i, ok := d.index[h]; ok {
			return i
		}
		return -1
	}
	for i, k := range d.keys {
		if simpleHash(k) == h {
			return i
		}
	}
	return -1
}

// entryBytes is charged for each entry of a dictionary.
const entryBytes = 96

// set stores under a key; the first spelling of a key stays.
func (d *dict) set(ev *evaluator, key, v value) {
	h := ev.hash(key, 0)
	if i := d.find(h); i >= 0 {
		d.values[i] = v
		return
	}
	ev.alloc(entryBytes)
	d.keys, d.values = append(d.keys, key), append(d.values, v)
	if _, simple := h.(compound); d.index != nil || simple || len(d.keys) > smallDict {
		if d.index == nil {
			d.index = make(map[any]int)
			for i, k := range d.keys {
				d.index[ev.hash(k, 0)] = i
			}
		}
		d.index[h] = len(d.keys) - 1
	}
}

func (d *dict) get(ev *evaluator, key value) (value, bool) {
	if i := d.find(ev.hash(key, 0)); i >= 0 {
		return d.values[i], true
	}
	return nil, false
}

func (d *dict) str(key string) (value, bool) {
	if i := d.find(key); i >= 0 {
		return d.values[i], true
	}
	return nil, false
}

// compound is the hash of a tuple or of a large number.
type compound string

// simpleHash is the key of a value in Go's maps, equal for equal values; for
// what only hash can tell it is nil.
func simpleHash(v value) any {
	switch v := v.(type) {
	case bool:
		if v {
			return int64(1)
		}
		return int64(0)
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<62 {
			return int64(v)
		}
		return v
	case markup:
		return string(v)
	case string, int64, noneType:
		return v
	case *undefined:
		return noneKey
	case *list, *dict, *big.Int, *view:
		return nil
	}
	return v // by identity
}

type undefinedKey struct{}

var noneKey any = undefinedKey{}

// hashable reports whether a value can be the key of a dictionary.
func (ev *evaluator) hashable(v value, depth int) bool {
	switch v := v.(type) {
	case *dict, *view:
		return false
	case *list:
		ev.deep(depth)
		if !v.tuple {
			return false
		}
		for _, item := range v.items {
			ev.step(1)
			if !ev.hashable(item, depth+1) {
				return false
			}
		}
	}
	return true
}

// hash is the key of a value in Go's maps.
func (ev *evaluator) hash(v value, depth int) any {
	if h := simpleHash(v); h != nil {
		return h
	}
	switch v := v.(type) {
	case *big.Int:
		ev.text(v.BitLen() / 8)
		return compound(v.Text(62))
	case *list:
		if !v.tuple {
			break
		}
		ev.deep(depth)
		s := ""
		for _, item := range v.items {
			h := ev.hash(item, depth+1)
			part := fmt.Sprintf("%T:%v,", h, h)
			ev.alloc(int64(len(s) + len(part)))
			s += fmt.Sprintf("%d:%s", len(part), part)
		}
		return compound("(" + s + ")")
	}
	fail("unhashable type: %s", quote(typeName(v)))
	return nil
}

// deep refuses what is nested too far.
func (ev *evaluator) deep(depth int) {
	ev.step(1)
	if depth > maxDepth {
		fail("lists and dictionaries are nested more than %d deep, or hold themselves", maxDepth)
	}
}

func typeName(v value) string {
	switch v := v.(type) {
	case noneType:
		return "NoneType"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case markup:
		return "Markup"
	case *list:
		if v.tuple {
			return "tuple"
		}
		return "list"
	case *dict:
		return "dict"
	case *undefined, nil:
		return "Undefined"
	case *rangeValue:
		return "range"
	case *view:
		return "dict_" + v.what
	case *generator:
		return v.name
	case *namespace:
		return "Namespace"
	case *macro:
		return "Macro"
	case *loopValue:
		return "LoopContext"
	case *cycler:
		return "Cycler"
	case *joiner:
		return "Joiner"
	}
	return "function"
}

func undef(format string, args ...any) *undefined {
	return &undefined{message: fmt.Sprintf(format, args...)}
}

// text returns the string that v is.
func text(v value) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case markup:
		return string(v), true
	}
	return "", false
}

// truth is bool(v).
func truth(v value) bool {
	switch v := v.(type) {
	case noneType, nil, *undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case *big.Int:
		return true // 0 is an int64
	case string:
		return v != ""
	case markup:
		return v != ""
	case *list:
		return len(v.items) > 0
	case *dict:
		return len(v.keys) > 0
	case *rangeValue:
		return v.n > 0
	case *view:
		return len(v.of.keys) > 0
	case *loopValue:
		return v.length() > 0
	}
	return true
}

// isSpace is Python's str.isspace of one character.
func isSpace(r rune) bool {
	return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f
}

func isPrintable(r rune) bool {
	return unicode.IsPrint(r)
}

// newList charges and makes a list of n places.
func (ev *evaluator) newList(n int) *list {
	ev.alloc(40 + 16*int64(n))
	return &list{items: make([]value, 0, n)}
}

func (ev *evaluator) tupleOf(items ...value) *list {
	l := ev.newList(len(items))
	l.tuple = true
	l.items = append(l.items, items...)
	return l
}

// push appends to a list that grows.
func (ev *evaluator) push(l *list, v value) {
	ev.alloc(32)
	l.items = append(l.items, v)
}

// iterate is Python's iter; ok is false for what cannot be iterated.
func (ev *evaluator) iterate(v value) (next func() (value, bool), ok bool) {
	i := 0
	switch v := v.(type) {
	case *list:
		return func() (value, bool) {
			if i >= len(v.items) {
				return nil, false
			}
			ev.step(1)
			i++
			return v.items[i-1], true
		}, true
	case string:
		return ev.runes(v), true
	case markup:
		return ev.runes(string(v)), true
	case *dict:
		return ev.iterate(&view{v, "keys"})
	case *view:
		return func() (value, bool) {
			if i >= len(v.of.keys) {
				return nil, false
			}
			ev.step(1)
			i++
			switch v.what {
			case "keys":
				return v.of.keys[i-1], true
			case "values":
				return v.of.values[i-1], true
			}
			return ev.tupleOf(v.of.keys[i-1], v.of.values[i-1]), true
		}, true
	case *rangeValue:
		n := int64(0)
		return func() (value, bool) {
			if n >= v.n {
				return nil, false
			}
			ev.step(1)
			n++
			return v.at(n - 1), true
		}, true
	case *generator:
		return v.next, true
	case *undefined, nil:
		return func() (value, bool) { return nil, false }, true
	case *loopValue:
		return func() (value, bool) {
			fail("the loop of a for statement cannot be iterated")
			return nil, false
		}, true
	}
	return nil, false
}

func (ev *evaluator) runes(s string) func() (value, bool) {
	at := 0
	return func() (value, bool) {
		if at >= len(s) {
			return nil, false
		}
		ev.alloc(20)
		n := 1
		for at+n < len(s) && s[at+n]&0xC0 == 0x80 {
			n++
		}
		at += n
		return s[at-n : at], true
	}
}

// iter is iterate with an error.
func (ev *evaluator) iter(v value) func() (value, bool) {
	next, ok := ev.iterate(v)
	if !ok {
		fail("%s object is not iterable", quote(typeName(v)))
	}
	return next
}

// slice is Python's list(v).
func (ev *evaluator) slice(v value) *list {
	if l, ok := v.(*list); ok {
		c := ev.newList(len(l.items))
		c.items = append(c.items, l.items...)
		return c
	}
	next := ev.iter(v)
	l := ev.newList(0)
	for x, ok := next(); ok; x, ok = next() {
		ev.push(l, x)
	}
	return l
}

// length is Python's len; ok is false for what has none.
func (ev *evaluator) length(v value) (n int64, ok bool) {
	switch v := v.(type) {
	case string:
		ev.scan(len(v))
		return int64(runeCount(v)), true
	case markup:
		ev.scan(len(v))
		return int64(runeCount(string(v))), true
	case *list:
		return int64(len(v.items)), true
	case *dict:
		return int64(len(v.keys)), true
	case *view:
		return int64(len(v.of.keys)), true
	case *rangeValue:
		return v.n, true
	case *undefined, nil:
		return 0, true
	case *loopValue:
		return v.length(), true
	}
	return 0, false
}

func (ev *evaluator) len(v value) int64 {
	n, ok := ev.length(v)
	if !ok {
		fail("object of type %s has no len()", quote(typeName(v)))
	}
	return n
}
