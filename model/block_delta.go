package model

import (
	"windrow/architecture"
	"windrow/backend"
)

// deltaBlock is gated DeltaNet behind a norm.
type deltaBlock struct {
	norm backend.Vector
	// Queries, keys, values and z lie by key head in one projection, or z in one of its
	// own; b and a are one projection or two. The zero Linear: there is no such.
	qkvz, qkv, z, ba, b, a backend.Linear
	out                    backend.Linear
	taps, decay, step      backend.Vector
	head                   backend.Vector // norm of each value head
}

func (y *deltaBlock) load(l *loader) {
	y.norm = l.vector(architecture.AttentionNorm, architecture.ClassNorm)
	if y.qkvz = l.formOf(architecture.DeltaQKVZ); y.qkvz.Weight == nil {
		y.qkv, y.z = l.linear(architecture.DeltaQKV), l.linear(architecture.DeltaZ)
	}
	if y.ba = l.formOf(architecture.DeltaBA); y.ba.Weight == nil {
		y.b, y.a = l.linear(architecture.DeltaB), l.linear(architecture.DeltaA)
	}
	y.out = l.linear(architecture.DeltaOutput)
	y.taps = l.flat(architecture.DeltaConv, architecture.ClassOther)
	y.decay = l.vector(architecture.DeltaDecay, architecture.ClassOther)
	y.step = l.vector(architecture.DeltaTimeStep, architecture.ClassOther)
	y.head = l.vector(architecture.DeltaNorm, architecture.ClassNorm)
}

func (y *deltaBlock) list(p *backend.Program, s *stream, layer int) {
	d := s.config.Delta
	op := backend.Delta{
		StateShape: d.Shape(),
		Taps:       y.taps, LogDecay: y.decay, TimeStep: y.step, Norm: y.head, Eps: s.config.RMSNormEps,
	}
	r, keys := d.ValueHeads/d.KeyHeads, d.Keys()
	values := r * d.ValueDim // of a key head
	var dst []backend.Buffer
	var weights []backend.Linear
	add := func(what string, width int, w backend.Linear) backend.Buffer {
		b := s.buffer(p, what, width)
		dst, weights = append(dst, b), append(weights, w)
		return b
	}
	if y.qkvz.Weight != nil {
		b, stride := add("qkvz", 2*keys+2*d.Values(), y.qkvz), 2*d.KeyDim+2*values
		op.Q = backend.Strided{Buffer: b, Stride: stride}
		op.K = backend.Strided{Buffer: b, Stride: stride, First: d.KeyDim}
		op.V = backend.Strided{Buffer: b, Stride: stride, First: 2 * d.KeyDim}
		op.Z = backend.Strided{Buffer: b, Stride: stride, First: 2*d.KeyDim + values}
	} else {
		b := add("qkv", d.Channels(), y.qkv)
		op.Q = backend.Strided{Buffer: b, Stride: d.KeyDim}
		op.K = backend.Strided{Buffer: b, Stride: d.KeyDim, First: keys}
		op.V = backend.Strided{Buffer: b, Stride: values, First: 2 * keys}
		op.Z = backend.Strided{Buffer: add("z", d.Values(), y.z), Stride: values}
	}
	if y.ba.Weight != nil {
		b := add("ba", 2*d.ValueHeads, y.ba)
		op.B = backend.Strided{Buffer: b, Stride: 2 * r}
		op.A = backend.Strided{Buffer: b, Stride: 2 * r, First: r}
	} else {
		op.B = backend.Strided{Buffer: add("b", d.ValueHeads, y.b), Stride: r}
		op.A = backend.Strided{Buffer: add("a", d.ValueHeads, y.a), Stride: r}
	}
	mixed := s.buffer(p, "delta", d.Values())
	p.RMSNorm(s.normed, s.x, y.norm, s.config.RMSNormEps)
	p.Project(dst, s.normed, weights)
	p.Delta(mixed, op, layer)
	p.ProjectAdd(s.x, mixed, y.out)
}

// formOf is the projection of a role where the source has that form; the zero Linear
// where it has not.
func (l *loader) formOf(role architecture.Role) (y backend.Linear) {
	if l.err != nil {
		return y
	}
	if _, there := l.find(role, architecture.ClassProjection); there {
		y.Weight = l.matrix(role, architecture.ClassProjection)
	}
	return y
}
