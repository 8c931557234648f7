package schedule

import (
	"container/list"
	"time"

	"windrow/decoder"
	"windrow/model"
)

// prefix is the beginning of a conversation whose keys and values are kept.
type prefix struct {
	salt, owner string
	tokens      []int32
	cache       *model.Cache
	used        time.Time
	turn        int64 // the number of its last use
	// saved is how many of its tokens are on disk, or were tried to be put there.
	saved int

	leaf *node
	at   *list.Element
	// pins are those that read the cache outside of the loop. A prefix that goes while
	// there are some is freed by the last of them.
	pins int
	gone bool
}

// node is a place in a tree of tokens: what leads there from its parent, and on.
type node struct {
	parent   *node
	edge     []int32
	children map[int32]*node // by the first tokens of their edges
	kept     *prefix         // of a leaf: what ends here
	latest   *prefix         // the most recently used one here or below
	owner    string          // whose edge it is: who brought it
}

// prefixes are the beginnings that are kept, each with its cache: a radix tree over
// tokens for each salt, whose leaves they are. A lookup takes as long as the prompt is,
// however many are kept, and compares token by token: there are no hashes to collide.
//
// No kept prefix begins another. Of the memory of what several begin with each has a
// share (model.Cache's Fork), so the giving up of a leaf frees what it alone has.
type prefixes struct {
	roots map[string]*node
	order list.List // of *prefix, the least recently used first
	most  int
	free  func(*model.Cache)
	now   func() time.Time
	turn  int64 // counts uses
	// held is how many tokens the edges of each owner have, and count how many prefixes.
	held  map[string]int
	count map[string]int
	// share is the part of all memory, and of most, beyond which an owner loses prefixes
	// before others do; full is how many tokens all memory has, 0: no limit.
	share float64
	full  func() int
}

func newPrefixes(most int, share float64, full func() int, free func(*model.Cache), now func() time.Time) prefixes {
	return prefixes{
		roots: map[string]*node{}, held: map[string]int{}, count: map[string]int{},
		most: most, share: share, full: full, free: free, now: now,
	}
}

// len is how many there are.
func (p *prefixes) len() int { return p.order.Len() }

// walk goes down from a salt's root as far as tokens lead: at is the node where they
// end or leave the tree, or in whose edge they do; n of them lead there, the last m of
// these within at's edge.
func (p *prefixes) walk(salt string, tokens []int32) (at *node, n, m int) {
	at = p.roots[salt]
	for at != nil && n < len(tokens) {
		child := at.children[tokens[n]]
		if child == nil {
			break
		}
		m = decoder.CommonPrefix(child.edge, tokens[n:])
		at, n = child, n+m
		if m < len(child.edge) {
			break
		}
	}
	return at, n, m
}

// find returns a prefix that shares the most tokens with a prompt, and how many may be
// used: up to a multiple of step.
func (p *prefixes) find(salt string, prompt []int32, step int) (*prefix, int) {
	at, n, _ := p.walk(salt, prompt)
	if n = n / step * step; n == 0 {
		return nil, 0
	}
	p.touch(at.latest)
	return at.latest, n
}

// peek is find for who does not use it: step is 1, and its last use stays what it was.
func (p *prefixes) peek(salt string, tokens []int32) (*prefix, int) {
	at, n, _ := p.walk(salt, tokens)
	if n == 0 {
		return nil, 0
	}
	return at.latest, n
}

// touch makes a prefix the most recently used.
func (p *prefixes) touch(x *prefix) {
	p.turn++
	x.used, x.turn = p.now(), p.turn
	p.order.MoveToBack(x.at)
	for at := x.leaf; at != nil; at = at.parent {
		at.latest = x
	}
}

// put keeps a prefix, whose cache is the tree's from then on. What it continues is not
// needed beside it; where another continues it, it is not needed itself.
func (p *prefixes) put(x *prefix) {
	if p.most <= 0 || len(x.tokens) == 0 {
		p.free(x.cache)
		return
	}
	at, n, m := p.walk(x.salt, x.tokens)
	if n == len(x.tokens) {
		p.touch(at.latest)
		p.free(x.cache)
		return
	}
	if at == nil {
		at = &node{children: map[int32]*node{}}
		p.roots[x.salt] = at
	}
	switch {
	case m < len(at.edge):
		at = p.split(at, m)
	case at.kept != nil: // x continues it
		y := at.kept
		x.saved = max(x.saved, y.saved)
		parent, from := at.parent, n-len(at.edge)
		p.cut(at)
		p.forget(y)
		at, n = parent, from
	}
	leaf := &node{parent: at, edge: x.tokens[n:], kept: x, owner: x.owner, children: map[int32]*node{}}
	at.children[leaf.edge[0]] = leaf
	p.held[x.owner] += len(leaf.edge)
	p.count[x.owner]++
	x.leaf, x.at = leaf, p.order.PushBack(x)
	p.touch(x)
	for p.order.Len() > p.most {
		p.evict()
	}
}

// split makes a node of the first m tokens of another's edge.
func (p *prefixes) split(at *node, m int) *node {
	mid := &node{parent: at.parent, edge: at.edge[:m], latest: at.latest, owner: at.owner, children: map[int32]*node{at.edge[m]: at}}
	mid.parent.children[mid.edge[0]] = mid
	at.parent, at.edge = mid, at.edge[m:]
	return mid
}

// cut takes a leaf's edge from the tree.
func (p *prefixes) cut(leaf *node) {
	delete(leaf.parent.children, leaf.edge[0])
	p.charge(leaf.owner, -len(leaf.edge))
}

// charge books tokens to an owner.
func (p *prefixes) charge(owner string, n int) {
	if p.held[owner] += n; p.held[owner] == 0 {
		delete(p.held, owner)
	}
}

// forget drops a prefix whose leaf is cut.
func (p *prefixes) forget(x *prefix) {
	p.order.Remove(x.at)
	if p.count[x.owner]--; p.count[x.owner] == 0 {
		delete(p.count, x.owner)
	}
	x.gone, x.leaf = true, nil
	if x.pins == 0 {
		p.free(x.cache)
	}
}

// unpin ends a pin.
func (p *prefixes) unpin(x *prefix) {
	if x.pins--; x.pins == 0 && x.gone {
		p.free(x.cache)
	}
}

// remove gives a prefix up.
func (p *prefixes) remove(x *prefix) {
	leaf := x.leaf
	p.cut(leaf)
	p.forget(x)
	at := leaf.parent
	switch {
	case at.parent == nil && len(at.children) == 0:
		delete(p.roots, x.salt)
		return
	case at.parent != nil && len(at.children) == 1:
		at = p.join(at)
	}
	from := at
	for ; at != nil; at = at.parent {
		if at.latest == x {
			at.latest = nil
			for _, child := range at.children {
				if at.latest == nil || at.latest.turn < child.latest.turn {
					at.latest = child.latest
				}
			}
		}
	}
	from.replace()
}

// join makes one of a node and its only child.
func (p *prefixes) join(at *node) *node {
	for _, child := range at.children {
		p.charge(at.owner, -len(at.edge))
		p.charge(child.owner, len(at.edge))
		n := child.depth()
		child.edge = child.latest.tokens[n-len(at.edge)-len(child.edge) : n]
		child.parent = at.parent
		child.parent.children[child.edge[0]] = child
		return child
	}
	return at
}

// depth is how many tokens lead to a node.
func (n *node) depth() (tokens int) {
	for ; n != nil; n = n.parent {
		tokens += len(n.edge)
	}
	return tokens
}

// replace takes the edges that lead to a node from the tokens of prefixes that are
// there: edges are parts of those, and all tokens of one that is gone would stay for a
// few at their beginning.
func (n *node) replace() {
	for end := n.depth(); n.parent != nil; n = n.parent {
		from := end - len(n.edge)
		n.edge = n.latest.tokens[from:end]
		end = from
	}
}

// evict gives up the one that goes first, and reports whether there was one.
func (p *prefixes) evict() bool {
	x := p.victim()
	if x == nil {
		return false
	}
	p.remove(x)
	return true
}

// victim is the one that goes first, nil where there is none: the least recently used of
// the owner who is the furthest over his share, or of all where none is. One that is
// being read goes last.
func (p *prefixes) victim() (victim *prefix) {
	over, owner := p.greediest()
	for e := p.order.Front(); e != nil; e = e.Next() {
		x := e.Value.(*prefix)
		if over && x.owner != owner {
			continue
		}
		if victim == nil || victim.pins > 0 {
			victim = x
		}
		if x.pins == 0 {
			break
		}
	}
	return victim
}

// greediest is who is the furthest over his share of memory or of prefixes, if anyone
// is and others have some.
func (p *prefixes) greediest() (over bool, owner string) {
	if len(p.count) < 2 || p.share <= 0 {
		return false, ""
	}
	full, most := float64(p.full()), 0.0
	for name, n := range p.count {
		excess := float64(n)/float64(p.most) - p.share
		if full > 0 {
			excess = max(excess, float64(p.held[name])/full-p.share)
		}
		if excess > most || excess == most && over && name < owner {
			over, owner, most = true, name, excess
		}
	}
	return over, owner
}

// clear gives all of them up.
func (p *prefixes) clear() {
	for p.evict() {
	}
}
