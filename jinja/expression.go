package jinja

import "strings"

// eval is the value of an expression.
func (ev *evaluator) eval(e expr, s *scope) value {
	ev.step(1)
	switch e := e.(type) {
	case *constExpr:
		return e.v
	case *nameExpr:
		if v := *s.place(e.slot); v != nil {
			return v
		}
		ev.alloc(64)
		return &undefined{message: quote(e.name) + " is undefined"}
	}
	ev.enter()
	v := ev.compound(e, s)
	ev.frames--
	return v
}

func (ev *evaluator) compound(e expr, s *scope) value {
	switch e := e.(type) {
	case *seqExpr:
		l := ev.newList(len(e.items))
		l.tuple = e.tuple
		for _, item := range e.items {
			l.items = append(l.items, ev.eval(item, s))
		}
		return l
	case *dictExpr:
		ev.alloc(64)
		d := &dict{}
		for i, key := range e.keys {
			k := ev.eval(key, s)
			d.set(ev, k, ev.eval(e.values[i], s))
		}
		return d
	case *attrExpr:
		return ev.attribute(ev.eval(e.of, s), e.name)
	case *itemExpr:
		return ev.subscript(e, s)
	case *callExpr:
		return ev.callExpr(e, s, nil)
	case *filterExpr:
		var of value
		if e.of != nil {
			of = ev.eval(e.of, s)
		}
		return ev.applyFilter(e, of, s)
	case *testExpr:
		of := ev.eval(e.of, s)
		if e.fn == nil {
			fail("there is no test named %s", quote(e.name))
		}
		c := ev.arguments(&e.args, s)
		ev.line = e.line
		return e.fn(ev, of, c)
	case *unaryExpr:
		return ev.unary(e.op, ev.eval(e.of, s))
	case *binaryExpr:
		left := ev.eval(e.left, s)
		switch {
		case e.op == "and" && !truth(left), e.op == "or" && truth(left):
			return left
		case e.op == "and", e.op == "or":
			return ev.eval(e.right, s)
		}
		right := ev.eval(e.right, s)
		ev.line = e.line
		return ev.binary(e.op, left, right)
	case *compareExpr:
		left := ev.eval(e.first, s)
		for i, op := range e.ops {
			right := ev.eval(e.rest[i], s)
			if !ev.compare(op, left, right) {
				return false
			}
			left = right
		}
		return true
	case *concatExpr:
		var b strings.Builder
		for _, part := range e.parts {
			t := ev.str(ev.eval(part, s))
			ev.text(len(t))
			b.WriteString(t)
		}
		ev.alloc(int64(b.Len()))
		return b.String()
	case *condExpr:
		if truth(ev.eval(e.test, s)) {
			return ev.eval(e.then, s)
		}
		if e.otherwise == nil {
			return undef("the inline if on line %d was false and has no else", e.line)
		}
		return ev.eval(e.otherwise, s)
	}
	fail("internal error: expression %T", e)
	return nil
}

func (ev *evaluator) unary(op kind, v value) value {
	if op == "not" {
		return !truth(v)
	}
	if !isNumber(v) {
		wrongType(v, "a number behind "+string(op))
	}
	if op == "-" {
		if f, ok := v.(float64); ok {
			return -f
		}
		return ev.arithmetic("-", int64(0), v)
	}
	if b, ok := v.(bool); ok {
		return ev.arithmetic("+", int64(0), b)
	}
	return v
}

func (ev *evaluator) subscript(e *itemExpr, s *scope) value {
	of := ev.eval(e.of, s)
	if sl, ok := e.arg.(*sliceExpr); ok {
		var parts [3]value
		for i, part := range []expr{sl.start, sl.stop, sl.step} {
			if part != nil {
				parts[i] = ev.eval(part, s)
			}
		}
		return ev.sliceOf(of, parts[0], parts[1], parts[2])
	}
	return ev.getItem(of, ev.eval(e.arg, s))
}

// getItem is obj[key] as templates see it: an attribute where there is no such
// key, undefined where there is neither.
func (ev *evaluator) getItem(obj, key value) value {
	needDefined(obj)
	if v, ok := ev.item(obj, key); ok {
		return v
	}
	if name, ok := text(key); ok {
		if v, ok := ev.named(obj, name); ok {
			return v
		}
		return ev.noAttribute(obj, name)
	}
	ev.alloc(128)
	return undef("%s object has no element %s", quote(typeName(obj)), ev.shown(key))
}

// attribute is obj.name: Python's attributes go before a dictionary's keys.
func (ev *evaluator) attribute(obj value, name string) value {
	if u, ok := obj.(*undefined); ok {
		if commonDunders[name] {
			return ev.noAttribute(obj, name)
		}
		fail("%s", u.says())
	}
	if v, ok := ev.named(obj, name); ok {
		return v
	}
	if d, ok := obj.(*dict); ok {
		if v, ok := d.str(name); ok {
			return v
		}
	}
	return ev.noAttribute(obj, name)
}

// commonDunders are attributes that even an undefined value has in Python, of
// which the sandbox makes undefined values.
var commonDunders = map[string]bool{"__class__": true, "__doc__": true, "__init__": true, "__module__": true, "__eq__": true, "__str__": true, "__repr__": true, "__hash__": true, "__len__": true, "__iter__": true, "__slots__": true}

func (ev *evaluator) noAttribute(obj value, name string) value {
	ev.alloc(48)
	return &undefined{object: typeName(obj), missing: name}
}

// shown is a short repr for errors.
func (ev *evaluator) shown(v value) string {
	switch v := v.(type) {
	case *list, *dict, *namespace, *view:
		return typeName(v)
	}
	s := ev.repr(v)
	if len(s) > 60 {
		s = s[:60] + "…"
	}
	return oneLine(s)
}

// arguments evaluates those of a call.
func (ev *evaluator) arguments(a *arguments, s *scope) *call {
	n := len(a.pos) + 2*len(a.named)
	ev.alloc(64 + 16*int64(n))
	c := &call{}
	if len(a.pos) > 0 {
		c.pos = make([]value, len(a.pos))
		for i, e := range a.pos {
			c.pos[i] = ev.eval(e, s)
		}
	}
	if len(a.named) > 0 {
		c.names = a.names[:len(a.names):len(a.names)]
		c.named = make([]value, len(a.named))
		for i, e := range a.named {
			c.named[i] = ev.eval(e, s)
		}
	}
	if a.rest != nil {
		next := ev.iter(ev.eval(a.rest, s))
		for v, ok := next(); ok; v, ok = next() {
			ev.alloc(32)
			c.pos = append(c.pos, v)
		}
	}
	if a.restNamed != nil {
		d, ok := ev.eval(a.restNamed, s).(*dict)
		if !ok {
			fail("what follows ** must be a dictionary")
		}
		for i, key := range d.keys {
			name, ok := text(key)
			if !ok {
				fail("the keys of what follows ** must be strings")
			}
			for _, other := range c.names {
				ev.step(1)
				if other == name {
					fail("argument %s is given twice", quote(name))
				}
			}
			ev.alloc(64)
			c.names, c.named = append(c.names, name), append(c.named, d.values[i])
		}
	}
	return c
}

func (ev *evaluator) callExpr(e *callExpr, s *scope, caller *macro) value {
	fn := ev.eval(e.fn, s)
	c := ev.arguments(&e.args, s)
	if caller != nil {
		for _, name := range c.names {
			if name == "caller" {
				fail("a call block gives the argument caller itself")
			}
		}
		c.names, c.named = append(c.names, "caller"), append(c.named, caller)
	}
	ev.line = e.line
	return ev.call(fn, c)
}

// call calls what can be called.
func (ev *evaluator) call(fn value, c *call) value {
	ev.enter()
	defer func() { ev.frames-- }()
	switch fn := fn.(type) {
	case *macro:
		return ev.callMacro(fn, c)
	case *function:
		return fn.call(ev, c)
	case *joiner:
		c.bind("joiner", 0)
		if fn.used {
			return fn.sep
		}
		fn.used = true
		return ""
	case *loopValue:
		if !fn.st.recursive {
			fail("the loop must be marked as recursive to be called")
		}
		a := c.bind("loop", 1, "iterable")
		return ev.recurse(fn.st, fn.outer, a[0], fn.depth+1)
	}
	needDefined(fn)
	fail("%s object is not callable", quote(typeName(fn)))
	return nil
}

func (ev *evaluator) applyFilter(e *filterExpr, of value, s *scope) value {
	if e.fn == nil {
		fail("there is no filter named %s", quote(e.name))
	}
	c := ev.arguments(&e.args, s)
	ev.line = e.line
	return e.fn(ev, of, c)
}

// filterText applies the filters of a block to its text.
func (ev *evaluator) filterText(e expr, text value, s *scope) value {
	f, ok := e.(*filterExpr)
	if !ok {
		return text
	}
	ev.enter()
	defer func() { ev.frames-- }()
	return ev.applyFilter(f, ev.filterText(f.of, text, s), s)
}

// bind puts arguments into the order of a function's parameters, nil where one
// is missing; the first of them are required.
func (c *call) bind(name string, required int, params ...string) []value {
	if len(c.pos) > len(params) {
		fail("%s takes at most %d arguments, not %d", name, len(params), len(c.pos))
	}
	all := make([]value, len(params))
	copy(all, c.pos)
next:
	for i, n := range c.names {
		for j, p := range params {
			if n != p {
				continue
			}
			if all[j] != nil {
				fail("%s got argument %s twice", name, quote(n))
			}
			all[j] = c.named[i]
			continue next
		}
		fail("%s has no argument named %s", name, quote(n))
	}
	for i := range required {
		if all[i] == nil {
			fail("%s wants argument %s", name, quote(params[i]))
		}
	}
	return all
}
