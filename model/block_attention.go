package model

import (
	"fmt"
	"math"

	"windrow/architecture"
	"windrow/backend"
)

// attentionBlock is attention behind a norm.
type attentionBlock struct {
	norm         backend.Vector
	q, k, v, o   backend.Linear // q: of each head queries and, where the config says so, a gate
	qNorm, kNorm backend.Vector // per head, before RoPE; nil in Qwen2
}

func (y *attentionBlock) load(l *loader) {
	y.norm = l.vector(architecture.AttentionNorm, architecture.ClassNorm)
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
	if !q && l.needs(architecture.QueryNorm) {
		l.fail(fmt.Errorf("layer %d: q_norm and k_norm are missing, which %s has", l.layer, l.config.Architecture))
	}
}

func (y *attentionBlock) list(p *backend.Program, s *stream, layer int) {
	c := s.config
	heads := backend.Heads{
		KVHeads: c.KVHeads, HeadDim: c.HeadDim, QNorm: y.qNorm, KNorm: y.kNorm, Eps: c.RMSNormEps, Rotation: s.rotation,
		Gated: c.AttentionGate,
	}
	q, attn := s.buffer(p, "q", c.Heads*heads.QStride()), s.buffer(p, "attention", c.Heads*c.HeadDim)
	k, v := s.buffer(p, "k", c.KVHeads*c.HeadDim), s.buffer(p, "v", c.KVHeads*c.HeadDim)

	p.RMSNorm(s.normed, s.x, y.norm, c.RMSNormEps)
	p.Project([]backend.Buffer{q, k, v}, s.normed, []backend.Linear{y.q, y.k, y.v})
	p.RotateStore(q, k, v, heads, layer)
	p.Attend(attn, q, layer, float32(1/math.Sqrt(float64(c.HeadDim))))
	p.ProjectAdd(s.x, attn, y.o)
}
