package jinja

import "slices"

// Where a name's value lies is known when a template is compiled, by Jinja2's
// own rules (jinja2/idtracking.py): each loop body, macro and block has a
// scope, a name that a scope sets is its own in the whole of it, and begins as
// the value outside or, where only some branches set it, as the variable.

// slot is a place: a variable of the scope so many levels out.
type slot struct{ level, index int }

// load says how a slot begins when its scope is entered.
type load struct {
	how   int
	name  string // for loadResolve
	outer slot   // for loadAlias
}

const (
	loadParameter = iota // set by whoever enters
	loadResolve          // a variable of the rendering, or a global function
	loadAlias            // the variable of a scope outside
	loadUndefined
)

// layout is a scope when compiled.
type layout struct {
	parent *layout
	level  int
	refs   map[string]int // names that are known so far
	slots  map[string]int // slots of all names ever known
	loads  []load
	stores map[string]bool
	// What was added since, in order: undone for the next branch of an if.
	newRefs, newStores []string
}

func newLayout(parent *layout) *layout {
	l := &layout{parent: parent, refs: make(map[string]int), slots: make(map[string]int), stores: make(map[string]bool)}
	if parent != nil {
		l.level = parent.level + 1
	}
	return l
}

// find returns where a name's value is.
func (l *layout) find(name string) (slot, bool) {
	for ; l != nil; l = l.parent {
		if i, ok := l.refs[name]; ok {
			return slot{l.level, i}, true
		}
	}
	return slot{}, false
}

func (l *layout) define(name string, how load) slot {
	i, ok := l.slots[name]
	if !ok {
		i = len(l.loads)
		l.slots[name] = i
		l.loads = append(l.loads, load{})
	}
	l.loads[i] = how
	if _, known := l.refs[name]; !known {
		l.refs[name] = i
		l.newRefs = append(l.newRefs, name)
	}
	return slot{l.level, i}
}

func (l *layout) stored(name string) {
	if !l.stores[name] {
		l.stores[name] = true
		l.newStores = append(l.newStores, name)
	}
}

func (l *layout) load(name string) {
	if _, ok := l.find(name); !ok {
		l.define(name, load{how: loadResolve, name: name})
	}
}

func (l *layout) store(name string) {
	l.stored(name)
	if _, ok := l.refs[name]; ok {
		return
	}
	if outer, ok := l.parent.find(name); ok {
		l.define(name, load{how: loadAlias, outer: outer})
		return
	}
	l.define(name, load{how: loadUndefined})
}

func (l *layout) parameter(name string) slot {
	l.stored(name)
	return l.define(name, load{how: loadParameter})
}

// branches runs the three branches that an if has to Jinja2 (what is behind
// if, elif and else), each as if the others were not there, and joins them.
func (l *layout) branches(visit [3]func()) {
	refsBefore, storesBefore := l.newRefs, l.newStores
	count := make(map[string]int)
	var order, refs []string
	for _, f := range visit {
		l.newRefs, l.newStores = nil, nil
		f()
		for _, name := range l.newStores {
			if count[name] == 0 {
				order = append(order, name)
			}
			count[name]++
			delete(l.stores, name)
		}
		for _, name := range l.newRefs {
			refs = append(refs, name)
			delete(l.refs, name)
		}
	}
	l.newRefs, l.newStores = refsBefore, storesBefore
	for _, name := range refs {
		if _, ok := l.refs[name]; !ok {
			l.refs[name] = l.slots[name]
			l.newRefs = append(l.newRefs, name)
		}
	}
	for _, name := range order {
		l.stored(name)
		if count[name] == len(visit) {
			continue
		}
		i := l.refs[name]
		if outer, ok := l.parent.find(name); ok {
			l.loads[i] = load{how: loadAlias, outer: outer}
		} else {
			l.loads[i] = load{how: loadResolve, name: name}
		}
	}
}

// resolver gives names their slots.
type resolver struct {
	scope *layout
	soft  bool // in a branch that may not be taken
}

// resolve finds the place of every name of a template.
func resolve(body []stmt) *layout {
	r := &resolver{scope: newLayout(nil)}
	r.scanAll(body)
	r.bindAll(body)
	return r.scope
}

// Scanning collects the names of one scope, without looking into the scopes
// within it.

func (r *resolver) scanAll(body []stmt) {
	for _, s := range body {
		r.scan(s)
	}
}

func (r *resolver) scan(s stmt) {
	switch s := s.(type) {
	case *outputStmt:
		r.scanExpr(s.of)
	case *ifStmt:
		r.scanExpr(s.tests[0])
		r.scope.branches([3]func(){
			func() { r.scanAll(s.bodies[0]) },
			func() { r.scanElif(s, 1) },
			func() { r.scanAll(s.otherwise) },
		})
	case *forStmt:
		r.scanExpr(s.iter)
	case *setStmt:
		r.scanExpr(s.of)
		r.scanTarget(s.target, false)
	case *setBlockStmt:
		r.scanTarget(s.target, false)
	case *withStmt:
		for _, v := range s.values {
			r.scanExpr(v)
		}
	case *macroStmt:
		r.scope.store(s.name)
	case *callBlockStmt:
		r.scanExpr(s.call)
	case *filterStmt:
		r.scanExpr(s.filter)
	}
}

// scanElif scans the elifs, which Jinja2 holds for ifs of their own, one
// behind the other in one branch.
func (r *resolver) scanElif(s *ifStmt, from int) {
	for i := from; i < len(s.tests); i++ {
		r.scanExpr(s.tests[i])
		r.scope.branches([3]func(){func() { r.scanAll(s.bodies[i]) }, func() {}, func() {}})
	}
}

func (r *resolver) scanTarget(e expr, param bool) {
	switch e := e.(type) {
	case *nameExpr:
		if param {
			r.scope.parameter(e.name)
		} else {
			r.scope.store(e.name)
		}
	case *seqExpr:
		for _, item := range e.items {
			r.scanTarget(item, param)
		}
	case *nsTarget:
		r.scope.load(e.ns.name)
	}
}

func (r *resolver) scanExpr(e expr) {
	walk(e, func(n *nameExpr) { r.scope.load(n.name) })
}

// walk calls f for each name that is read in an expression.
func walk(e expr, f func(*nameExpr)) {
	each(e, func(e expr) {
		if n, ok := e.(*nameExpr); ok {
			f(n)
		}
	})
}

// each calls f for an expression and all within it, in order.
func each(e expr, f func(expr)) {
	f(e)
	children(e, func(child expr) { each(child, f) })
}

// children calls f for the expressions directly within one.
func children(e expr, f func(expr)) {
	some := func(list ...expr) {
		for _, x := range list {
			if x != nil {
				f(x)
			}
		}
	}
	args := func(a *arguments) {
		some(a.pos...)
		some(a.named...)
		some(a.rest, a.restNamed)
	}
	switch e := e.(type) {
	case *seqExpr:
		some(e.items...)
	case *dictExpr:
		for i := range e.keys {
			some(e.keys[i], e.values[i])
		}
	case *attrExpr:
		some(e.of)
	case *itemExpr:
		some(e.of, e.arg)
	case *sliceExpr:
		some(e.start, e.stop, e.step)
	case *callExpr:
		some(e.fn)
		args(&e.args)
	case *filterExpr:
		some(e.of)
		args(&e.args)
	case *testExpr:
		some(e.of)
		args(&e.args)
	case *unaryExpr:
		some(e.of)
	case *binaryExpr:
		some(e.left, e.right)
	case *compareExpr:
		some(e.first)
		some(e.rest...)
	case *concatExpr:
		some(e.parts...)
	case *condExpr:
		some(e.test, e.then, e.otherwise)
	}
}

// Binding writes the slots into the names, scope by scope.

func (r *resolver) bindAll(body []stmt) {
	for _, s := range body {
		r.bind(s)
	}
}

// inner binds what lies in a scope of its own.
func (r *resolver) inner(scan, bind func()) *layout {
	outer, soft := r.scope, r.soft
	r.scope, r.soft = newLayout(outer), false
	scan()
	bind()
	made := r.scope
	r.scope, r.soft = outer, soft
	return made
}

func (r *resolver) bind(s stmt) {
	switch s := s.(type) {
	case *outputStmt:
		r.bindExpr(s.of)
	case *ifStmt:
		soft := r.soft
		r.soft = true
		for i := range s.tests {
			r.bindExpr(s.tests[i])
			r.bindAll(s.bodies[i])
		}
		r.bindAll(s.otherwise)
		r.soft = soft
	case *forStmt:
		r.bindFor(s)
	case *setStmt:
		r.bindTarget(s.target)
		r.bindExpr(s.of)
	case *setBlockStmt:
		s.scope = r.inner(func() { r.scanAll(s.body) }, func() {
			r.bindAll(s.body)
			if s.filter != nil {
				r.scanExpr(s.filter)
				r.bindExpr(s.filter)
			}
		})
		r.bindTarget(s.target)
	case *withStmt:
		for _, v := range s.values {
			r.bindExpr(v)
		}
		s.scope = r.inner(func() {
			for _, t := range s.targets {
				r.scanTarget(t, true)
			}
			r.scanAll(s.body)
		}, func() {
			for _, t := range s.targets {
				r.bindTarget(t)
			}
			r.bindAll(s.body)
		})
	case *macroStmt:
		r.bindMacro(s)
		r.bindTarget(s.target)
	case *callBlockStmt:
		r.bindMacro(s.macro)
		r.bindExpr(s.call)
	case *generationStmt:
		r.bindMacro(s.macro)
	case *filterStmt:
		s.scope = r.inner(func() {
			r.scanAll(s.body)
			r.scanExpr(s.filter)
		}, func() {
			r.bindAll(s.body)
			r.bindExpr(s.filter)
		})
	}
}

func (r *resolver) bindFor(s *forStmt) {
	r.bindExpr(s.iter)
	if s.test != nil {
		s.testTarget = copyTarget(s.target)
		s.testScope = r.inner(func() {
			r.scanTarget(s.testTarget, true)
			r.scanExpr(s.test)
		}, func() {
			r.bindTarget(s.testTarget)
			r.bindExpr(s.test)
		})
	}
	s.bodyScope = r.inner(func() {
		if s.usesLoop {
			s.loop = r.scope.parameter("loop")
		}
		r.scanTarget(s.target, true)
		r.scanAll(s.body)
	}, func() {
		r.bindTarget(s.target)
		r.bindAll(s.body)
	})
	if s.hasElse {
		s.elseScope = r.inner(func() { r.scanAll(s.otherwise) }, func() { r.bindAll(s.otherwise) })
	}
}

func copyTarget(e expr) expr {
	switch e := e.(type) {
	case *nameExpr:
		c := *e
		return &c
	case *seqExpr:
		c := *e
		c.items = slices.Clone(e.items)
		for i := range c.items {
			c.items[i] = copyTarget(c.items[i])
		}
		return &c
	}
	return e
}

func (r *resolver) bindMacro(s *macroStmt) {
	s.scope = r.inner(func() {
		for _, p := range s.params {
			r.scope.parameter(p.name)
		}
		if s.usesCaller && !s.explicitCaller {
			s.callerSlot = r.scope.parameter("caller")
		}
		if s.usesKW {
			s.kwSlot = r.scope.parameter("kwargs")
		}
		if s.usesVar {
			s.varargSlot = r.scope.parameter("varargs")
		}
		for _, d := range s.defaults {
			r.scanExpr(d)
		}
		r.scanAll(s.body)
	}, func() {
		for _, p := range s.params {
			r.bindTarget(p)
		}
		for _, d := range s.defaults {
			r.bindExpr(d)
		}
		r.bindAll(s.body)
	})
}

func (r *resolver) bindTarget(e expr) {
	switch e := e.(type) {
	case *nameExpr:
		e.slot, _ = r.scope.find(e.name)
	case *seqExpr:
		for _, item := range e.items {
			r.bindTarget(item)
		}
	case *nsTarget:
		e.ns.slot, _ = r.scope.find(e.ns.name)
	}
}

func (r *resolver) bindExpr(e expr) {
	each(e, func(e expr) {
		switch e := e.(type) {
		case *nameExpr:
			e.slot, _ = r.scope.find(e.name)
		}
	})
	r.known(e, r.soft)
}

// known refuses filters and tests that do not exist; in a branch that may not
// be taken they fail only when they are run, as in Jinja2.
func (r *resolver) known(e expr, soft bool) {
	if e == nil || soft {
		return
	}
	switch e := e.(type) {
	case *condExpr:
		return
	case *filterExpr:
		if e.fn == nil {
			panic(&failure{errorf("there is no filter named %s", quote(e.name)), e.line})
		}
	case *testExpr:
		if e.fn == nil {
			panic(&failure{errorf("there is no test named %s", quote(e.name)), e.line})
		}
	}
	children(e, func(child expr) { r.known(child, soft) })
}
