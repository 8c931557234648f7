package grammar

import "fmt"

// A node is a place between two bytes. From it a byte of an edge leads on, or
// nothing at all (eps), or a whole text of another rule (call).
type node struct {
	edges []edge
	eps   []int32
	rule  int32 // the rule that is called; -1 for none
	ret   int32 // where a call goes on
	end   bool  // of its rule
}

type edge struct {
	lo, hi byte
	to     int32
}

// A rule is a part of the automaton that is entered at its start and left at
// its end. Rules may call each other, and so nest without bound.
type rule struct {
	name       string
	start, end int32
}

// builder makes nodes. Its methods take the node to begin at and return the one
// that they end at; only edges out of a given node are added, so what a caller
// built before stays as it is.
type builder struct {
	budget
	nodes     []node
	rules     []rule // 0 is the root
	templates map[string]*template
	placed    map[placed]int32
	segments  []segment
	named     []namedNode
	shared    map[*Shared]int32
	strings   map[string]int32 // rules inside strings of schemas, by what they must satisfy
	indent    int32            // the rule of an indent; 0 until it is asked for
	edgeRoom  []edge
	epsRoom   []int32
}

// grow appends to a list whose memory comes from a large piece: an automaton
// has tens of thousands of lists of one or two.
func grow[T any](list []T, item T, room *[]T) []T {
	if len(list) == cap(list) {
		n := max(1, 2*cap(list))
		if len(*room) < n {
			*room = make([]T, max(n, 4096))
		}
		next := (*room)[:0:n]
		*room = (*room)[n:]
		list = append(next, list...)
	}
	return append(list, item)
}

func (b *builder) node() int32 {
	b.tick()
	if len(b.nodes) >= b.Nodes {
		stop(ErrLimit, b.what, fmt.Sprintf("needs an automaton of more than %d nodes: smaller repeats or fewer alternatives are needed", b.Nodes))
	}
	b.nodes = append(b.nodes, node{rule: -1})
	return int32(len(b.nodes) - 1)
}

// rule makes a rule without a way from its start to its end.
func (b *builder) rule(name string) int32 {
	r := rule{name: name, start: b.node(), end: b.node()}
	b.nodes[r.end].end = true
	b.rules = append(b.rules, r)
	return int32(len(b.rules) - 1)
}

func (b *builder) edge(from int32, lo, hi byte, to int32) {
	n := &b.nodes[from]
	n.edges = grow(n.edges, edge{lo, hi, to}, &b.edgeRoom)
}

func (b *builder) eps(from, to int32) {
	n := &b.nodes[from]
	n.eps = grow(n.eps, to, &b.epsRoom)
}

// call leads from a node to another over a text of a rule.
func (b *builder) call(from, rule, to int32) {
	if b.nodes[from].rule >= 0 {
		n := b.node()
		b.eps(from, n)
		from = n
	}
	b.nodes[from].rule, b.nodes[from].ret = rule, to
}

// literal leads over the bytes of s.
func (b *builder) literal(from int32, s string) int32 {
	for i := range len(s) {
		to := b.node()
		b.edge(from, s[i], s[i], to)
		from = to
	}
	return from
}

// repeat leads over min to max texts of body, which leads from a node over one
// text; max < 0 is no bound.
func (b *builder) repeat(from int32, min, max int, body func(from int32) int32) int32 {
	// Copies of a body are laid out alike; see segments.go.
	var starts []int32
	for range min {
		starts = append(starts, int32(len(b.nodes)))
		from = body(from)
	}
	b.copied(starts)
	out := b.node()
	if max < 0 {
		loop := b.node()
		b.eps(from, loop)
		b.eps(body(loop), loop)
		b.eps(loop, out)
		return out
	}
	starts = starts[:0]
	for range max - min {
		b.eps(from, out)
		starts = append(starts, int32(len(b.nodes)))
		from = body(from)
	}
	b.copied(starts)
	b.eps(from, out)
	return out
}
