package metal

import (
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
