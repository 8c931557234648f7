package grammar

import "slices"

// A string of up to 2,000 characters is 2,000 copies of the same few nodes, and
// a text in it stands at another set of nodes after each character. Far from
// the end all these sets allow the same tokens. So copies are known as such, and
// a mask is made for the first copy in place of all.

// A segment is copies of some nodes, one behind the other: copy i is the nodes
// base+i*stride and on. What leads on from a copy is alike for all but the last.
type segment struct{ base, stride, copies int32 }

// fewCopies are not worth it: no token may reach their end.
const fewCopies = 20

// copied notes a repeat, by the nodes at which its copies begin; the first copy
// may hold what all share.
func (b *builder) copied(starts []int32) {
	if len(starts) < fewCopies {
		return
	}
	s := segment{base: starts[1], stride: starts[2] - starts[1], copies: int32(len(starts) - 2)}
	for i := 2; i < len(starts); i++ {
		if starts[i]-starts[i-1] != s.stride || s.stride == 0 {
			return
		}
	}
	b.segments = append(b.segments, s)
}

// copyOf is the number of a node's copy; ok is false for a node outside.
func (s segment) copyOf(node int32) (i int32, ok bool) {
	i = (node - s.base) / s.stride
	return i, node >= s.base && i < s.copies
}

// moved reports whether to is what from becomes one copy further.
func (s segment) moved(from, to int32) bool {
	if _, ok := s.copyOf(from); ok {
		from += s.stride
	}
	return from == to
}

// next is the last copy that a set of nodes is in, where the other set is the same one copy
// further; -1: it is not. Both are sorted.
func (s segment) next(from, to []int32) (last int32) {
	last = -1
	moved := make([]int32, len(from))
	for k, n := range from {
		if moved[k] = n; n >= s.base {
			if i, ok := s.copyOf(n); ok {
				moved[k] += s.stride
				last = max(last, i)
			}
		}
	}
	if last < 0 {
		return -1
	}
	slices.Sort(moved)
	if !slices.Equal(moved, to) {
		return -1
	}
	return last
}

// alike reports whether a node is the one of the copy before, moved.
func (s segment) alike(g *Grammar, node int32) bool {
	a, b := &g.nodes[node-s.stride], &g.nodes[node]
	if len(a.edges) != len(b.edges) || len(a.eps) != len(b.eps) || a.end != b.end || (a.rule < 0) != (b.rule < 0) {
		return false
	}
	for i, e := range a.edges {
		if f := b.edges[i]; e.lo != f.lo || e.hi != f.hi || !s.moved(e.to, f.to) {
			return false
		}
	}
	for i, to := range a.eps {
		if !s.moved(to, b.eps[i]) {
			return false
		}
	}
	return a.rule < 0 || a.rule == b.rule && s.moved(a.ret, b.ret)
}

// keepSegments keeps the segments whose copies are alike, as far as they are,
// and in which a byte leads no further than into the next copy.
func (g *Grammar) keepSegments(all []segment, tick func()) {
	for _, s := range all {
		alike := int32(1)
		for ok := true; ok && alike < s.copies; {
			for j := range s.stride {
				tick()
				ok = ok && s.alike(g, s.base+alike*s.stride+j)
			}
			if ok {
				alike++
			}
		}
		s.copies = alike
		if s.copies >= fewCopies && g.stepsByOne(s) {
			g.segments = append(g.segments, s)
		}
	}
}

// stepsByOne looks at the nodes of one copy in the middle, for all.
func (g *Grammar) stepsByOne(s segment) bool {
	const at = fewCopies / 2
	furthest := func(node int32) (most int32) {
		seen := make(map[int32]bool)
		for work := []int32{node}; len(work) > 0; {
			n := work[len(work)-1]
			work = work[:len(work)-1]
			if !seen[n] {
				seen[n] = true
				if i, ok := s.copyOf(n); ok {
					most = max(most, i)
				}
				work = append(work, g.nodes[n].eps...)
			}
			if most > at+1 {
				return most
			}
		}
		return most
	}
	for j := range s.stride {
		n := &g.nodes[s.base+at*s.stride+j]
		for _, e := range n.edges {
			if furthest(e.to) > at+1 {
				return false
			}
		}
		if n.rule >= 0 && furthest(n.ret) > at+1 {
			return false
		}
	}
	return true
}

// canonical returns a set of nodes that allows the same tokens, of at most deep
// bytes: the one of the first copies, if the set is of copies far from the end.
func (e *engine) canonical(l *local, deep int) *local {
	if len(e.g.segments) == 0 {
		return l
	}
	if l.canonical == nil {
		l.canonical = l
		for _, s := range e.g.segments {
			first, last := int32(-1), int32(-1)
			for _, n := range l.nodes {
				if i, ok := s.copyOf(n); ok {
					if first < 0 || i < first {
						first = i
					}
					last = max(last, i)
				}
			}
			if first <= 0 || int(last)+deep+1 >= int(s.copies) {
				continue
			}
			nodes := slices.Clone(l.nodes)
			for k, n := range nodes {
				if _, ok := s.copyOf(n); ok {
					nodes[k] = n - first*s.stride
				}
			}
			slices.Sort(nodes)
			l.canonical = e.bytesOnly(nodes)
			break
		}
	}
	return l.canonical
}
