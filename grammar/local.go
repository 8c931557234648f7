package grammar

import (
	"encoding/binary"
	"slices"
)

// A local is a set of nodes that one text may have led to in one frame of the
// stack, empty steps followed. There is one of each in an engine, so that sets
// are compared by pointer.
type local struct {
	id    uint32
	nodes []int32 // sorted: those with edges, with calls, and ends
	// end: the frame may be left here. bytes is the set of the nodes with edges
	// alone; nil where there are none.
	end       bool
	bytes     *local
	calls     []call
	canonical *local   // see segments.go; nil until asked for
	next      []*local // by class, as they are met; noLocal: no way on
}

// A call is a rule that is entered, with where it goes on: calls of one rule
// from one frame share the frame that they make, so that alternatives which
// differ only behind it cost nothing.
type call struct {
	start *local
	ret   *local
}

var noLocal = new(local)

// closure is the set of a few nodes and of what empty steps reach from them.
func (e *engine) closure(seeds []int32) *local {
	e.epoch++
	e.found = e.found[:0]
	e.work = append(e.work[:0], seeds...)
	for len(e.work) > 0 {
		i := e.work[len(e.work)-1]
		e.work = e.work[:len(e.work)-1]
		if e.seen[i] == e.epoch {
			continue
		}
		e.seen[i] = e.epoch
		n := &e.g.nodes[i]
		if len(n.edges) > 0 || n.rule >= 0 || n.end {
			e.found = append(e.found, i)
		}
		e.work = append(e.work, n.eps...)
	}
	if len(e.found) == 0 {
		return noLocal
	}
	slices.Sort(e.found)
	return e.intern(e.found)
}

// union is the set of the nodes of both.
func (e *engine) union(a, b *local) *local {
	if a == b || b == nil {
		return a
	}
	if a == nil {
		return b
	}
	all := append(slices.Clone(a.nodes), b.nodes...)
	slices.Sort(all)
	return e.intern(slices.Compact(all))
}

// intern returns the set of these nodes, which are sorted and their own closure.
func (e *engine) intern(nodes []int32) *local {
	key := e.key[:0]
	for _, n := range nodes {
		key = binary.LittleEndian.AppendUint32(key, uint32(n))
	}
	e.key = key
	if l := e.locals[string(key)]; l != nil {
		return l
	}
	e.serial++
	l := &local{id: e.serial, nodes: slices.Clone(nodes)}
	e.locals[string(key)] = l
	e.size += 120 + 8*len(nodes)
	var bytes []int32
	for _, i := range l.nodes {
		n := &e.g.nodes[i]
		l.end = l.end || n.end
		if len(n.edges) > 0 {
			bytes = append(bytes, i)
		}
	}
	switch {
	case len(bytes) == len(l.nodes) && !e.more(l.nodes):
		l.bytes = l
	case len(bytes) > 0:
		l.bytes = e.bytesOnly(bytes)
	}
	return l
}

// more reports whether a node is more than a place with edges.
func (e *engine) more(nodes []int32) bool {
	return slices.ContainsFunc(nodes, func(i int32) bool { return e.g.nodes[i].rule >= 0 || e.g.nodes[i].end })
}

// bytesOnly is a set whose calls and ends have been dealt with: its key has a
// mark, if a node of it is also one of those.
func (e *engine) bytesOnly(nodes []int32) *local {
	if !e.more(nodes) {
		return e.intern(nodes)
	}
	key := e.key[:0]
	for _, n := range nodes {
		key = binary.LittleEndian.AppendUint32(key, uint32(n))
	}
	key = append(key, 'b')
	e.key = key
	if l := e.locals[string(key)]; l != nil {
		return l
	}
	e.serial++
	l := &local{id: e.serial, nodes: nodes}
	l.bytes = l
	e.locals[string(key)] = l
	e.size += 120 + 8*len(nodes)
	return l
}

// callsOf lists the calls of a set, those of one rule together.
func (e *engine) callsOf(l *local) []call {
	if l.calls != nil || l.bytes == l {
		return l.calls
	}
	type pair struct{ rule, ret int32 }
	var pairs []pair
	for _, i := range l.nodes {
		if n := &e.g.nodes[i]; n.rule >= 0 {
			pairs = append(pairs, pair{n.rule, n.ret})
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int { return int(a.rule) - int(b.rule) })
	calls := make([]call, 0, len(pairs))
	for len(pairs) > 0 {
		rule := pairs[0].rule
		var rets []int32
		for len(pairs) > 0 && pairs[0].rule == rule {
			rets = append(rets, pairs[0].ret)
			pairs = pairs[1:]
		}
		calls = append(calls, call{start: e.closure([]int32{rule}), ret: e.closure(rets)})
	}
	l.calls = calls
	return calls
}

// step follows a byte of a class from a set of nodes with edges.
func (e *engine) step(l *local, class uint8) *local {
	if l.next == nil {
		l.next = make([]*local, len(e.g.first))
		e.size += 8 * len(e.g.first)
	}
	if to := l.next[class]; to != nil {
		return to
	}
	b := e.g.first[class]
	e.seeds = e.seeds[:0]
	for _, i := range l.nodes {
		for _, edge := range e.g.nodes[i].edges {
			if edge.lo <= b && b <= edge.hi {
				e.seeds = append(e.seeds, edge.to)
			}
		}
	}
	to := noLocal
	if len(e.seeds) > 0 {
		to = e.closure(e.seeds)
	}
	l.next[class] = to
	return to
}
