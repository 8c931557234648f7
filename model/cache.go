package model

import (
	"fmt"

	"windrow/architecture"
	"windrow/backend"
)

// Cache is what one sequence keeps in all layers: keys and values, and the states of
// recurrent layers. Base tokens of it are permanent;
// what lies past Base is scratch of the last forward, which the next forward
// overwrites unless Commit keeps some of it. A cancelled step needs no undo.
type Cache struct {
	storage  backend.Storage // nil: a cache that only counts, for planners under test
	base     int
	drafted  int // tokens for which the head for drafts has what it keeps
	pending  int // rows of the last forward, not yet committed
	capacity int
	maxRows  int
	logRows  int // how many rows a forward may leave uncommitted; 0: no layer has a state
	imported int // tokens of imported pages that wait for their states
}

// NewCountingCache returns a cache without storage that holds up to capacity
// tokens: decoders planning against scripted results count on it.
func NewCountingCache(capacity int) *Cache {
	return &Cache{capacity: capacity, maxRows: capacity}
}

// Base is how many tokens are permanent.
func (c *Cache) Base() int { return c.base }

// Capacity is how many tokens may become permanent in all.
func (c *Cache) Capacity() int { return c.capacity }

// MaxRows is how many rows one forward may add.
func (c *Cache) MaxRows() int { return c.maxRows }

// StepRows is how many rows a forward may have of which any number may be committed:
// MaxRows, or less where layers have a state, which a longer forward adds most rows to.
func (c *Cache) StepRows() int {
	if c.logRows > 0 {
		return min(c.logRows, c.maxRows)
	}
	return c.maxRows
}

// Recurrent reports whether some layers keep a state: then rows of a forward have to be
// in the order of their positions.
func (c *Cache) Recurrent() bool { return c.logRows > 0 }

// Bytes is what the storage takes now.
func (c *Cache) Bytes() int64 {
	if c.storage == nil {
		return 0
	}
	return c.storage.Bytes()
}

// Stage notes that a forward has written rows past Base. Model.Forward calls
// it; so does a scripted stand-in for one.
func (c *Cache) Stage(rows int) { c.pending = rows }

// Commit makes the first n rows of the last forward permanent. Where layers have a state,
// at most StepRows of a forward of more rows than that may be left out, or all.
func (c *Cache) Commit(n int) error {
	if n < 0 || n > c.pending {
		return fmt.Errorf("commit %d rows of a forward of %d", n, c.pending)
	}
	if c.logRows > 0 && n > 0 && n < c.pending-c.logRows {
		return fmt.Errorf("commit %d rows of a forward of %d: states can leave out the last %d", n, c.pending, c.logRows)
	}
	if c.base+n > c.capacity {
		return fmt.Errorf("commit to %d tokens: the cache holds %d", c.base+n, c.capacity)
	}
	c.base += n
	c.pending = 0
	return nil
}

// Truncate forgets all but the first n permanent tokens, and returns how many there
// are then: n, or fewer where the cache has dropped what going back to n would take
// (a rotating one, or the state of a recurrent layer). What follows goes on from there.
func (c *Cache) Truncate(n int) (int, error) {
	if n < 0 || n > c.base {
		return c.base, fmt.Errorf("truncate to %d tokens: %d are permanent", n, c.base)
	}
	if c.storage != nil {
		n = c.storage.Reach(n, c.base)
		c.storage.Truncate(n)
	}
	c.base, c.pending = n, 0
	c.drafted = min(c.drafted, n)
	return n, nil
}

// Reserve makes room for n tokens, those of a forward's rows that are not committed
// among them, so that forwards up to there lack no memory. It returns a
// *backend.MemoryError where there is too little, and takes nothing then.
func (c *Cache) Reserve(n int) error {
	if most := c.capacity + c.maxRows; n < 0 || n > most {
		return fmt.Errorf("reserve %d tokens: the cache has room for %d", n, most)
	}
	if c.storage == nil {
		return nil
	}
	return c.storage.Reserve(n)
}

// Mark keeps the states of recurrent layers as they are now, so that Truncate and Fork
// can go back to here whatever follows. Only some marks are kept, those of all caches
// together; without such layers it does nothing.
func (c *Cache) Mark() {
	if c.storage != nil {
		c.storage.Mark(c.base)
	}
}

// Reach is how many tokens Truncate or Fork to n would come to.
func (c *Cache) Reach(n int) int {
	if c.storage == nil || n < 0 || n > c.base {
		return n
	}
	return c.storage.Reach(n, c.base)
}

// Fork returns a cache for up to capacity tokens, and maxRows a forward, that begins with
// the first n permanent ones, or with fewer where states do not go back to there
// (Reach). Both go on independently; the memory of full pages, and of states, is shared
// until one of them writes there.
func (c *Cache) Fork(n, capacity, maxRows int) (*Cache, error) {
	if n < 0 || n > c.base || n > capacity || maxRows <= 0 {
		return nil, fmt.Errorf("fork of %d tokens into a cache of %d: %d are permanent", n, capacity, c.base)
	}
	y := &Cache{base: n, capacity: capacity, maxRows: maxRows, logRows: c.logRows}
	if c.storage == nil {
		return y, nil
	}
	if c.logRows > 0 {
		y.base = c.storage.Reach(n, c.base)
	}
	y.drafted = min(c.drafted, y.base)
	var err error
	y.storage, err = c.storage.Fork(y.base, capacity+maxRows)
	if err != nil {
		return nil, err
	}
	return y, nil
}

// Close frees the storage.
func (c *Cache) Close() {
	if c.storage != nil {
		c.storage.Close()
		c.storage = nil
	}
}

// CacheOptions say how a sequence's keys and values are kept.
type CacheOptions struct {
	// Capacity is how many tokens may become permanent; MaxRows how many rows
	// one forward may add.
	Capacity, MaxRows int
	DType             backend.KVType
	// Window, where not 0, bounds the memory: the first Keep tokens and the
	// newest Window-Keep are kept. Capacity may then be larger than Window.
	Window, Keep int
	// StepRows is how many rows of a forward may be left uncommitted where layers have a
	// state; 0: architecture.DefaultStepRows. Each takes memory (Layout.StateBytes).
	StepRows int
}

// NewCache makes an empty cache for one sequence. Its memory grows with the
// tokens it holds.
func (m *Model) NewCache(o CacheOptions) (*Cache, error) {
	c := m.config
	if o.Capacity <= 0 || o.MaxRows <= 0 {
		return nil, fmt.Errorf("cache: capacity %d, rows %d: want positive numbers", o.Capacity, o.MaxRows)
	}
	if o.Capacity > c.MaxPositions {
		return nil, fmt.Errorf("cache: %d tokens, the model's context is %d", o.Capacity, c.MaxPositions)
	}
	if o.Window < 0 || o.Keep < 0 || (o.Window > 0 && o.Keep >= o.Window) {
		return nil, fmt.Errorf("cache: window %d, keep %d: want 0 ≤ keep < window", o.Window, o.Keep)
	}
	l := backend.Layout{Layers: m.stores, DType: o.DType, Slots: o.Capacity + o.MaxRows}
	if o.Window > 0 && o.Window < o.Capacity {
		l.Window, l.Keep, l.Slots = o.Window, o.Keep, o.Window+o.MaxRows
	}
	if o.StepRows < 0 {
		return nil, fmt.Errorf("cache: steps of %d rows: want 0 or more", o.StepRows)
	}
	if l.Recurrent() {
		if l.LogRows = o.StepRows; l.LogRows == 0 {
			l.LogRows = architecture.DefaultStepRows
		}
	}
	storage, err := m.backend.NewStorage(l)
	if err != nil {
		return nil, err
	}
	return &Cache{storage: storage, capacity: o.Capacity, maxRows: o.MaxRows, logRows: l.LogRows}, nil
}
