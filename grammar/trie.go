package grammar

// A trie holds byte strings and the ids that they stand for. Its nodes lie in
// the order of a walk: a node, then all below it.
type trie struct {
	nodes []trieNode // one more at the end, for the ids of the last
	ids   []int32    // those of node i are ids[nodes[i].ids:nodes[i+1].ids]
	deep  int        // the longest string, bytes
}

// tops calls yield with each node of the first byte, until it returns false.
func (t *trie) tops(yield func(i int, n trieNode) bool) {
	for i := 0; i < len(t.nodes)-1; i = int(t.nodes[i].skip) {
		if !yield(i, t.nodes[i]) {
			return
		}
	}
}

// below are the ids of a node and of all below it.
func (t *trie) below(n trieNode) []int32 { return t.ids[n.ids:t.nodes[n.skip].ids] }

type trieNode struct {
	ids  uint32 // where its ids begin
	skip uint32 // the node after all below this one
	// depth counts from 1. Strings are at most 65,535 bytes long.
	depth uint16
	byte  byte
}

// newTrie takes strings in ascending order; equal ones may repeat.
func newTrie(count int, at func(i int) (string, int32)) trie {
	var t trie
	var path []uint32 // the nodes that the last string went through
	last := ""
	for i := range count {
		s, id := at(i)
		same := 0
		for same < len(s) && same < len(last) && s[same] == last[same] {
			same++
		}
		for len(path) > same {
			t.nodes[path[len(path)-1]].skip = uint32(len(t.nodes))
			path = path[:len(path)-1]
		}
		for k := same; k < len(s); k++ {
			path = append(path, uint32(len(t.nodes)))
			t.nodes = append(t.nodes, trieNode{ids: uint32(len(t.ids)), depth: uint16(k + 1), byte: s[k]})
		}
		t.ids = append(t.ids, id)
		t.deep = max(t.deep, len(s))
		last = s
	}
	for _, n := range path {
		t.nodes[n].skip = uint32(len(t.nodes))
	}
	t.nodes = append(t.nodes, trieNode{ids: uint32(len(t.ids))})
	return t
}

// walk sets the bits of all ids whose string leads on from s. Where the text
// leaves the open bottom, rest is called with the node, and returns false to
// end the walk. all, where not nil, reports whether all strings below a node lead on
// from its state.
func (e *engine) walk(t *trie, s *state, dst []uint64, rest func(t *trie, node int) bool, all func(n trieNode, to *state) bool) {
	e.walkPart(t, 0, len(t.nodes)-1, s, dst, rest, all)
}

// walkPart is walk of some nodes alone, of which the first is one of the first byte.
func (e *engine) walkPart(t *trie, i, end int, s *state, dst []uint64, rest func(t *trie, node int) bool, all func(n trieNode, to *state) bool) {
	if s == noState || len(t.nodes) < 2 {
		return
	}
	if len(e.path) <= t.deep {
		e.path = make([]*state, t.deep+1)
	}
	path := e.path
	path[0] = s
	for i < end {
		n := t.nodes[i]
		from := path[n.depth-1]
		class := e.g.class[n.byte]
		var to *state
		if from.next != nil {
			to = from.next[class]
		}
		if to == nil {
			to = e.stepState(from, class)
		}
		if to == noState {
			i = int(n.skip)
			continue
		}
		if all != nil && all(n, to) {
			for _, id := range t.below(n) {
				dst[id>>6] |= 1 << (id & 63)
			}
			i = int(n.skip)
			continue
		}
		for _, id := range t.ids[n.ids:t.nodes[i+1].ids] {
			dst[id>>6] |= 1 << (id & 63)
		}
		if to.left && rest != nil && !rest(t, i) {
			return
		}
		path[n.depth] = to
		i++
		if len(to.groups) == 0 {
			i = int(n.skip)
		}
	}
}
