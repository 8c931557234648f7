package model

import (
	"fmt"
	"math"

	"windrow/architecture"
	"windrow/backend"
)

// block is the weights of one kind of layer.
type block interface {
	// load fetches them, in the layer that the loader is at. The architecture's
	// table says which tensors they are.
	load(l *loader)
	// list appends the operations of a layer to a forward's, and says what the layer
	// keeps of a token by the operations that store it.
	list(p *backend.Program, s *stream, layer int)
}

// denseBlock is attention, then SwiGLU, each added to its input and behind a
// norm.
type denseBlock struct {
	inputNorm, postNorm backend.Vector
	q, k, v, o          backend.Linear
	qNorm, kNorm        backend.Vector // per head, before RoPE; nil in Qwen2
	gate, up, down      backend.Linear
}

func (y *denseBlock) load(l *loader) {
	y.inputNorm = l.vector(architecture.AttentionNorm, architecture.ClassNorm)
	y.q = l.linear(architecture.Query)
	y.k = l.linear(architecture.Key)
	y.v = l.linear(architecture.Value)
	y.o = l.linear(architecture.Output)
	q, k := l.has(architecture.QueryNorm), l.has(architecture.KeyNorm)
	if q {
		y.qNorm = l.vector(architecture.QueryNorm, architecture.ClassNorm)
	}
	if k {
		y.kNorm = l.vector(architecture.KeyNorm, architecture.ClassNorm)
	}
	if q != k {
		l.fail(fmt.Errorf("layer %d: has only one of q_norm and k_norm", l.layer))
	}
	y.postNorm = l.vector(architecture.MLPNorm, architecture.ClassNorm)
	y.gate = l.linear(architecture.Gate)
	y.up = l.linear(architecture.Up)
	y.down = l.linear(architecture.Down)
	if !q && l.needs(architecture.QueryNorm) {
		l.fail(fmt.Errorf("layer %d: q_norm and k_norm are missing, which %s has", l.layer, l.config.Architecture))
	}
}

func (y *denseBlock) list(p *backend.Program, s *stream, layer int) {
	c := s.config
	heads := backend.Heads{
		KVHeads: c.KVHeads, HeadDim: c.HeadDim, QNorm: y.qNorm, KNorm: y.kNorm, Eps: c.RMSNormEps, Rotation: s.rotation,
	}
	q, attn := s.buffer(p, "q", c.Heads*c.HeadDim), s.buffer(p, "attention", c.Heads*c.HeadDim)
	k, v := s.buffer(p, "k", c.KVHeads*c.HeadDim), s.buffer(p, "v", c.KVHeads*c.HeadDim)
	mlp := s.buffer(p, "mlp", c.IntermediateSize)

	p.RMSNorm(s.normed, s.x, y.inputNorm, c.RMSNormEps)
	p.Project([]backend.Buffer{q, k, v}, s.normed, []backend.Linear{y.q, y.k, y.v})
	p.RotateStore(q, k, v, heads, layer)
	p.Attend(attn, q, layer, float32(1/math.Sqrt(float64(c.HeadDim))))
	p.ProjectAdd(s.x, attn, y.o)
	p.RMSNorm(s.normed, s.x, y.postNorm, c.RMSNormEps)
	p.GatedProject(mlp, s.normed, y.gate, y.up)
	p.ProjectAdd(s.x, mlp, y.down)
}
