package cuda

import (
	"math/rand/v2"
	"testing"

	"windrow/backend"
	"windrow/backend/vectors"
)

// toy is a small model of random weights on one backend: enough of one that
// its passes record what a real model's do.
type toy struct {
	b                        *Backend
	layers                   []toyLayer
	embed, head              backend.Matrix
	norm                     backend.Vector
	layout                   backend.KVLayout
	hidden, queries, keys    int // widths
	inner                    int
	targets                  [3]backend.Buffer
	cos, sin                 []float32
	x, h, q, k, v, attn, mlp backend.Buffer
	without                  string // the part of layers that benchmarks leave out
}

type toyLayer struct {
	input, post       backend.Vector
	qkv               [3]backend.Linear
	o, gate, up, down backend.Linear
}

// newToy makes the same weights of type dt for the same seed.
func newToy(t testing.TB, b *Backend, dt backend.DType, layers int, seed uint64) *toy {
	t.Helper()
	const hidden, heads, kvHeads, dim, inner, vocabulary = 64, 2, 1, 64, 128, 96
	r := rand.New(rand.NewPCG(seed, 3))
	matrix := func(out, in int) backend.Matrix {
		m, err := b.Matrix(*vectors.Tensor(r, dt, out, in, 64))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	linear := func(out, in int) backend.Linear { return backend.Linear{Weight: matrix(out, in)} }
	vector := func() backend.Vector {
		x := vectors.Tensor(r, backend.F32, 1, hidden, 0)
		x.Shape = []int{hidden}
		v, err := b.Vector(*x)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	y := &toy{
		b: b, hidden: hidden, queries: heads * dim, keys: kvHeads * dim, inner: inner,
		layout: backend.KVLayout{Layers: layers, KVHeads: kvHeads, HeadDim: dim, DType: backend.KVBF16, Slots: 1 << 10},
		embed:  matrix(vocabulary, hidden), head: matrix(vocabulary, hidden), norm: vector(),
	}
	for range layers {
		y.layers = append(y.layers, toyLayer{
			input: vector(), post: vector(),
			qkv: [3]backend.Linear{linear(heads*dim, hidden), linear(kvHeads*dim, hidden), linear(kvHeads*dim, hidden)},
			o:   linear(hidden, heads*dim), gate: linear(inner, hidden), up: linear(inner, hidden), down: linear(hidden, inner),
		})
	}
	return y
}

// angles are those of the rows of a pass.
func (y *toy) angles(rows, base int) {
	y.cos, y.sin = y.cos[:0], y.sin[:0]
	for r := range rows {
		for c := range y.layout.HeadDim / 2 {
			y.cos = append(y.cos, 1/float32(1+(base+r+c)%5))
			y.sin = append(y.sin, float32((base+r)%7)/7)
		}
	}
}

// begin names the buffers of a pass.
func (y *toy) begin(p backend.Pass) {
	y.x, y.h = p.Buffer(y.hidden), p.Buffer(y.hidden)
	y.q, y.k, y.v = p.Buffer(y.queries), p.Buffer(y.keys), p.Buffer(y.keys)
	y.attn, y.mlp = p.Buffer(y.queries), p.Buffer(y.inner)
	y.targets = [3]backend.Buffer{y.q, y.k, y.v}
}

// layer enqueues one, but for what is left out of it.
func (y *toy) layer(p backend.Pass, spans []backend.Span, i int) {
	l := &y.layers[i]
	if y.without != "norms" {
		p.RMSNorm(y.h, y.x, l.input, 1e-6)
	}
	if y.without != "q k v" {
		p.Project(y.targets[:], y.h, l.qkv[:])
	}
	if y.without != "rotation" {
		p.RotateStore(y.q, y.k, y.v, backend.Heads{Eps: 1e-6, Cos: y.cos, Sin: y.sin}, spans, i)
	}
	if y.without != "attention" {
		p.Attend(y.attn, y.q, spans, i, 0.125)
	}
	if y.without != "o" {
		p.ProjectAdd(y.x, y.attn, l.o)
	}
	if y.without != "norms" {
		p.RMSNorm(y.h, y.x, l.post, 1e-6)
	}
	if y.without != "gate up" {
		p.GatedProject(y.mlp, y.h, l.gate, l.up)
	}
	if y.without != "down" {
		p.ProjectAdd(y.x, y.mlp, l.down)
	}
}

// record enqueues all layers, after begin. between, if not nil, is called after each of them.
func (y *toy) record(p backend.Pass, tokens []int32, spans []backend.Span, between func(layer int)) {
	p.Embed(y.x, y.embed, tokens)
	for i := range y.layers {
		y.layer(p, spans, i)
		if between != nil {
			between(i)
		}
	}
}

// kv is storage for one sequence.
func (y *toy) kv(t testing.TB) backend.KV {
	t.Helper()
	kv, err := y.b.NewKV(y.layout)
	if err != nil {
		t.Fatal(err)
	}
	return kv
}
