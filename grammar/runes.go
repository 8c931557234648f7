package grammar

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// runeNFA is an automaton over characters; 0 is where it begins. It has no
// calls, so that two of them can be intersected.
type runeNFA struct{ nodes []runeNode }

type runeNode struct {
	eps    []int32
	edges  []runeEdge
	accept bool
}

type runeEdge struct {
	runeRange
	to int32
}

// add makes a node.
func (n *runeNFA) add(accept bool) int32 {
	n.nodes = append(n.nodes, runeNode{accept: accept})
	return int32(len(n.nodes) - 1)
}

// automaton leads over the texts of a runeNFA, written in an encoding.
func (b *builder) automaton(from int32, n *runeNFA, enc encoding) int32 {
	to := b.node()
	ids := make([]int32, len(n.nodes))
	for i := range ids {
		ids[i] = b.node()
	}
	b.eps(from, ids[0])
	for i, node := range n.nodes {
		for _, t := range node.eps {
			b.eps(ids[i], ids[t])
		}
		edges := slices.Clone(node.edges)
		slices.SortStableFunc(edges, func(x, y runeEdge) int { return int(x.to) - int(y.to) })
		for len(edges) > 0 {
			target := edges[0].to
			var ranges []runeRange
			for len(edges) > 0 && edges[0].to == target {
				ranges = append(ranges, edges[0].runeRange)
				edges = edges[1:]
			}
			b.class(ids[i], ids[target], ranges, enc)
		}
		if node.accept {
			b.eps(ids[i], to)
		}
	}
	return to
}

// mostRuneStates bounds a deterministic automaton: making one may take
// exponentially many states.
const mostRuneStates = 20_000

func (b *builder) runeState(n *runeNFA, accept bool, where string) int32 {
	b.tick()
	if len(n.nodes) >= mostRuneStates {
		stop(ErrLimit, where, fmt.Sprintf("needs more than %d states: a simpler pattern is needed", mostRuneStates))
	}
	return n.add(accept)
}

// bounds collects where ranges begin, and where what follows them begins.
func bounds(lists ...[]runeEdge) []rune {
	var at []rune
	for _, list := range lists {
		for _, e := range list {
			at = append(at, e.lo, e.hi+1)
		}
	}
	slices.Sort(at)
	return slices.Compact(at)
}

// deterministic returns an automaton for the same texts in which a character
// leads to one node at most.
func (b *builder) deterministic(n *runeNFA, where string) *runeNFA {
	out := new(runeNFA)
	known := make(map[string]int32)
	var sets [][]int32
	state := func(seeds []int32) int32 {
		seen := make(map[int32]bool)
		var set []int32
		for len(seeds) > 0 {
			i := seeds[len(seeds)-1]
			seeds = seeds[:len(seeds)-1]
			if !seen[i] {
				b.tick()
				seen[i] = true
				set = append(set, i)
				seeds = append(seeds, n.nodes[i].eps...)
			}
		}
		slices.Sort(set)
		var key []byte
		accept := false
		for _, i := range set {
			key = binary.LittleEndian.AppendUint32(key, uint32(i))
			accept = accept || n.nodes[i].accept
		}
		if id, ok := known[string(key)]; ok {
			return id
		}
		id := b.runeState(out, accept, where)
		known[string(key)] = id
		sets = append(sets, set)
		return id
	}
	state([]int32{0})
	for i := 0; i < len(sets); i++ {
		var edges []runeEdge
		for _, j := range sets[i] {
			edges = append(edges, n.nodes[j].edges...)
		}
		at := bounds(edges)
		for k := 0; k+1 < len(at); k++ {
			var to []int32
			for _, e := range edges {
				b.tick()
				if e.lo <= at[k] && at[k] <= e.hi {
					to = append(to, e.to)
				}
			}
			if len(to) > 0 {
				out.link(int32(i), at[k], at[k+1]-1, state(to))
			}
		}
	}
	return out
}

// link adds an edge, or makes the last one longer.
func (n *runeNFA) link(from int32, lo, hi rune, to int32) {
	edges := n.nodes[from].edges
	if last := len(edges) - 1; last >= 0 && edges[last].to == to && edges[last].hi+1 == lo {
		edges[last].hi = hi
		return
	}
	n.nodes[from].edges = append(edges, runeEdge{runeRange{lo, hi}, to})
}

// combine returns a deterministic automaton for the texts that keep wants, by
// whether x and y, both deterministic, accept them.
func (b *builder) combine(x, y *runeNFA, keep func(inX, inY bool) bool, where string) *runeNFA {
	type pair struct{ x, y int32 } // -1: nowhere
	out := new(runeNFA)
	known := make(map[pair]int32)
	var pairs []pair
	state := func(p pair) int32 {
		if id, ok := known[p]; ok {
			return id
		}
		id := b.runeState(out, keep(p.x >= 0 && x.nodes[p.x].accept, p.y >= 0 && y.nodes[p.y].accept), where)
		known[p] = id
		pairs = append(pairs, p)
		return id
	}
	edgesOf := func(n *runeNFA, i int32) []runeEdge {
		if i < 0 {
			return nil
		}
		return n.nodes[i].edges
	}
	follow := func(edges []runeEdge, r rune) int32 {
		for _, e := range edges {
			if e.lo <= r && r <= e.hi {
				return e.to
			}
		}
		return -1
	}
	onlyX, onlyY := keep(true, false), keep(false, true)
	state(pair{})
	for i := 0; i < len(pairs); i++ {
		ex, ey := edgesOf(x, pairs[i].x), edgesOf(y, pairs[i].y)
		at := bounds(ex, ey)
		for k := 0; k+1 < len(at); k++ {
			b.tick()
			p := pair{follow(ex, at[k]), follow(ey, at[k])}
			if p.x < 0 && !onlyY || p.y < 0 && !onlyX || p.x < 0 && p.y < 0 {
				continue
			}
			out.link(int32(i), at[k], at[k+1]-1, state(p))
		}
	}
	return out.trimmed()
}

// trimmed takes out the nodes from which nothing is accepted.
func (n *runeNFA) trimmed() *runeNFA {
	into := make([][]int32, len(n.nodes))
	live := make([]bool, len(n.nodes))
	var work []int32
	for i, node := range n.nodes {
		for _, e := range node.edges {
			into[e.to] = append(into[e.to], int32(i))
		}
		for _, to := range node.eps {
			into[to] = append(into[to], int32(i))
		}
		if node.accept {
			live[i] = true
			work = append(work, int32(i))
		}
	}
	for len(work) > 0 {
		i := work[len(work)-1]
		work = work[:len(work)-1]
		for _, from := range into[i] {
			if !live[from] {
				live[from] = true
				work = append(work, from)
			}
		}
	}
	id := make([]int32, len(n.nodes))
	out := new(runeNFA)
	for i := range n.nodes {
		if live[i] || i == 0 {
			id[i] = out.add(n.nodes[i].accept)
		}
	}
	for i, node := range n.nodes {
		if !live[i] {
			continue
		}
		to := &out.nodes[id[i]]
		for _, e := range node.edges {
			if live[e.to] {
				to.edges = append(to.edges, runeEdge{e.runeRange, id[e.to]})
			}
		}
		for _, t := range node.eps {
			if live[t] {
				to.eps = append(to.eps, id[t])
			}
		}
	}
	return out
}

// empty reports whether a trimmed automaton accepts nothing.
func (n *runeNFA) empty() bool {
	return len(n.nodes) == 1 && !n.nodes[0].accept && len(n.nodes[0].edges) == 0 && len(n.nodes[0].eps) == 0
}

// words is the deterministic automaton of a few texts.
func words(list []string) *runeNFA {
	out := new(runeNFA)
	out.add(false)
	list = slices.Clone(list)
	slices.SortFunc(list, strings.Compare)
	for _, w := range list {
		at := int32(0)
		for _, r := range w {
			next := int32(-1)
			for _, e := range out.nodes[at].edges {
				if e.lo == r {
					next = e.to
				}
			}
			if next < 0 {
				next = out.add(false)
				out.nodes[at].edges = append(out.nodes[at].edges, runeEdge{runeRange{r, r}, next})
			}
			at = next
		}
		out.nodes[at].accept = true
	}
	return out
}

// anyText is the deterministic automaton of all texts.
func anyText() *runeNFA {
	return &runeNFA{nodes: []runeNode{{accept: true, edges: []runeEdge{{runeRange{0, utf8.MaxRune}, 0}}}}}
}

// lengths is the deterministic automaton of texts of min to max characters;
// max < 0 is no bound.
func (b *builder) lengths(min, max int, where string) *runeNFA {
	out := new(runeNFA)
	last := max
	if max < 0 {
		last = min
	}
	for i := 0; i <= last; i++ {
		b.runeState(out, i >= min, where)
		if i > 0 {
			out.link(int32(i-1), 0, utf8.MaxRune, int32(i))
		}
	}
	if max < 0 {
		out.link(int32(last), 0, utf8.MaxRune, int32(last))
	}
	return out
}
