package model

import (
	"windrow/backend"
	"windrow/checkpoint"
)

// stream is what the blocks of a program share: the residual stream and its normed
// form, the rotation, and buffers that each of them may overwrite.
type stream struct {
	config    *checkpoint.Config
	rotation  backend.Rotation
	x, normed backend.Buffer
	buffers   map[string]backend.Buffer
}

// buffer is a buffer by what it holds: one for all layers.
func (s *stream) buffer(p *backend.Program, what string, width int) backend.Buffer {
	b, ok := s.buffers[what]
	if !ok {
		b = p.Buffer(width)
		s.buffers[what] = b
	}
	return b
}

// begin is an empty program.
func (m *Model) begin(rotation backend.Rotation) (*backend.Program, *stream) {
	c, p := m.config, new(backend.Program)
	return p, &stream{config: c, rotation: rotation, x: p.Buffer(c.HiddenSize), normed: p.Buffer(c.HiddenSize), buffers: map[string]backend.Buffer{}}
}

// compile lists the operations of a forward, once for all forwards, and hands
// them to the backend.
func (m *Model) compile(rotation backend.Rotation, bars backend.Bars) (err error) {
	c := m.config
	p, s := m.begin(rotation)
	p.Embed(s.x, m.embed)
	p.Tap(s.x)
	for i, b := range m.blocks {
		b.list(p, s, i)
		if i < len(m.blocks)-1 {
			p.Tap(s.x)
		}
	}
	p.TapNormed(s.x, s.normed, m.norm, c.RMSNormEps)
	p.Head(s.x, m.norm, c.RMSNormEps, m.head, bars)
	if m.drafts == nil {
		m.stores = p.Stores()
		m.forward, err = m.backend.Compile(p)
		return err
	}
	// Both programs run over one storage, which has the layers of both.
	if !m.backend.Features().HiddenRows {
		return &backend.UnsupportedError{Backend: m.backend.Name(), What: "hidden states in results, which a head for drafts takes"}
	}
	d := m.drafts
	d.rotation, d.bars = rotation, bars
	q := d.list(m, m.head)
	p.Beside(q.Stores())
	m.stores = p.Stores()
	if q.Beside(m.stores[:c.Layers]); q.Err() != nil {
		return q.Err()
	}
	if d.forward, err = m.backend.Compile(q); err != nil {
		return err
	}
	if m.forward, err = m.backend.Compile(p); err != nil {
		d.forward.Close()
	}
	return err
}
