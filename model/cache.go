package model

import (
	"fmt"

	"windrow/backend"
)

// Cache is one sequence's keys and values. Base tokens of it are permanent;
// what lies past Base is scratch of the last forward, which the next forward
// overwrites unless Commit keeps some of it. A cancelled step needs no undo.
type Cache struct {
	kv       backend.KV // nil: a cache that only counts, for planners under test
	base     int
	pending  int // rows of the last forward, not yet committed
	capacity int
	maxRows  int
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

// Bytes is what the storage takes now.
func (c *Cache) Bytes() int64 {
	if c.kv == nil {
		return 0
	}
	return c.kv.Bytes()
}

// Stage notes that a forward has written rows past Base. Model.Forward calls
// it; so does a scripted stand-in for one.
func (c *Cache) Stage(rows int) { c.pending = rows }

// Commit makes the first n rows of the last forward permanent.
func (c *Cache) Commit(n int) error {
	if n < 0 || n > c.pending {
		return fmt.Errorf("commit %d rows of a forward of %d", n, c.pending)
	}
	if c.base+n > c.capacity {
		return fmt.Errorf("commit to %d tokens: the cache holds %d", c.base+n, c.capacity)
	}
	c.base += n
	c.pending = 0
	return nil
}

// Truncate forgets all but the first n permanent tokens. A rotating cache can
// only go back to tokens it still holds.
func (c *Cache) Truncate(n int) error {
	if n < 0 || n > c.base {
		return fmt.Errorf("truncate to %d tokens: %d are permanent", n, c.base)
	}
	if c.kv != nil {
		if l := c.kv.Layout(); l.Window != 0 && c.base > l.Window && n != c.base && n != 0 {
			return fmt.Errorf("truncate to %d tokens: a rotating cache of %d has dropped part of them", n, l.Window)
		}
	}
	c.base, c.pending = n, 0
	return nil
}

// Close frees the storage.
func (c *Cache) Close() {
	if c.kv != nil {
		c.kv.Close()
		c.kv = nil
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
	l := backend.KVLayout{Layers: c.Layers, KVHeads: c.KVHeads, HeadDim: c.HeadDim, DType: o.DType, Slots: o.Capacity + o.MaxRows}
	if o.Window > 0 && o.Window < o.Capacity {
		l.Window, l.Keep, l.Slots = o.Window, o.Keep, o.Window+o.MaxRows
	}
	kv, err := m.backend.NewKV(l)
	if err != nil {
		return nil, err
	}
	return &Cache{kv: kv, capacity: o.Capacity, maxRows: o.MaxRows}, nil
}
