package jinja

import (
	"math/big"
	"strings"
	"unicode/utf8"
)

func runeCount(s string) int { return utf8.RuneCountInString(s) }

// needDefined fails with the message of an undefined value.
func needDefined(values ...value) {
	for _, v := range values {
		if u, ok := v.(*undefined); ok {
			fail("%s", u.says())
		}
	}
}

func (ev *evaluator) binary(op kind, a, b value) value {
	ev.step(1)
	if isNumber(a) && isNumber(b) {
		return ev.arithmetic(op, a, b)
	}
	if s, ok := text(a); ok && op == "%" {
		return ev.percent(a, s, b)
	}
	needDefined(a, b)
	switch op {
	case "+":
		if x, ok := text(a); ok {
			if y, ok := text(b); ok {
				return ev.addText(a, b, x, y)
			}
		}
		x, xList := a.(*list)
		y, yList := b.(*list)
		if xList && yList && x.tuple == y.tuple {
			l := ev.newList(len(x.items) + len(y.items))
			l.tuple = x.tuple
			l.items = append(append(l.items, x.items...), y.items...)
			return l
		}
	case "*":
		if n, ok := clamped(b); ok {
			if v := ev.repeat(a, n); v != nil {
				return v
			}
		}
		if n, ok := clamped(a); ok {
			if v := ev.repeat(b, n); v != nil {
				return v
			}
		}
	}
	fail("%s cannot be used with %s and %s", op, quote(typeName(a)), quote(typeName(b)))
	return nil
}

func (ev *evaluator) addText(a, b value, x, y string) value {
	_, aSafe := a.(markup)
	_, bSafe := b.(markup)
	if aSafe || bSafe {
		x, y = ev.escaped(a), ev.escaped(b)
	}
	ev.text(len(x) + len(y))
	if aSafe || bSafe {
		return markup(x + y)
	}
	return x + y
}

// repeat is a sequence n times; nil for what is no sequence.
func (ev *evaluator) repeat(v value, n int64) value {
	n = max(n, 0)
	switch v := v.(type) {
	case string:
		return ev.repeatText(v, n)
	case markup:
		return markup(ev.repeatText(string(v), n))
	case *list:
		if len(v.items) == 0 {
			n = 0
		}
		ev.times(n, 16*int64(len(v.items)))
		l := ev.newList(int(n) * len(v.items))
		l.tuple = v.tuple
		for range n {
			l.items = append(l.items, v.items...)
		}
		return l
	}
	return nil
}

func (ev *evaluator) repeatText(s string, n int64) string {
	if s == "" || n <= 0 {
		return ""
	}
	ev.times(n, int64(len(s)))
	return strings.Repeat(s, int(n))
}

// equal is Python's ==.
func (ev *evaluator) equal(a, b value, depth int) bool {
	ev.step(1)
	if isNumber(a) && isNumber(b) {
		order, ok := compareNumbers(a, b)
		return ok && order == 0
	}
	if x, ok := text(a); ok {
		y, ok := text(b)
		if ok && len(x) == len(y) {
			ev.scan(len(x))
		}
		return ok && x == y
	}
	switch x := a.(type) {
	case noneType:
		_, ok := b.(noneType)
		return ok
	case *undefined:
		_, ok := b.(*undefined)
		return ok
	case *list:
		y, ok := b.(*list)
		if !ok || x.tuple != y.tuple || len(x.items) != len(y.items) {
			return false
		}
		if x == y {
			return true
		}
		ev.deep(depth)
		for i := range x.items {
			if !ev.equal(x.items[i], y.items[i], depth+1) {
				return false
			}
		}
		return true
	case *dict:
		y, ok := b.(*dict)
		if !ok || len(x.keys) != len(y.keys) {
			return false
		}
		if x == y {
			return true
		}
		ev.deep(depth)
		for i, k := range x.keys {
			other, ok := y.get(ev, k)
			if !ok || !ev.equal(x.values[i], other, depth+1) {
				return false
			}
		}
		return true
	case *rangeValue:
		y, ok := b.(*rangeValue)
		return ok && x.n == y.n && (x.n == 0 || x.start == y.start && (x.n == 1 || x.step == y.step))
	case *view:
		y, ok := b.(*view)
		if !ok || x.what == "values" || y.what != x.what || len(x.of.keys) != len(y.of.keys) {
			return ok && x == y
		}
		for i, k := range x.of.keys {
			other, ok := y.of.get(ev, k)
			if !ok || x.what == "items" && !ev.equal(x.of.values[i], other, depth+1) {
				return false
			}
		}
		return true
	}
	if isNumber(b) {
		return false
	}
	switch b.(type) {
	case string, markup, *list, *dict, noneType, *undefined, *rangeValue, *view:
		return false
	}
	return a == b
}

// order compares two values; ok is false for nan, which has no order.
func (ev *evaluator) order(a, b value, depth int) (int, bool) {
	ev.step(1)
	if isNumber(a) && isNumber(b) {
		return compareNumbers(a, b)
	}
	if x, ok := text(a); ok {
		if y, ok := text(b); ok {
			ev.scan(min(len(x), len(y)))
			return strings.Compare(x, y), true
		}
	}
	x, xList := a.(*list)
	y, yList := b.(*list)
	if xList && yList && x.tuple == y.tuple {
		ev.deep(depth)
		for i := range min(len(x.items), len(y.items)) {
			if !ev.equal(x.items[i], y.items[i], depth+1) {
				return ev.order(x.items[i], y.items[i], depth+1)
			}
		}
		return len(x.items) - len(y.items), true
	}
	needDefined(a, b)
	fail("%s and %s have no order", quote(typeName(a)), quote(typeName(b)))
	return 0, false
}

// less is a < b.
func (ev *evaluator) less(a, b value) bool {
	order, ok := ev.order(a, b, 0)
	return ok && order < 0
}

func (ev *evaluator) compare(op kind, a, b value) bool {
	switch op {
	case "==":
		return ev.equal(a, b, 0)
	case "!=":
		return !ev.equal(a, b, 0)
	case "in":
		return ev.contains(b, a)
	case "not in":
		return !ev.contains(b, a)
	}
	order, ok := ev.order(a, b, 0)
	if !ok {
		return false
	}
	switch op {
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	case ">":
		return order > 0
	}
	return order >= 0
}

// contains is x in all.
func (ev *evaluator) contains(all, x value) bool {
	switch all := all.(type) {
	case string, markup:
		s, _ := text(all)
		part, ok := text(x)
		if !ok {
			fail("only a string can be looked for in a string, not %s", quote(typeName(x)))
		}
		ev.scan(len(s))
		return strings.Contains(s, part)
	case *dict:
		_, ok := all.get(ev, x)
		return ok
	case *view:
		if all.what == "keys" {
			_, ok := all.of.get(ev, x)
			return ok
		}
	case *rangeValue:
		if i, ok := integer(x); ok {
			d := new(big.Int).Sub(i, big.NewInt(all.start))
			q, m := new(big.Int).DivMod(d, big.NewInt(all.step), new(big.Int))
			return m.Sign() == 0 && q.Sign() >= 0 && q.Cmp(big.NewInt(all.n)) < 0
		}
	}
	next, ok := ev.iterate(all)
	if !ok {
		fail("nothing can be in a %s", quote(typeName(all)))
	}
	for item, ok := next(); ok; item, ok = next() {
		if ev.equal(item, x, 0) {
			return true
		}
	}
	return false
}

// item is obj[key] where that is defined; attributes are left to the caller.
func (ev *evaluator) item(obj, key value) (value, bool) {
	switch obj := obj.(type) {
	case *dict:
		if !ev.hashable(key, 0) {
			return nil, false
		}
		return obj.get(ev, key)
	case *list:
		if i, ok := clamped(key); ok {
			if i < 0 {
				i += int64(len(obj.items))
			}
			if i >= 0 && i < int64(len(obj.items)) {
				return obj.items[i], true
			}
		}
	case *rangeValue:
		if i, ok := clamped(key); ok {
			if i < 0 {
				i += obj.n
			}
			if i >= 0 && i < obj.n {
				return obj.at(i), true
			}
		}
	case string:
		if i, ok := clamped(key); ok {
			return ev.runeAt(obj, i)
		}
	case markup:
		if i, ok := clamped(key); ok {
			v, found := ev.runeAt(string(obj), i)
			if found {
				v = markup(v.(string))
			}
			return v, found
		}
	}
	return nil, false
}

// runeAt is the character of a string at an index counted in characters.
func (ev *evaluator) runeAt(s string, i int64) (value, bool) {
	ev.scan(len(s))
	n := int64(runeCount(s))
	if i < 0 {
		i += n
	}
	if i < 0 || i >= n {
		return nil, false
	}
	at := byteAt(s, i, n)
	_, size := utf8.DecodeRuneInString(s[at:])
	return s[at : at+size], true
}

// byteAt is the byte where character i of n begins.
func byteAt(s string, i, n int64) int {
	if n == int64(len(s)) {
		return int(i)
	}
	at := 0
	for range i {
		_, size := utf8.DecodeRuneInString(s[at:])
		at += size
	}
	return at
}

// sliceBounds are Python's of start:stop:step over n items.
func sliceBounds(start, stop, step value, n int64) (from, to, by int64) {
	bound := func(v value, byDefault int64) int64 {
		if v == nil || v == none {
			return byDefault
		}
		i, ok := clamped(v)
		if !ok {
			needDefined(v)
			fail("the bounds of a slice must be integers or none, not %s", quote(typeName(v)))
		}
		if i < 0 {
			i = max(i+n, -1)
			if by > 0 {
				i = max(i, 0)
			}
			return i
		}
		if by < 0 {
			return min(i, n-1)
		}
		return min(i, n)
	}
	by = 1
	if step != nil && step != none {
		by = bound(step, 1)
		by, _ = clamped(step)
	}
	if by == 0 {
		fail("the step of a slice cannot be 0")
	}
	by = max(by, -1<<62)
	if by > 0 {
		return bound(start, 0), bound(stop, n), by
	}
	return bound(start, n-1), bound(stop, -1), by
}

func (ev *evaluator) sliceOf(v, start, stop, step value) value {
	switch v := v.(type) {
	case string:
		return ev.sliceText(v, start, stop, step)
	case markup:
		return markup(ev.sliceText(string(v), start, stop, step))
	case *list:
		from, to, by := sliceBounds(start, stop, step, int64(len(v.items)))
		l := ev.newList(int(sliceCount(from, to, by)))
		l.tuple = v.tuple
		for i, n := from, sliceCount(from, to, by); n > 0; n-- {
			l.items = append(l.items, v.items[i])
			i += by
		}
		return l
	case *rangeValue:
		from, to, by := sliceBounds(start, stop, step, v.n)
		n := sliceCount(from, to, by)
		if n == 0 {
			by = 1
		}
		return &rangeValue{v.at(from), v.at(from) + n*by*v.step, by * v.step, n}
	}
	needDefined(v)
	fail("%s object cannot be sliced", quote(typeName(v)))
	return nil
}

func sliceCount(from, to, by int64) int64 {
	if by > 0 && to > from {
		return (to-from-1)/by + 1
	}
	if by < 0 && from > to {
		return (from-to-1)/-by + 1
	}
	return 0
}

func (ev *evaluator) sliceText(s string, start, stop, step value) string {
	ev.scan(len(s))
	n := int64(runeCount(s))
	from, to, by := sliceBounds(start, stop, step, n)
	count := sliceCount(from, to, by)
	if count == 0 {
		return ""
	}
	if by == 1 {
		ev.step(1)
		at := byteAt(s, from, n)
		return s[at : at+byteAt(s[at:], to-from, n-from)]
	}
	ev.times(1, 4*n)
	all := []rune(s)
	var b strings.Builder
	ev.alloc(4 * count)
	for i := from; count > 0; count-- {
		b.WriteRune(all[i])
		i += by
	}
	return b.String()
}
