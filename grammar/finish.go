package grammar

import "fmt"

// Grammar is a compiled grammar. It does not change, and may be used by several
// goroutines at once.
type Grammar struct {
	nodes []node
	start int32 // of the root
	// class numbers each byte by what the edges make of it: bytes of one class
	// have the same edges everywhere. first is the first byte of each class; a
	// class is an interval.
	class    [256]uint8
	first    []byte
	segments []segment
}

// Nodes is the size of the automaton.
func (g *Grammar) Nodes() int { return len(g.nodes) }

// finish takes out what leads nowhere, so that from each state a text can be
// completed, and what would make a state infinite.
func (b *builder) finish() *Grammar {
	live := b.reach(true)
	// The last first: what is before a piece that is empty leads nowhere, too.
	for i := len(b.named) - 1; i >= 0; i-- {
		if n := b.named[i]; !live[n.node] {
			stop(ErrEmpty, n.name, "allows no text at all")
		}
	}
	if !live[b.rules[0].start] {
		stop(ErrEmpty, b.what, "allows no text at all")
	}
	b.trim(live)
	nullable := b.reach(false)
	for i := range b.nodes {
		n := &b.nodes[i]
		if n.rule < 0 {
			continue
		}
		callee := b.rules[n.rule].start
		n.rule = callee // from here on a call names the node that it enters
		if nullable[callee] {
			n.eps = append(n.eps, n.ret)
		}
	}
	b.tailCalls()
	b.refuseLeftRecursion()
	g := &Grammar{nodes: b.nodes, start: b.rules[0].start}
	g.classes()
	g.keepSegments(b.segments, b.tick)
	return g
}

// reach finds the nodes from which the end of their rule can be reached: at
// all, or without a byte.
func (b *builder) reach(bytes bool) []bool {
	// The nodes that may be reached if node i is: from[first[i]:first[i+1]].
	first := make([]int32, len(b.nodes)+1)
	into := func(each func(to, from int32)) {
		for i := range b.nodes {
			b.tick()
			n := &b.nodes[i]
			for _, to := range n.eps {
				each(to, int32(i))
			}
			if bytes {
				for _, e := range n.edges {
					each(e.to, int32(i))
				}
			}
			if n.rule >= 0 {
				each(n.ret, int32(i))
				each(b.rules[n.rule].start, int32(i))
			}
		}
	}
	into(func(to, _ int32) { first[to]++ })
	for i := 1; i < len(first); i++ {
		first[i] += first[i-1]
	}
	from := make([]int32, first[len(b.nodes)])
	into(func(to, i int32) {
		first[to]--
		from[first[to]] = i
	})
	reached := make([]bool, len(b.nodes))
	var work []int32
	add := func(i int32) {
		if !reached[i] {
			reached[i] = true
			work = append(work, i)
		}
	}
	for _, r := range b.rules {
		add(r.end)
	}
	for len(work) > 0 {
		i := work[len(work)-1]
		work = work[:len(work)-1]
		for _, from := range from[first[i]:first[i+1]] {
			b.tick()
			if reached[from] {
				continue
			}
			n := &b.nodes[from]
			ok := n.rule >= 0 && reached[n.ret] && reached[b.rules[n.rule].start]
			for _, to := range n.eps {
				ok = ok || to == i
			}
			for _, e := range n.edges {
				ok = ok || bytes && e.to == i
			}
			if ok {
				add(from)
			}
		}
	}
	return reached
}

func (b *builder) trim(live []bool) {
	for i := range b.nodes {
		n := &b.nodes[i]
		edges, eps := n.edges[:0], n.eps[:0]
		for _, e := range n.edges {
			if live[e.to] {
				edges = append(edges, e)
			}
		}
		for _, to := range n.eps {
			if live[to] {
				eps = append(eps, to)
			}
		}
		n.edges, n.eps = edges, eps
		if n.rule >= 0 && !(live[n.ret] && live[b.rules[n.rule].start]) {
			n.rule = -1
		}
	}
}

// tailCalls makes a call that only the end of its own rule follows a step into
// the callee: a list by right recursion then needs no stack.
func (b *builder) tailCalls() {
	const (
		unknown = iota
		asked
		yes
		no
	)
	// onlyEnd: nothing but the end of the rule follows. A way round in a circle is no way on.
	state := make([]byte, len(b.nodes))
	var onlyEnd func(i int32, deep int) bool
	onlyEnd = func(i int32, deep int) bool {
		n := &b.nodes[i]
		if state[i] == unknown {
			state[i] = asked
			ok := len(n.edges) == 0 && n.rule < 0
			if n.end {
				ok = ok && len(n.eps) == 0
			} else {
				ok = ok && len(n.eps) == 1 && deep < 64 && onlyEnd(n.eps[0], deep+1)
			}
			state[i] = no
			if ok {
				state[i] = yes
			}
		}
		return state[i] == yes
	}
	for i := range b.nodes {
		n := &b.nodes[i]
		if n.rule >= 0 && onlyEnd(n.ret, 0) {
			n.eps = append(n.eps, n.rule)
			n.rule = -1
		}
	}
}

// refuseLeftRecursion finds a rule that can call itself before any byte: a
// circle of empty steps and calls with a call in it (Tarjan's components,
// without recursion: the automaton may be deep).
func (b *builder) refuseLeftRecursion() {
	next := func(i int32, k int) (int32, bool) {
		n := &b.nodes[i]
		if k < len(n.eps) {
			return n.eps[k], true
		}
		if k == len(n.eps) && n.rule >= 0 {
			return n.rule, true
		}
		return 0, false
	}
	type visit struct {
		node int32
		k    int
	}
	order := make([]int32, len(b.nodes)) // 0: not visited
	low := make([]int32, len(b.nodes))
	component := make([]int32, len(b.nodes)) // 0: open
	var open []int32
	var path []visit
	count, components := int32(0), int32(0)
	for root := range b.nodes {
		if order[root] != 0 {
			continue
		}
		path = append(path[:0], visit{node: int32(root)})
		for len(path) > 0 {
			v := &path[len(path)-1]
			i := v.node
			if v.k == 0 {
				b.tick()
				count++
				order[i], low[i] = count, count
				open = append(open, i)
			}
			to, ok := next(i, v.k)
			v.k++
			switch {
			case ok && order[to] == 0:
				path = append(path, visit{node: to})
			case ok && component[to] == 0:
				low[i] = min(low[i], order[to])
			case !ok:
				path = path[:len(path)-1]
				if len(path) > 0 {
					p := path[len(path)-1].node
					low[p] = min(low[p], low[i])
				}
				if low[i] != order[i] {
					continue
				}
				components++
				for {
					last := open[len(open)-1]
					open = open[:len(open)-1]
					component[last] = components
					if last == i {
						break
					}
				}
			}
		}
	}
	for i, n := range b.nodes {
		if n.rule >= 0 && component[i] == component[n.rule] {
			for _, r := range b.rules {
				if r.start == n.rule {
					stop(ErrUnsupported, b.what, fmt.Sprintf("has left recursion: rule %s begins with itself; write it with a repeat", quote(r.name)))
				}
			}
		}
	}
}

// classes numbers the intervals of bytes that no edge tells apart.
func (g *Grammar) classes() {
	var begins [257]bool
	begins[0] = true
	for _, n := range g.nodes {
		for _, e := range n.edges {
			begins[e.lo], begins[int(e.hi)+1] = true, true
		}
	}
	for c := range 256 {
		if begins[c] {
			g.first = append(g.first, byte(c))
		}
		g.class[c] = uint8(len(g.first) - 1)
	}
}

// last is the last byte of a class.
func (g *Grammar) last(class int) byte {
	if class+1 == len(g.first) {
		return 255
	}
	return g.first[class+1] - 1
}
