package grammar

// What a set of nodes allows does not depend on the stack under it, as long as
// a token does not leave the frame: being in a string is the same in any
// property. So that part of a mask is made once for the set, over an open
// bottom. A token that does leave the frame is kept with what is left of it then: for a
// string ",\n and ": and "}] and a few thousand more, as one small trie,
// which is walked from the state after the frame whenever a mask is asked for.

// An entry is what one set of nodes allows.
type entry struct {
	// The ids that are allowed whatever follows: few as a list, many as a bit set.
	ids  []int32
	bits []uint64
	rest trie // what remains of tokens that leave the frame
	// direct: too many tokens leave the frame, or all do at once. Entries for the
	// set with the stack under it are made instead.
	direct bool
}

const (
	// mostRest is the tokens that may leave a frame before its entry is direct.
	mostRest = 16 << 10
	// mostIDs is where a list of ids takes as much as a bit set of a large vocabulary.
	mostIDs = 1024
)

func (n *entry) size() int { return 150 + 4*cap(n.ids) + 8*len(n.bits) + n.rest.size() }

func (t *trie) size() int { return 12*len(t.nodes) + 4*len(t.ids) }

// newEntry makes the entry of a state; with open it is one over the open bottom.
func (c *Constraint) newEntry(s *state, open bool) *entry {
	n := new(entry)
	clear(c.scratch)
	if !open {
		c.e.walkSlices(c.v, s, c.scratch, nil)
		n.keep(c.scratch)
		return n
	}
	var rest restTrie
	c.e.walkSlices(c.v, s, c.scratch, func(t *trie, node int) bool {
		n.direct = n.direct || !rest.add(t, node)
		return !n.direct
	})
	if n.direct {
		return &entry{direct: true}
	}
	n.keep(c.scratch)
	n.rest = rest.trie()
	return n
}

// keep stores a bit set.
func (n *entry) keep(bits []uint64) {
	count := popCount(bits)
	if count > mostIDs {
		n.bits = append([]uint64(nil), bits...)
		return
	}
	n.ids = appendIDs(make([]int32, 0, count), bits)
}

// apply adds what is allowed to dst, which is as good as empty where it is the first.
func (n *entry) apply(dst []uint64, first bool) {
	if first {
		clear(dst[copy(dst, n.bits):])
	} else {
		unite(dst, n.bits)
	}
	for _, id := range n.ids {
		dst[id>>6] |= 1 << (id & 63)
	}
}

// restTrie is a trie that grows: below a node its children are a list. Those of
// the root are found by their byte, as there may be two hundred.
type restTrie struct {
	nodes []restNode
	root  [256]int32
	ids   []restID
	count int
}

type restNode struct {
	child, sibling int32 // 0: none; node 0 is not used
	ids            int32 // 1 + the first of its ids
	byte           byte
}

type restID struct{ id, next int32 }

// add takes in what is below a node of another trie; false if that is too much.
func (r *restTrie) add(t *trie, node int) bool {
	if r.nodes == nil {
		r.nodes = make([]restNode, 1, 1024)
	}
	top := t.nodes[node]
	if r.count += int(top.skip) - node - 1; r.count > mostRest {
		return false
	}
	path := make([]int32, 1, 16) // path[0] is the root
	for i := node + 1; i < int(top.skip); i++ {
		n := t.nodes[i]
		path = path[:n.depth-top.depth]
		at := r.below(path[len(path)-1], n.byte)
		path = append(path, at)
		for _, id := range t.ids[n.ids:t.nodes[i+1].ids] {
			r.ids = append(r.ids, restID{id, r.nodes[at].ids})
			r.nodes[at].ids = int32(len(r.ids))
		}
	}
	return true
}

// below returns the child of a node with a byte, and makes it if there is none.
func (r *restTrie) below(parent int32, b byte) int32 {
	first := &r.root[b]
	if parent != 0 {
		first = &r.nodes[parent].child
		for at := *first; at != 0; at = r.nodes[at].sibling {
			if r.nodes[at].byte == b {
				return at
			}
		}
	} else if *first != 0 {
		return *first
	}
	at := int32(len(r.nodes))
	n := restNode{byte: b}
	if parent != 0 {
		n.sibling = *first
	}
	*first = at
	r.nodes = append(r.nodes, n)
	return at
}

// trie returns it in the order of a walk.
func (r *restTrie) trie() trie {
	var t trie
	if len(r.nodes) < 2 {
		return t
	}
	t.nodes = make([]trieNode, 0, len(r.nodes))
	t.ids = make([]int32, 0, len(r.ids))
	var put func(at int32, depth int)
	put = func(at int32, depth int) {
		n := r.nodes[at]
		i := len(t.nodes)
		t.nodes = append(t.nodes, trieNode{ids: uint32(len(t.ids)), depth: uint16(depth), byte: n.byte})
		t.deep = max(t.deep, depth)
		for id := n.ids; id != 0; id = r.ids[id-1].next {
			t.ids = append(t.ids, r.ids[id-1].id)
		}
		for child := n.child; child != 0; child = r.nodes[child].sibling {
			put(child, depth+1)
		}
		t.nodes[i].skip = uint32(len(t.nodes))
	}
	for _, at := range r.root {
		if at != 0 {
			put(at, 1)
		}
	}
	t.nodes = append(t.nodes, trieNode{ids: uint32(len(t.ids))})
	return t
}
