package model

import (
	"windrow/architecture"
	"windrow/backend"
	"windrow/checkpoint"
)

// layersOfAllKinds is how many of the first layers have one of each kind, where the host
// has the experts of some.
func layersOfAllKinds(c *checkpoint.Config, hosted int) (n int) {
	type kind struct{ recurrent, sparse, hosted bool }
	seen := map[kind]bool{}
	for i := range c.Layers {
		if k := (kind{c.Recurrent(i), c.Sparse(i), c.Sparse(i) && i < hosted}); !seen[k] {
			seen[k], n = true, i+1
		}
	}
	return n
}

// loadLayers loads layers from to end-1.
func (m *Model) loadLayers(l *loader, from, end int) error {
	for i := from; i < end; i++ {
		m.blocks[i] = newLayer(m.config, i)
		if err := l.block(i, m.blocks[i]); err != nil {
			return err
		}
	}
	l.layer = architecture.Model
	return l.err
}

// preview tells a backend that can use it of a part of a program, of rows that are there.
func (m *Model) preview(rotation backend.Rotation, list func(*backend.Program, *stream)) {
	if b, ok := m.backend.(backend.Previewer); ok {
		p, s := m.begin(rotation)
		list(p, s)
		b.Preview(p)
	}
}
