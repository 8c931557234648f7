package jinja

import "time"

// evaluator runs one rendering.
type evaluator struct {
	budget
	vars *dict
	now  func() time.Time
	line int
	out  *buffer
}

// buffer collects text.
type buffer struct {
	text []byte
	max  int64
}

// write adds text to what is rendered or captured.
func (ev *evaluator) write(s string) {
	b := ev.out
	if b.max > 0 && int64(len(b.text)+len(s)) > b.max {
		fail("the rendered text has more than %d bytes", b.max)
	}
	// A buffer that grows is copied, so each byte is paid twice.
	ev.alloc(2 * int64(len(s)))
	b.text = append(b.text, s...)
}

// capture runs f and returns what it wrote.
func (ev *evaluator) capture(f func()) string {
	outer := ev.out
	ev.out = &buffer{}
	f()
	s := ev.out.text
	ev.out = outer
	ev.text(len(s))
	return string(s)
}

// scope holds the variables of one scope while it is run.
type scope struct {
	layout *layout
	parent *scope
	slots  []value
}

// open makes the scope of a layout and gives its variables their beginnings.
func (ev *evaluator) open(l *layout, parent *scope) *scope {
	ev.alloc(64 + 16*int64(len(l.loads)))
	s := &scope{l, parent, make([]value, len(l.loads))}
	ev.begin(s)
	return s
}

func (ev *evaluator) begin(s *scope) {
	for i := range s.layout.loads {
		switch how := &s.layout.loads[i]; how.how {
		case loadResolve:
			s.slots[i] = ev.resolve(how.name)
		case loadAlias:
			s.slots[i] = *s.place(how.outer)
		case loadUndefined:
			s.slots[i] = nil
		}
	}
	ev.step(int64(len(s.slots)))
}

// place is where a slot's value is.
func (s *scope) place(at slot) *value {
	for s.layout.level > at.level {
		s = s.parent
	}
	return &s.slots[at.index]
}

// resolve finds a variable of the rendering or a global function.
func (ev *evaluator) resolve(name string) value {
	if v, ok := ev.vars.str(name); ok {
		return v
	}
	if f, ok := globals[name]; ok {
		return f
	}
	return nil
}

// control says how a body ended.
type control int

const (
	proceed control = iota
	broken
	continued
)

func (ev *evaluator) run(body []stmt, s *scope) control {
	for _, st := range body {
		if c := ev.exec(st, s); c != proceed {
			return c
		}
	}
	return proceed
}

func (ev *evaluator) exec(st stmt, s *scope) control {
	ev.step(1)
	switch st := st.(type) {
	case *textStmt:
		ev.write(st.text)
		return proceed
	case *outputStmt:
		ev.line = st.line
		ev.write(ev.str(ev.eval(st.of, s)))
		return proceed
	}
	ev.enter()
	defer func() { ev.frames-- }()
	ev.line = st.at().line
	switch st := st.(type) {
	case *ifStmt:
		for i, test := range st.tests {
			if truth(ev.eval(test, s)) {
				return ev.run(st.bodies[i], s)
			}
		}
		return ev.run(st.otherwise, s)
	case *forStmt:
		return ev.forLoop(st, s)
	case *setStmt:
		ev.assign(st.target, ev.eval(st.of, s), s)
	case *setBlockStmt:
		inner := ev.open(st.scope, s)
		var c control
		var v value = ev.capture(func() { c = ev.run(st.body, inner) })
		if c != proceed {
			return c
		}
		if st.filter != nil {
			v = ev.filterText(st.filter, v, inner)
		}
		ev.assign(st.target, v, s)
	case *withStmt:
		inner := ev.open(st.scope, s)
		for i, target := range st.targets {
			ev.assign(target, ev.eval(st.values[i], s), inner)
		}
		return ev.run(st.body, inner)
	case *macroStmt:
		*s.place(st.target.slot) = ev.macro(st, s)
	case *callBlockStmt:
		ev.alloc(128)
		caller := ev.macro(st.macro, s)
		ev.write(wantText(ev.callExpr(st.call, s, caller)))
	case *generationStmt:
		ev.write(ev.callMacro(ev.macro(st.macro, s), &call{}).(string))
	case *filterStmt:
		inner := ev.open(st.scope, s)
		var c control
		text := ev.capture(func() { c = ev.run(st.body, inner) })
		if c != proceed {
			return c
		}
		ev.write(wantText(ev.filterText(st.filter, text, inner)))
	case *breakStmt:
		return broken
	case *continueStmt:
		return continued
	}
	return proceed
}

// assign is target = v.
func (ev *evaluator) assign(target expr, v value, s *scope) {
	switch t := target.(type) {
	case *nameExpr:
		*s.place(t.slot) = v
	case *seqExpr:
		next := ev.iter(v)
		for _, item := range t.items {
			x, ok := next()
			if !ok {
				fail("there are fewer values than the %d names to be set", len(t.items))
			}
			ev.assign(item, x, s)
		}
		if _, more := next(); more {
			fail("there are more values than the %d names to be set", len(t.items))
		}
	case *nsTarget:
		ns, ok := (*s.place(t.ns.slot)).(*namespace)
		if !ok {
			fail("%s is no namespace: its attributes cannot be set", quote(t.ns.name))
		}
		ns.attrs.set(ev, t.attr, v)
	}
}

// loopValue is the variable loop of a for statement.
type loopValue struct {
	ev         *evaluator
	st         *forStmt
	outer      *scope
	sized      value // what is iterated, if it knows its length
	next       func() (value, bool)
	ahead      []value // taken from next before their time
	index0     int64
	depth      int64
	count      int64 // of all items, or -1
	previous   value
	current    value
	hasChanged bool
	changed    value
}

func (l *loopValue) take() (value, bool) {
	if len(l.ahead) > 0 {
		v := l.ahead[0]
		l.ahead = l.ahead[1:]
		return v, true
	}
	return l.next()
}

func (l *loopValue) peek() (value, bool) {
	if len(l.ahead) == 0 {
		v, ok := l.next()
		if !ok {
			return nil, false
		}
		l.ahead = append(l.ahead, v)
	}
	return l.ahead[0], true
}

func (l *loopValue) length() int64 {
	if l.count < 0 {
		if n, ok := l.ev.length(l.sized); ok {
			l.count = n
			return n
		}
		for v, ok := l.next(); ok; v, ok = l.next() {
			l.ev.alloc(32)
			l.ahead = append(l.ahead, v)
		}
		l.count = l.index0 + 1 + int64(len(l.ahead))
	}
	return l.count
}

func (ev *evaluator) forLoop(st *forStmt, s *scope) control {
	iter := ev.eval(st.iter, s)
	if !st.recursive {
		return ev.loop(st, s, iter, 0)
	}
	ev.write(ev.recurse(st, s, iter, 0))
	return proceed
}

// recurse runs a recursive loop as the function that it is.
func (ev *evaluator) recurse(st *forStmt, s *scope, iter value, depth int64) string {
	ev.called("a loop")
	defer func() { ev.calls-- }()
	return ev.capture(func() { ev.loop(st, s, iter, depth) })
}

func (ev *evaluator) called(what string) {
	ev.calls++
	if ev.calls > maxCalls {
		fail("macros and recursive loops are nested more than %d deep at %s", maxCalls, what)
	}
}

func (ev *evaluator) loop(st *forStmt, s *scope, iter value, depth int64) control {
	next := ev.iter(iter)
	if st.test != nil {
		test := ev.open(st.testScope, s)
		all := next
		next = func() (value, bool) {
			for {
				v, ok := all()
				if !ok {
					return nil, false
				}
				ev.assign(st.testTarget, v, test)
				if truth(ev.eval(st.test, test)) {
					return v, true
				}
			}
		}
		iter = &generator{}
	}
	body := ev.open(st.bodyScope, s)
	var l *loopValue
	if st.usesLoop {
		ev.alloc(256)
		l = &loopValue{ev: ev, st: st, outer: s, sized: iter, next: next, index0: -1, depth: depth, count: -1}
		next = l.take
	}
	ran := false
	for {
		v, ok := next()
		if !ok {
			break
		}
		ev.step(1)
		if ran {
			ev.begin(body)
		}
		ran = true
		if l != nil {
			l.index0++
			l.previous, l.current = l.current, v
			*body.place(st.loop) = l
		}
		ev.assign(st.target, v, body)
		if ev.run(st.body, body) == broken {
			break
		}
		ev.line = st.line
	}
	if ran || !st.hasElse {
		return proceed
	}
	return ev.run(st.otherwise, ev.open(st.elseScope, s))
}

// macro is a macro with the scope where it was defined.
type macro struct {
	st    *macroStmt
	outer *scope
	line  int
}

func (ev *evaluator) macro(st *macroStmt, s *scope) *macro {
	ev.alloc(64)
	return &macro{st, s, st.line}
}

// callMacro binds the arguments as jinja2.runtime.Macro does, and renders.
func (ev *evaluator) callMacro(m *macro, c *call) value {
	ev.called(quote(m.st.name))
	line := ev.line
	defer func() { ev.calls--; ev.line = line }()
	st := m.st
	s := ev.open(st.scope, m.outer)
	used := make([]bool, len(c.names))
	named := func(name string) value {
		for i, n := range c.names {
			if n == name && !used[i] {
				used[i] = true
				return c.named[i]
			}
		}
		return nil
	}
	foundCaller := len(c.pos) >= len(st.params) && st.explicitCaller
	for i, p := range st.params {
		var v value
		if i < len(c.pos) {
			v = c.pos[i]
		} else {
			v = named(p.name)
			foundCaller = foundCaller || p.name == "caller"
		}
		s.slots[p.slot.index] = v
	}
	if st.usesCaller && !foundCaller {
		caller := named("caller")
		if caller == nil || caller == none {
			caller = undef("no caller is defined")
		}
		s.slots[st.callerSlot.index] = caller
	}
	rest := &dict{}
	for i, name := range c.names {
		if used[i] {
			continue
		}
		if !st.usesKW {
			fail("macro %s takes no argument named %s", quote(st.name), quote(name))
		}
		rest.set(ev, name, c.named[i])
	}
	if st.usesKW {
		s.slots[st.kwSlot.index] = rest
	}
	if st.usesVar {
		s.slots[st.varargSlot.index] = ev.tupleOf(c.pos[min(len(st.params), len(c.pos)):]...)
	} else if len(c.pos) > len(st.params) {
		fail("macro %s takes not more than %d arguments", quote(st.name), len(st.params))
	}
	return ev.capture(func() {
		for i, p := range st.params {
			if s.slots[p.slot.index] != nil {
				continue
			}
			if d := i - (len(st.params) - len(st.defaults)); d >= 0 {
				s.slots[p.slot.index] = ev.eval(st.defaults[d], s)
			} else {
				s.slots[p.slot.index] = undef("parameter %s was not provided", quote(p.name))
			}
		}
		ev.run(st.body, s)
	})
}
