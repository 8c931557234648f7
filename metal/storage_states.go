package metal

import (
	"errors"
	"fmt"

	"windrow/backend"
)

// states are those of all layers of one sequence, in memory of the device.
type states struct {
	view
	layout *backend.Layout
}

// layer is where the parts of a layer with a state lie.
func (s *states) layer(number int) (y stateView) {
	at, rows := s.view, s.layout.LogRows
	for i, shape := range s.layout.States() {
		for _, p := range []struct {
			to *view
			n  int
		}{{&y.state, shape.Size()}, {&y.keys, rows * shape.Keys()}, {&y.deltas, rows * shape.Values()}, {&y.decays, rows * shape.ValueHeads}, {&y.raw, shape.RawRows(rows) * shape.Channels()}} {
			*p.to = at
			at = at.at(4 * p.n)
		}
		if i == number {
			return y
		}
	}
	panic(fmt.Sprintf("metal: a state of layer %d", number))
}

// statePool makes states of a layout.
type statePool struct {
	b      *Backend
	layout backend.Layout
}

func (p *statePool) Take() (*states, error) {
	n := int(p.layout.StateBytes())
	if most := p.b.memory.maxBuffer(); n > most {
		return nil, fmt.Errorf("metal: states of %d bytes; a buffer takes %d", n, most)
	}
	v, err := p.b.memory.alloc(n, elemF32)
	if err != nil && p.b.trim() {
		v, err = p.b.memory.alloc(n, elemF32)
	}
	if err != nil {
		return nil, err
	}
	return &states{v, &p.layout}, nil
}

// Give frees them: what the GPU still does with them it ends.
func (p *statePool) Give(s *states) {
	if p.b.memory != nil {
		p.b.memory.free(s.view)
	}
}

// begin sees to pages and states for some rows behind base indices. Marks go where there
// is no memory.
func (c *storage) begin(base, rows int) error {
	for {
		err := c.Writable(base, base+rows)
		if err == nil && c.states != nil {
			err = c.states.Begin(base, rows)
		}
		if lacks := (*backend.MemoryError)(nil); c.states == nil || !errors.As(err, &lacks) || !c.b.marks.Evict() {
			return err
		}
	}
}

// Bytes is what pages and states take.
func (c *storage) Bytes() int64 {
	n := c.Table.Bytes()
	if c.states != nil {
		n += c.states.Bytes()
	}
	return n
}

// Reach is how far pages and states go back, both.
func (c *storage) Reach(n, base int) int {
	n = c.Table.Reach(n, base)
	if c.states == nil {
		return n
	}
	return c.Table.Reach(c.states.Reach(n), base)
}

// Truncate holds the states behind n indices until the next forward.
func (c *storage) Truncate(n int) {
	if c.states != nil {
		c.states.Truncate(n)
	}
}

// Mark keeps the states behind base indices.
func (c *storage) Mark(base int) {
	if c.states != nil {
		c.states.Mark(base)
	}
}
