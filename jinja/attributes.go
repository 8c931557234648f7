package jinja

import (
	"math/big"
	"strings"
)

// changers are the methods that the immutable sandbox keeps from templates.
var changers = map[string]map[string]bool{
	"list": {"append": true, "reverse": true, "insert": true, "sort": true, "extend": true, "remove": true},
	"dict": {"clear": true, "pop": true, "popitem": true, "setdefault": true, "update": true},
}

// unsupported are methods that Python has and that no prompt needs.
var unsupported = map[string]map[string]bool{
	"str":   {"encode": true, "translate": true, "maketrans": true},
	"list":  {"clear": true, "pop": true},
	"dict":  {"fromkeys": true},
	"int":   {"to_bytes": true, "from_bytes": true, "as_integer_ratio": true, "conjugate": true, "bit_count": true},
	"float": {"hex": true, "fromhex": true, "as_integer_ratio": true, "conjugate": true},
}

// named is the attribute that Python's getattr finds.
func (ev *evaluator) named(obj value, name string) (value, bool) {
	kind := typeName(obj)
	if kind == "bool" {
		kind = "int"
	}
	if kind == "Markup" {
		kind = "str"
	}
	if changers[kind][name] {
		ev.alloc(128)
		return undef("%s of a %s is not allowed: values of the conversation cannot be changed", quote(name), kind), true
	}
	if unsupported[kind][name] {
		fail("method %s of %s is not supported", quote(name), kind)
	}
	switch obj := obj.(type) {
	case string:
		if m, ok := stringMethods[name]; ok {
			return ev.method("str", name, func(ev *evaluator, c *call) value { return m(ev, obj, c) }), true
		}
	case markup:
		if m, ok := stringMethods[name]; ok {
			return ev.method("Markup", name, func(ev *evaluator, c *call) value { return ev.markupMethod(m, name, obj, c) }), true
		}
	case *list:
		if obj.group && (name == "grouper" || name == "list") {
			return obj.items[map[string]int{"grouper": 0, "list": 1}[name]], true
		}
		switch name {
		case "index":
			return ev.method(kind, name, obj.indexMethod), true
		case "count":
			return ev.method(kind, name, obj.countMethod), true
		case "copy":
			if !obj.tuple {
				return ev.method(kind, name, func(ev *evaluator, c *call) value {
					c.bind("copy", 0)
					return ev.slice(obj)
				}), true
			}
		}
	case *dict:
		return ev.dictMethod(obj, name)
	case *rangeValue:
		switch name {
		case "start":
			return obj.start, true
		case "stop":
			return obj.stop, true
		case "step":
			return obj.step, true
		case "index":
			return ev.method(kind, name, func(ev *evaluator, c *call) value {
				if len(c.pos) > 1 {
					fail("index takes one argument")
				}
				return ev.slice(obj).indexMethod(ev, c)
			}), true
		case "count":
			return ev.method(kind, name, func(ev *evaluator, c *call) value { return ev.slice(obj).countMethod(ev, c) }), true
		}
	case *namespace:
		return obj.attrs.str(name)
	case *loopValue:
		return obj.attribute(ev, name)
	case *macro:
		if name == "name" {
			return obj.st.name, true
		}
	case *cycler:
		return obj.attribute(ev, name)
	case int64, bool, *big.Int, float64:
		return ev.numberAttribute(obj, name)
	}
	return nil, false
}

// method makes a bound method.
func (ev *evaluator) method(kind, name string, f func(*evaluator, *call) value) value {
	ev.alloc(96)
	show := "<built-in method " + name + " of " + kind + " object at 0x0>"
	if name == "format" || name == "format_map" { // which the sandbox replaces
		show = "<function " + kind + "." + name + " at 0x0>"
	}
	return &function{name: name, show: show, call: f}
}

func (ev *evaluator) numberAttribute(v value, name string) (value, bool) {
	f, isFloat := v.(float64)
	switch name {
	case "real":
		return v, true
	case "imag":
		if isFloat {
			return 0.0, true
		}
		return int64(0), true
	case "numerator":
		if !isFloat {
			return v, true
		}
	case "denominator":
		if !isFloat {
			return int64(1), true
		}
	case "is_integer":
		if isFloat {
			return ev.method("float", name, func(ev *evaluator, c *call) value {
				c.bind(name, 0)
				return f == float64(int64(f)) || f > 1<<62 && f <= maxFloat || f < -(1<<62) && f >= -maxFloat
			}), true
		}
	case "bit_length":
		if i, ok := integer(v); ok {
			return ev.method("int", name, func(ev *evaluator, c *call) value {
				c.bind(name, 0)
				return int64(i.BitLen())
			}), true
		}
	}
	return nil, false
}

const maxFloat = 0x1p1023 * (1 + (1 - 0x1p-52))

func (l *list) indexMethod(ev *evaluator, c *call) value {
	a := c.bind("index", 1, "value", "start", "stop")
	from, to, _ := sliceBounds(a[1], a[2], nil, int64(len(l.items)))
	for i := from; i < to; i++ {
		if ev.equal(l.items[i], a[0], 0) {
			return i
		}
	}
	fail("the value is not in the list")
	return nil
}

func (l *list) countMethod(ev *evaluator, c *call) value {
	a := c.bind("count", 1, "value")
	n := int64(0)
	for _, item := range l.items {
		if ev.equal(item, a[0], 0) {
			n++
		}
	}
	return n
}

func (ev *evaluator) dictMethod(d *dict, name string) (value, bool) {
	switch name {
	case "keys", "values", "items":
		return ev.method("dict", name, func(ev *evaluator, c *call) value {
			c.bind(name, 0)
			return &view{d, name}
		}), true
	case "get":
		return ev.method("dict", name, func(ev *evaluator, c *call) value {
			if len(c.names) > 0 {
				fail("get takes no keyword arguments")
			}
			a := c.bind("get", 1, "key", "default")
			if v, ok := d.get(ev, a[0]); ok {
				return v
			}
			if a[1] != nil {
				return a[1]
			}
			return none
		}), true
	case "copy":
		return ev.method("dict", name, func(ev *evaluator, c *call) value {
			c.bind("copy", 0)
			return ev.copyDict(d)
		}), true
	}
	return nil, false
}

func (ev *evaluator) copyDict(d *dict) *dict {
	ev.times(int64(len(d.keys)), entryBytes)
	n := &dict{}
	for i, k := range d.keys {
		n.set(ev, k, d.values[i])
	}
	return n
}

func (l *loopValue) attribute(ev *evaluator, name string) (value, bool) {
	ev.alloc(16)
	switch name {
	case "index":
		return l.index0 + 1, true
	case "index0":
		return l.index0, true
	case "revindex":
		return l.length() - l.index0, true
	case "revindex0":
		return l.length() - l.index0 - 1, true
	case "first":
		return l.index0 == 0, true
	case "last":
		_, more := l.peek()
		return !more, true
	case "length":
		return l.length(), true
	case "depth":
		return l.depth + 1, true
	case "depth0":
		return l.depth, true
	case "previtem":
		if l.index0 == 0 {
			return undef("there is no previous item"), true
		}
		return l.previous, true
	case "nextitem":
		if v, ok := l.peek(); ok {
			return v, true
		}
		return undef("there is no next item"), true
	case "cycle":
		return ev.method("LoopContext", name, func(ev *evaluator, c *call) value {
			if len(c.pos) == 0 || len(c.names) > 0 {
				fail("cycle wants items")
			}
			return c.pos[l.index0%int64(len(c.pos))]
		}), true
	case "changed":
		return ev.method("LoopContext", name, func(ev *evaluator, c *call) value {
			if len(c.names) > 0 {
				fail("changed takes no keyword arguments")
			}
			v := ev.tupleOf(c.pos...)
			if l.hasChanged && ev.equal(v, l.changed, 0) {
				return false
			}
			l.hasChanged, l.changed = true, v
			return true
		}), true
	}
	return nil, false
}

func (c *cycler) attribute(ev *evaluator, name string) (value, bool) {
	switch name {
	case "current":
		return c.items[c.at], true
	case "next":
		return ev.method("Cycler", name, func(ev *evaluator, a *call) value {
			a.bind("next", 0)
			c.at = (c.at + 1) % len(c.items)
			return c.items[(c.at+len(c.items)-1)%len(c.items)]
		}), true
	case "reset":
		return ev.method("Cycler", name, func(ev *evaluator, a *call) value {
			a.bind("reset", 0)
			c.at = 0
			return none
		}), true
	}
	return nil, false
}

// escaping are the methods of str whose arguments Markup escapes first.
var escaping = map[string]bool{"capitalize": true, "title": true, "lower": true, "upper": true, "replace": true, "ljust": true, "rjust": true, "lstrip": true,
	"rstrip": true, "center": true, "strip": true, "expandtabs": true, "swapcase": true, "zfill": true, "partition": true, "rpartition": true, "join": true, "format": true}

// markupMethod calls a method of str on safe HTML: what comes back is safe
// too, since the arguments are escaped.
func (ev *evaluator) markupMethod(m stringMethod, name string, s markup, c *call) value {
	if escaping[name] {
		escape := func(v value) value {
			if _, ok := text(v); ok || name == "format" && !isNumber(v) {
				return ev.escaped(v)
			}
			return v
		}
		e := &call{names: c.names}
		for _, v := range c.pos {
			if name == "join" {
				l := ev.slice(v)
				for i, item := range l.items {
					l.items[i] = ev.escaped(item)
				}
				v = l
			}
			e.pos = append(e.pos, escape(v))
		}
		for _, v := range c.named {
			e.named = append(e.named, escape(v))
		}
		c = e
	} else if !strings.HasSuffix(name, "split") && name != "splitlines" {
		return m(ev, string(s), c)
	}
	switch v := m(ev, string(s), c).(type) {
	case string:
		return markup(v)
	case *list:
		for i, item := range v.items {
			v.items[i] = markup(item.(string))
		}
		return v
	default:
		return v
	}
}
