package cuda

import (
	"context"
	"math/rand/v2"
	"testing"

	"windrow/backend"
	"windrow/backend/vectors"
)

// toy is a small model of random weights on one backend: enough of one that
// its programs list what a real model's do.
type toy struct {
	b                     *Backend
	layers                []toyLayer
	embed, head           backend.Matrix
	norm                  backend.Vector
	layout                backend.Layout
	rotation              backend.Rotation
	square                backend.Linear // of the residual; TestForwards
	hidden, queries, keys int            // widths
	inner                 int
}

// listing is a program of a toy, and its buffers.
type listing struct {
	*backend.Program
	y                        *toy
	targets                  []backend.Buffer
	x, h, q, k, v, attn, mlp backend.Buffer
}

type toyLayer struct {
	input, post       backend.Vector
	qkv               [3]backend.Linear
	o, gate, up, down backend.Linear
}

// newToy makes the same weights of type dt for the same seed.
func newToy(t testing.TB, b *Backend, dt backend.DType, layers int, seed uint64) *toy {
	t.Helper()
	return newToyOf(t, b, dt, 64, layers, seed)
}

// newToyOf is newToy with heads of another dimension.
func newToyOf(t testing.TB, b *Backend, dt backend.DType, dim, layers int, seed uint64) *toy {
	t.Helper()
	return newWideToy(t, b, dt, 64, dim, layers, seed)
}

// newWideToy is newToyOf with rows of other widths.
func newWideToy(t testing.TB, b *Backend, dt backend.DType, hidden, dim, layers int, seed uint64) *toy {
	t.Helper()
	const heads, kvHeads, inner, vocabulary = 2, 1, 128, 96
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
		b: b, rotation: toyRotation(t, b, dim), hidden: hidden, queries: heads * dim, keys: kvHeads * dim, inner: inner,
		layout: backend.KeysLayout(layers, kvHeads, dim, backend.KVBF16, 1<<10),
		embed:  matrix(vocabulary, hidden), head: matrix(vocabulary, hidden), norm: vector(),
	}
	for range layers {
		y.layers = append(y.layers, toyLayer{
			input: vector(), post: vector(),
			qkv: [3]backend.Linear{linear(heads*dim, hidden), linear(kvHeads*dim, hidden), linear(kvHeads*dim, hidden)},
			o:   linear(hidden, heads*dim), gate: linear(inner, hidden), up: linear(inner, hidden), down: linear(hidden, inner),
		})
	}
	y.square = linear(hidden, hidden)
	return y
}

// toyAngles are some for each position, of so many pairs.
type toyAngles int

func (n toyAngles) Pairs() int { return int(n) }

func (n toyAngles) Fill(cos, sin []float32, positions []int32) {
	for r, p := range positions {
		for c := range int(n) {
			cos[r*int(n)+c], sin[r*int(n)+c] = 1/float32(1+(int(p)+c)%5), float32(p%7)/7
		}
	}
}

func toyRotation(t testing.TB, b *Backend, dim int) backend.Rotation {
	t.Helper()
	r, err := b.Rotation(toyAngles(dim/2), 1<<14)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// list begins a program.
func (y *toy) list() *listing {
	p := &listing{Program: new(backend.Program), y: y}
	p.x, p.h = p.Buffer(y.hidden), p.Buffer(y.hidden)
	p.q, p.k, p.v = p.Buffer(y.queries), p.Buffer(y.keys), p.Buffer(y.keys)
	p.attn, p.mlp = p.Buffer(y.queries), p.Buffer(y.inner)
	p.targets = []backend.Buffer{p.q, p.k, p.v}
	p.Embed(p.x, y.embed)
	return p
}

// layer lists one.
func (p *listing) layer(i int) {
	y, l := p.y, &p.y.layers[i]
	p.RMSNorm(p.h, p.x, l.input, 1e-6)
	p.Project(p.targets, p.h, l.qkv[:])
	p.RotateStore(p.q, p.k, p.v, backend.Heads{KVHeads: y.layout.Keys().KVHeads, HeadDim: y.layout.Keys().HeadDim, Eps: 1e-6, Rotation: y.rotation}, i)
	p.Attend(p.attn, p.q, i, 0.125)
	p.ProjectAdd(p.x, p.attn, l.o)
	p.RMSNorm(p.h, p.x, l.post, 1e-6)
	p.GatedProject(p.mlp, p.h, l.gate, l.up)
	p.ProjectAdd(p.x, p.mlp, l.down)
}

// rest lists all layers and the head. between, if not nil, is called after each layer.
func (p *listing) rest(between func(layer int)) *listing {
	for i := range p.y.layers {
		p.layer(i)
		if between != nil {
			between(i)
		}
	}
	p.Head(p.x, p.y.norm, 1e-6, p.y.head, backend.NoBars)
	return p
}

// compile is the forward of a program.
func (p *listing) compile(t testing.TB) *forward {
	t.Helper()
	f, err := p.y.b.compile(p.Program)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// values are of a step of rows of one sequence, the best candidate of each wanted.
func values(kv backend.Storage, base, rows int) backend.Values {
	v := backend.Values{Tokens: make([]int32, rows), Positions: make([]int32, rows), Spans: []backend.Span{{Storage: kv, Base: base, Rows: rows}}, Want: bestOf(rows)}
	for r := range rows {
		v.Positions[r] = int32(base + r)
	}
	return v
}

// run is a whole forward.
func run(f backend.Forward, v backend.Values) ([]backend.Result, error) {
	if err := f.Start(context.Background(), v); err != nil {
		return nil, err
	}
	return f.Wait()
}

// kv is storage for one sequence.
func (y *toy) kv(t testing.TB) backend.Storage {
	t.Helper()
	kv, err := y.b.NewStorage(y.layout)
	if err == nil {
		err = kv.Reserve(y.layout.Slots / 2) // forwards may begin behind what nobody wrote
	}
	if err != nil {
		t.Fatal(err)
	}
	return kv
}
