package grammar

import (
	"encoding/binary"
	"slices"
)

// A frame is a stack of returns: where a called rule goes on, over the frame of
// its caller. There is one of each in an engine.
type frame struct {
	id     uint32
	ret    *local // nil at the bottom
	parent *frame
	depth  int
	after  *state // where a text stands that has just left this frame; nil until asked for
}

// A state is where a text stands: each set of nodes over the stack that it was
// reached with. It does not change but for what it remembers, and there is one
// of each in an engine.
type state struct {
	groups []group
	// complete: the text may end. left: the open bottom has been left, so what
	// follows is not known here (see entry.go).
	complete, left bool
	bounds         uint8  // what is known of the texts that may follow; see slices.go
	age            uint32 // of the engine that it belongs to
	next           []*state
	reach          []reach // what is known of the characters that may follow; see slices.go
}

type group struct {
	at   *frame
	l    *local // its nodes with edges
	full *local // only while a state is built: with calls and ends
}

// noState is where no text stands: the byte is not allowed.
var noState = new(state)

const (
	// maxDepth bounds a stack, maxGroups the stacks of one state. A byte that
	// needs more is not allowed: the language becomes smaller, never larger.
	maxDepth  = 1000
	maxGroups = 256
)

// engine holds what has been met of an automaton's states, and makes them. It
// is used by one goroutine at a time.
type engine struct {
	g      *Grammar
	age    uint32
	serial uint32
	size   int // an estimate of the bytes held

	locals map[string]*local
	frames map[frameKey]*frame
	states map[string]*state
	// bottom is under a whole text. open is under a rule whose callers are left out.
	bottom, open *frame

	// for closure and build
	seen, found, work, seeds []int32
	epoch                    int32
	key                      []byte
	groups                   []group
	path                     []*state // of a walk
}

type frameKey struct {
	ret    *local
	parent *frame
}

func newEngine(g *Grammar) *engine {
	e := &engine{g: g, seen: make([]int32, len(g.nodes))}
	e.flush()
	return e
}

// flush forgets all states. Those that a matcher holds are taken over by adopt.
func (e *engine) flush() {
	for _, s := range e.states {
		s.next, s.reach, s.bounds = nil, nil, boundsUnknown
	}
	for _, f := range e.frames {
		f.after = nil
	}
	e.age++
	e.size = 0
	e.locals = make(map[string]*local)
	e.frames = make(map[frameKey]*frame)
	e.states = make(map[string]*state)
	e.bottom, e.open = e.newFrame(nil, nil), e.newFrame(nil, nil)
}

func (e *engine) newFrame(ret *local, parent *frame) *frame {
	e.serial++
	f := &frame{id: e.serial, ret: ret, parent: parent}
	if parent != nil {
		f.depth = parent.depth + 1
	}
	return f
}

func (e *engine) push(ret *local, parent *frame) *frame {
	key := frameKey{ret, parent}
	f := e.frames[key]
	if f == nil {
		f = e.newFrame(ret, parent)
		e.frames[key] = f
		e.size += 120
	}
	return f
}

// begin is the state before any text.
func (e *engine) begin() *state {
	return e.build(append(e.groups[:0], group{at: e.bottom, full: e.closure([]int32{e.g.start})}))
}

// over is the state of nodes in a frame whose callers are left out.
func (e *engine) over(l *local) *state {
	return e.build(append(e.groups[:0], group{at: e.open, full: l}))
}

// afterFrame is the state in which a text stands that has just left f.
func (e *engine) afterFrame(f *frame) *state {
	if f.after == nil {
		f.after = e.build(append(e.groups[:0], group{at: f.parent, full: f.ret}))
	}
	return f.after
}

// stepState follows a byte of a class.
func (e *engine) stepState(s *state, class uint8) *state {
	if s.next != nil && s.next[class] != nil {
		return s.next[class]
	}
	groups := e.groups[:0]
	for _, g := range s.groups {
		if to := e.step(g.l, class); to != noLocal {
			groups = append(groups, group{at: g.at, full: to})
		}
	}
	to := noState
	if len(groups) > 0 {
		to = e.build(groups)
	}
	if e.full() {
		return to // the walk goes on, without a trace
	}
	if s.next == nil {
		s.next = make([]*state, len(e.g.first))
		e.size += 8 * len(e.g.first)
	}
	s.next[class] = to
	return to
}

// memory is how many bytes of states an engine keeps.
const memory = 32 << 20

func (e *engine) full() bool { return e.size > memory }

// build makes a state of groups, each with all that empty steps reach in its
// frame: frames that may be left are, then rules are entered.
func (e *engine) build(groups []group) *state {
	complete, left := false, false
	add := func(at *frame, l *local) {
		for i := range groups {
			if groups[i].at == at {
				if u := e.union(groups[i].full, l); u != groups[i].full {
					groups[i].full, groups[i].l = u, nil
				}
				return
			}
		}
		if at.depth > maxDepth || len(groups) >= maxGroups {
			return
		}
		groups = append(groups, group{at: at, full: l})
	}
	// The deepest first, as leaving one may add to those below. l marks what is done.
	for {
		deepest := -1
		for i := range groups {
			if groups[i].l == nil && (deepest < 0 || groups[i].at.depth > groups[deepest].at.depth) {
				deepest = i
			}
		}
		if deepest < 0 {
			break
		}
		g := &groups[deepest]
		g.l = noLocal
		if !g.full.end {
			continue
		}
		switch g.at {
		case e.bottom:
			complete = true
		case e.open:
			left = true
		default:
			add(g.at.parent, g.at.ret)
		}
	}
	for i := range groups {
		groups[i].l = nil
	}
	// The shallowest first, as entering a rule may add to those above.
	for {
		lowest := -1
		for i := range groups {
			if groups[i].l == nil && (lowest < 0 || groups[i].at.depth < groups[lowest].at.depth) {
				lowest = i
			}
		}
		if lowest < 0 {
			break
		}
		g := &groups[lowest]
		g.l = noLocal
		at := g.at
		for _, c := range e.callsOf(g.full) {
			add(e.push(c.ret, at), c.start)
		}
	}
	e.groups = groups
	kept := groups[:0]
	for _, g := range groups {
		if g.full.bytes != nil {
			kept = append(kept, group{at: g.at, l: g.full.bytes})
		}
	}
	if len(kept) == 0 && !complete && !left {
		return noState
	}
	slices.SortFunc(kept, func(a, b group) int { return int(int64(a.at.id) - int64(b.at.id)) })
	return e.internState(kept, complete, left)
}

func (e *engine) internState(groups []group, complete, left bool) *state {
	key := e.key[:0]
	for _, g := range groups {
		key = binary.LittleEndian.AppendUint32(key, g.l.id)
		key = binary.LittleEndian.AppendUint32(key, g.at.id)
	}
	if complete {
		key = append(key, 'c')
	}
	if left {
		key = append(key, 'l', 'l')
	}
	e.key = key
	if s := e.states[string(key)]; s != nil {
		return s
	}
	s := &state{groups: slices.Clone(groups), complete: complete, left: left, age: e.age}
	if !e.full() {
		e.states[string(key)] = s
		e.size += 150 + 40*len(groups)
	}
	return s
}

// adopt returns a state of before a flush as one of the engine as it is.
func (e *engine) adopt(s *state) *state {
	if s.age == e.age || s == noState {
		return s
	}
	frames := make(map[*frame]*frame)
	groups := make([]group, 0, len(s.groups))
	for _, g := range s.groups {
		groups = append(groups, group{at: e.adoptFrame(g.at, frames), l: e.bytesOnly(g.l.nodes)})
	}
	slices.SortFunc(groups, func(a, b group) int { return int(int64(a.at.id) - int64(b.at.id)) })
	return e.internState(groups, s.complete, s.left)
}

// adoptFrame recurses as deep as the stack is: maxDepth at most.
func (e *engine) adoptFrame(f *frame, done map[*frame]*frame) *frame {
	if f.ret == nil {
		return e.bottom // a matcher's state has no other
	}
	if to := done[f]; to != nil {
		return to
	}
	to := e.push(e.intern(f.ret.nodes), e.adoptFrame(f.parent, done))
	done[f] = to
	return to
}
