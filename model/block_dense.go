package model

import (
	"fmt"

	"windrow/architecture"
	"windrow/backend"
)

// block is the weights of one kind of layer.
type block interface {
	// load fetches them, in the layer that the loader is at. The architecture's
	// table says which tensors they are.
	load(l *loader)
}

// layer is what a forward lists the operations of.
type layer = denseBlock

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
