package grammar

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
)

// Constraint is a grammar over a vocabulary: where its matchers can stand, and
// what each place allows, as far as they were met. It may be used by several
// goroutines at once, one after the other. It keeps about 48 MB at most: 32 of
// states, 16 of masks; usual grammars need 1 to 5.
type Constraint struct {
	v *Vocabulary

	mu      sync.Mutex
	e       *engine
	cache   cache
	scratch []uint64
}

// NewConstraint puts a grammar and a vocabulary together. It is cheap: all else
// is made as it is met.
func NewConstraint(g *Grammar, v *Vocabulary) *Constraint {
	return &Constraint{v: v, e: newEngine(g), scratch: make([]uint64, v.Words())}
}

// Start is a matcher before any text.
func (c *Constraint) Start() Matcher {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Matcher{c: c, s: c.e.begin()}
}

// ErrStuck: the text cannot go on. Either the vocabulary lacks the bytes that
// must follow, or the text is nested deeper than a stack may be.
var ErrStuck = errors.New("grammar: no token of the vocabulary can follow")

// ErrEnded: the matcher has taken a token that ends the text.
var ErrEnded = errors.New("grammar: the text has ended")

// mask writes what a state allows. The caller holds the lock.
func (c *Constraint) mask(s *state, dst []uint64) error {
	if len(dst) < c.v.Words() {
		return fmt.Errorf("grammar: a mask of %d words is too small for %d tokens: %d are needed", len(dst), c.v.Size(), c.v.Words())
	}
	if len(s.groups) == 0 {
		clear(dst)
	}
	for i, g := range s.groups {
		if g.at == c.e.bottom { // there is one stack under it
			c.direct(g).apply(dst, i == 0)
			continue
		}
		n := c.open(g.l)
		if n.direct {
			c.direct(g).apply(dst, i == 0)
			continue
		}
		n.apply(dst, i == 0)
		if len(n.rest.nodes) > 0 {
			c.e.walk(&n.rest, c.e.afterFrame(g.at), dst, nil, nil)
		}
	}
	if s.complete {
		for _, id := range c.v.end {
			dst[id>>6] |= 1 << (id & 63)
		}
	}
	for _, w := range dst {
		if w != 0 {
			return nil
		}
	}
	return ErrStuck
}

// open is the entry of a set of nodes whatever is under it.
func (c *Constraint) open(l *local) *entry {
	l = c.e.canonical(l, c.v.deep)
	key := entryKey{l: l}
	n := c.cache.get(key)
	if n == nil {
		n = c.newEntry(c.e.over(l), true)
		c.cache.put(key, n)
	}
	return n
}

// direct is the entry of a set of nodes over its stack.
func (c *Constraint) direct(g group) *entry {
	l := c.e.canonical(g.l, c.v.deep)
	key := entryKey{l, g.at}
	n := c.cache.get(key)
	if n == nil {
		n = c.newEntry(c.e.internState([]group{{at: g.at, l: l}}, false, false), false)
		c.cache.put(key, n)
	}
	return n
}

func popCount(set []uint64) (n int) {
	for _, w := range set {
		n += bits.OnesCount64(w)
	}
	return n
}

func appendIDs(ids []int32, set []uint64) []int32 {
	for i, w := range set {
		for ; w != 0; w &= w - 1 {
			ids = append(ids, int32(i*64+bits.TrailingZeros64(w)))
		}
	}
	return ids
}
