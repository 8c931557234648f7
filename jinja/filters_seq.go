package jinja

import (
	"strings"
)

// attributeGetter reads an attribute path such as "function.name"; nil and
// none stand for the item itself.
func (ev *evaluator) attributeGetter(attribute, byDefault value) func(value) value {
	var parts []value
	switch a := attribute.(type) {
	case nil, noneType:
	case string, markup:
		s, _ := text(a)
		ev.alloc(int64(len(s)) * 4)
		for _, part := range strings.Split(s, ".") {
			if part != "" && every(part, isDigit) {
				if i, ok := parseInt(part, 10); ok {
					parts = append(parts, i)
					continue
				}
			}
			parts = append(parts, part)
		}
	default:
		parts = []value{a}
	}
	return func(item value) value {
		for _, part := range parts {
			item = ev.getItem(item, part)
			if _, ok := item.(*undefined); ok && byDefault != nil && byDefault != none {
				item = byDefault
			}
		}
		return item
	}
}

// foldedGetter is attributeGetter for sorting: strings without their case, if
// it does not count.
func (ev *evaluator) foldedGetter(attribute, caseSensitive, byDefault value) func(value) value {
	get := ev.attributeGetter(attribute, byDefault)
	return func(item value) value {
		v := get(item)
		if caseSensitive == nil || !truth(caseSensitive) {
			return ev.folded(v)
		}
		return v
	}
}

func sortFilter(ev *evaluator, v value, c *call) value {
	a := c.bind("sort", 0, "reverse", "case_sensitive", "attribute")
	var gets []func(value) value
	if s, ok := text(a[2]); ok {
		ev.alloc(int64(len(s)) * 8)
		for _, part := range strings.Split(s, ",") {
			gets = append(gets, ev.foldedGetter(part, a[1], nil))
		}
	} else {
		gets = append(gets, ev.foldedGetter(a[2], a[1], nil))
	}
	l := ev.slice(v)
	l.tuple, l.group = false, false
	ev.sort(l, func(item value) value {
		keys := ev.newList(len(gets))
		for _, get := range gets {
			keys.items = append(keys.items, get(item))
		}
		return keys
	}, a[0] != nil && truth(a[0]))
	return l
}

func uniqueFilter(ev *evaluator, v value, c *call) value {
	a := c.bind("unique", 0, "case_sensitive", "attribute")
	return ev.generate("do_unique", func() func() (value, bool) {
		get := ev.foldedGetter(a[1], a[0], nil)
		seen := &dict{}
		next := ev.iter(v)
		return func() (value, bool) {
			for {
				item, ok := next()
				if !ok {
					return nil, false
				}
				key := get(item)
				if _, twice := seen.get(ev, key); !twice {
					seen.set(ev, key, none)
					return item, true
				}
			}
		}
	})
}

func extremeFilter(name string, sign int) filterFunc {
	return func(ev *evaluator, v value, c *call) value {
		a := c.bind(name, 0, "case_sensitive", "attribute")
		get := ev.foldedGetter(a[1], a[0], nil)
		next := ev.iter(v)
		best, ok := next()
		if !ok {
			return undef("the sequence of %s is empty", name)
		}
		key := get(best)
		for item, ok := next(); ok; item, ok = next() {
			k := get(item)
			if order, ok := ev.order(k, key, 0); ok && order*sign > 0 {
				best, key = item, k
			}
		}
		return best
	}
}

func groupbyFilter(ev *evaluator, v value, c *call) value {
	a := c.bind("groupby", 1, "attribute", "default", "case_sensitive")
	key := ev.foldedGetter(a[0], a[2], a[1])
	l := ev.slice(v)
	ev.sort(l, key, false)
	groups := ev.newList(0)
	var members *list
	var last value
	for _, item := range l.items {
		k := key(item)
		if members == nil || !ev.equal(k, last, 0) {
			members, last = ev.newList(0), k
			shown := k
			if a[2] == nil || !truth(a[2]) {
				shown = ev.attributeGetter(a[0], a[1])(item)
			}
			group := ev.tupleOf(shown, members)
			group.group = true
			ev.push(groups, group)
		}
		ev.push(members, item)
	}
	return groups
}

// mapFilter applies a filter, or reads an attribute.
func mapFilter(ev *evaluator, v value, c *call) value {
	return ev.generate("sync_do_map", func() func() (value, bool) {
		if !truth(v) {
			return func() (value, bool) { return nil, false }
		}
		var apply func(value) value
		if len(c.pos) == 0 && len(c.names) > 0 {
			rest := &call{}
			var attribute, byDefault value
			for i, name := range c.names {
				switch name {
				case "attribute":
					attribute = c.named[i]
				case "default":
					byDefault = c.named[i]
				default:
					rest.names = append(rest.names, name)
				}
			}
			if attribute == nil {
				fail("map wants a filter or an attribute")
			}
			rest.bind("map", 0)
			apply = ev.attributeGetter(attribute, byDefault)
		} else {
			if len(c.pos) == 0 {
				fail("map wants a filter or an attribute")
			}
			name, _ := text(c.pos[0])
			f, ok := filters[name]
			if !ok {
				fail("there is no filter named %s", quote(name))
			}
			args := &call{c.pos[1:], c.names, c.named}
			apply = func(item value) value { return f(ev, item, args) }
		}
		next := ev.iter(v)
		return func() (value, bool) {
			item, ok := next()
			if !ok {
				return nil, false
			}
			return apply(item), true
		}
	})
}

// selectFilter keeps the items that pass a test, or those that do not.
func selectFilter(name string, byAttribute, reject bool) filterFunc {
	return func(ev *evaluator, v value, c *call) value {
		return ev.generate("select_or_reject", func() func() (value, bool) {
			if !truth(v) {
				return func() (value, bool) { return nil, false }
			}
			get := func(item value) value { return item }
			args := c.pos
			if byAttribute {
				if len(args) == 0 {
					fail("%s wants the name of an attribute", name)
				}
				get = ev.attributeGetter(args[0], nil)
				args = args[1:]
			}
			passes := truth
			if len(args) > 0 {
				test, _ := text(args[0])
				f, ok := tests[test]
				if !ok {
					fail("there is no test named %s", quote(test))
				}
				rest := &call{args[1:], c.names, c.named}
				passes = func(item value) bool { return truth(f(ev, item, rest)) }
			}
			next := ev.iter(v)
			return func() (value, bool) {
				for {
					item, ok := next()
					if !ok {
						return nil, false
					}
					if passes(get(item)) != reject {
						return item, true
					}
				}
			}
		})
	}
}

// sliceFilter cuts a sequence into so many columns.
func sliceFilter(ev *evaluator, v value, c *call) value {
	a := c.bind("slice", 1, "slices", "fill_with")
	return ev.generate("sync_do_slice", func() func() (value, bool) {
		all := ev.slice(v).items
		n := wantInt(a[0])
		if n == 0 {
			fail("slice wants a number of slices other than 0")
		}
		each, extra := int64(len(all))/max(n, 1), int64(len(all))%max(n, 1)
		i, at := int64(0), int64(0)
		return func() (value, bool) {
			if i >= n {
				return nil, false
			}
			size := each
			if i < extra {
				size++
			}
			l := ev.newList(int(size) + 1)
			l.items = append(l.items, all[at:at+size]...)
			if i >= extra && a[1] != nil && a[1] != none {
				l.items = append(l.items, a[1])
			}
			at += size
			i++
			return l, true
		}
	})
}
