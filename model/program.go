package model

import (
	"math"

	"windrow/backend"
	"windrow/checkpoint"
)

// compile lists the operations of a forward, once for all forwards, and hands
// them to the backend.
func (m *Model) compile(rotation backend.Rotation, bars backend.Bars) (err error) {
	c := m.config
	p := new(backend.Program)
	b := buffers{
		x: p.Buffer(c.HiddenSize), h: p.Buffer(c.HiddenSize),
		q: p.Buffer(c.Heads * c.HeadDim), attn: p.Buffer(c.Heads * c.HeadDim),
		k: p.Buffer(c.KVHeads * c.HeadDim), v: p.Buffer(c.KVHeads * c.HeadDim),
		mlp: p.Buffer(c.IntermediateSize),
	}
	p.Embed(b.x, m.embed)
	p.Tap(b.x)
	for i := range m.layers {
		m.layers[i].list(p, c, &b, rotation, i)
		if i < len(m.layers)-1 {
			p.Tap(b.x)
		}
	}
	p.TapNormed(b.x, b.h, m.norm, c.RMSNormEps)
	p.Head(b.x, m.norm, c.RMSNormEps, m.head, bars)
	m.stores = p.Stores()
	m.forward, err = m.backend.Compile(p)
	return err
}

// buffers are the activations of a forward: the residual stream, its normed form,
// and what a block makes.
type buffers struct{ x, h, q, k, v, attn, mlp backend.Buffer }

// list appends the operations of a layer.
func (y *layer) list(p *backend.Program, c *checkpoint.Config, b *buffers, rotation backend.Rotation, i int) {
	heads := backend.Heads{
		KVHeads: c.KVHeads, HeadDim: c.HeadDim, QNorm: y.qNorm, KNorm: y.kNorm, Eps: c.RMSNormEps, Rotation: rotation,
	}
	p.RMSNorm(b.h, b.x, y.inputNorm, c.RMSNormEps)
	p.Project([]backend.Buffer{b.q, b.k, b.v}, b.h, []backend.Linear{y.q, y.k, y.v})
	p.RotateStore(b.q, b.k, b.v, heads, i)
	p.Attend(b.attn, b.q, i, float32(1/math.Sqrt(float64(c.HeadDim))))
	p.ProjectAdd(b.x, b.attn, y.o)
	p.RMSNorm(b.h, b.x, y.postNorm, c.RMSNormEps)
	p.GatedProject(b.mlp, b.h, y.gate, y.up)
	p.ProjectAdd(b.x, b.mlp, y.down)
}
