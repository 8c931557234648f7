package cuda

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/cuda/emulator"
)

func openCUDA(t testing.TB) *Backend {
	t.Helper()
	b, err := New(Options{Library: emulator.Driver(t)})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// host runs steps of one shape.
type host struct {
	t testing.TB
	y *toy
	v backend.Values
	f *forward
}

// startHost opens a backend with a toy of bf16 and its cache, and a host on it.
func startHost(t testing.TB, layers, rows int) *host {
	t.Helper()
	b := openCUDA(t)
	t.Cleanup(func() { b.Close() })
	y := newToy(t, b, backend.BF16, layers, 1)
	kv := y.kv(t)
	t.Cleanup(kv.Close)
	return &host{t: t, y: y, v: values(kv, 0, rows), f: y.list().rest(nil).compile(t)}
}

// move sets where the next step begins in the cache, and its first position.
func (h *host) move(base, position int) {
	h.v.Spans[0].Base = base
	for r := range h.v.Positions {
		h.v.Positions[r] = int32(position + r)
	}
}

// run is a whole step.
func (h *host) run() []backend.Result {
	h.t.Helper()
	results, err := run(h.f, h.v)
	if err != nil {
		h.t.Fatal(err)
	}
	return results
}

// step is what comes before the launch of one; it reports whether the graph was found
// without planning.
func (h *host) step() bool {
	h.t.Helper()
	f, b := h.f, h.y.b
	if err := check(context.Background(), f.program, &h.v); err != nil {
		h.t.Fatal(err)
	}
	if err := f.set(&h.v, h.v.Spans); err != nil {
		h.t.Fatal(err)
	}
	found := f.find(f.rest(false))
	if found {
		f.values.Write(b.step.Host.Bytes(), f.now.shape, b.step.Device)
	}
	f.forget()
	return found
}

// TestStepsAllocateNothing: an equal step is not planned again, and allocates nothing
// but its results: one, and one a row.
func TestStepsAllocateNothing(t *testing.T) {
	h := startHost(t, 2, 3)
	if h.step() {
		t.Fatal("the graph of a forward that never ran")
	}
	h.run()
	if n := testing.AllocsPerRun(20, func() {
		if !h.step() {
			t.Fatal("an equal step was planned")
		}
	}); n != 0 {
		t.Errorf("what comes before the launch allocates %v times", n)
	}
	if n := testing.AllocsPerRun(3, func() { h.run() }); n > 4 {
		t.Errorf("a step allocates %v times, want 4", n)
	}
	h.y.b.graphs.drop(nil)
	if h.step() {
		t.Error("a graph that is gone")
	}
}

// BenchmarkStart is what the host does before the launch of a step of a model of 36
// layers.
func BenchmarkStart(b *testing.B) {
	for _, rows := range []int{1, 16} {
		b.Run(fmt.Sprintf("%d rows", rows), func(b *testing.B) {
			h := startHost(b, 36, rows)
			h.run()
			b.ReportAllocs()
			for b.Loop() {
				if !h.step() {
					b.Fatal("an equal step was planned")
				}
			}
		})
	}
}

// script is a random sequence of forwards of several programs on one backend: what it
// draws does not depend on the backend.
type script struct {
	t     *testing.T
	r     *rand.Rand
	toys  [3]*toy
	lists [3][]*forward // of each toy
	seqs  [3]sequence
	fresh bool // forget all graphs before each forward
	seen  int  // forwards whose graph was found without planning
}

type sequence struct {
	kv   backend.Storage
	base int
}

func newScript(t *testing.T, b *Backend) *script {
	s := &script{t: t, r: rand.New(rand.NewPCG(11, 5))}
	for i, dt := range []backend.DType{backend.BF16, backend.BF16, backend.Affine4} {
		y := newToy(t, b, dt, 2, uint64(i))
		s.toys[i] = y
		for kind := range 4 {
			s.lists[i] = append(s.lists[i], y.program(kind).compile(t))
		}
	}
	return s
}

// program is one of four: plain, with Taps between its operations, one that ends with
// norms that only a Tap reads, and one that embeds again.
func (y *toy) program(kind int) *listing {
	p := y.list()
	switch kind {
	case 1:
		p.Tap(p.x)
		return p.rest(func(layer int) {
			p.Tap(p.x)
			p.Tap(p.attn) // never in f32 but for this
			p.TapNormed(p.x, p.h, y.norm, 1)
		})
	case 2:
		p.Tap(p.x)
		for i := range y.layers {
			p.layer(i)
		}
		p.RMSNorm(p.h, p.x, y.norm, 2)
		p.Tap(p.h)
		p.Tap(p.mlp)
		p.Head(p.h, y.norm, 1e-6, y.head, backend.Bars{Limit: 90, Except: 7})
		return p
	case 3:
		more := p.Buffer(y.hidden)
		p.Embed(more, y.embed)
		p.ProjectAdd(p.x, more, y.square)
		return p.rest(nil)
	}
	return p.rest(nil)
}

// forward runs one and returns all that it says.
func (s *script) forward(b *Backend) (out []float32) {
	toy := 0
	if s.r.IntN(3) == 0 {
		toy = 1 + s.r.IntN(2)
	}
	usual := s.r.IntN(3) != 0 // a row or 16 of one sequence, the last one wanted
	y, f := s.toys[toy], s.lists[toy][0]
	if s.r.IntN(3) == 0 {
		f = s.lists[toy][1+s.r.IntN(3)]
	}
	v := s.values(y, usual)
	if s.r.IntN(8) == 0 {
		v.Tap = func(_ int, states []float32) { out = append(out, states...) }
	}
	if s.r.IntN(12) == 0 {
		v.Want = nil
	}
	s.refused(f, v)
	if s.fresh {
		b.graphs.drop(nil)
	}
	if len(b.graphs.list) > 0 && s.known(f, v) {
		s.seen++
	}
	if err := f.Start(s.t.Context(), v); err != nil {
		s.t.Fatal(err)
	}
	if err := s.lists[0][0].Start(s.t.Context(), v); !errors.Is(err, errRuns) {
		s.t.Fatalf("a forward began while another one runs: %v", err)
	}
	clear(v.Tokens)
	clear(v.Positions)
	clear(v.Spans)
	results, err := f.Wait()
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := f.Wait(); !errors.Is(err, errNotStarted) {
		s.t.Fatalf("results twice: %v", err)
	}
	return append(out, numbers(results)...)
}

// known reports whether there is a graph of a forward already.
func (s *script) known(f *forward, v backend.Values) bool {
	f.b.device.Context.Enter()
	defer f.b.device.Context.Leave()
	if err := f.set(&v, v.Spans); err != nil {
		s.t.Fatal(err)
	}
	return f.b.graphs.find(f, &f.now.geometry) != nil
}

// values are of one sequence or some, whose bases move on.
func (s *script) values(y *toy, usual bool) backend.Values {
	rowsOf := []int{1, 2, 9, 40}
	var v backend.Values
	total := 0
	for i := range s.seqs {
		q := &s.seqs[i]
		rows := rowsOf[s.r.IntN(len(rowsOf))]
		if usual {
			rows = []int{1, 1, 16}[s.r.IntN(3)]
		}
		if i > 0 && (usual || s.r.IntN(3) != 0) {
			continue
		}
		if q.kv == nil || q.base+rows > 160 { // over chunks of 64 slots: 1, 2, 4
			if q.kv != nil {
				q.kv.Close()
			}
			*q = sequence{kv: y.kv(s.t)}
		}
		v.Spans = append(v.Spans, backend.Span{Storage: q.kv, Base: q.base, First: total, Rows: rows})
		total += rows
		if s.r.IntN(3) != 0 {
			q.base += rows
		}
	}
	first := s.r.IntN(600)
	for i := range total {
		v.Tokens, v.Positions = append(v.Tokens, int32(s.r.IntN(96))), append(v.Positions, int32(first+i))
		if i == total-1 || !usual && s.r.IntN(5) == 0 {
			w := backend.Wanted{Row: int32(i), TopK: 1, Logits: s.r.IntN(3) == 0}
			if !usual {
				w.TopK += s.r.IntN(2)
			}
			v.Want = append(v.Want, w)
		}
	}
	return v
}

// refused starts a forward with values that cannot be.
func (s *script) refused(f *forward, v backend.Values) {
	switch s.r.IntN(6) {
	case 0:
		v.Tokens = append([]int32{96}, v.Tokens[1:]...)
	case 1:
		closed := s.toys[0].kv(s.t)
		closed.Close()
		v.Spans = []backend.Span{{Storage: closed, Rows: len(v.Tokens)}}
	case 2:
		v.Want = []backend.Wanted{{Row: int32(len(v.Tokens))}}
	default:
		return
	}
	if err := f.Start(s.t.Context(), v); err == nil {
		s.t.Fatalf("started with %+v", v)
	}
	if _, err := f.Wait(); err == nil {
		s.t.Fatal("results of a forward that never started")
	}
}

// numbers are all that results say.
func numbers(results []backend.Result) (out []float32) {
	for _, r := range results {
		out = append(out, r.Entropy, r.LogSumExp, float32(r.Argmax))
		out = append(out, r.Logits...)
		for _, c := range r.Top {
			out = append(out, float32(c.ID), c.Logit)
		}
	}
	return out
}

// TestForwards runs forwards of programs of changing shapes, weights, contexts and
// Taps, and ones that are refused, on two backends, one of which forgets all graphs
// before each. Their bits are equal.
func TestForwards(t *testing.T) {
	a, b := openCUDA(t), openCUDA(t)
	defer a.Close()
	defer b.Close()
	one, other := newScript(t, a), newScript(t, b)
	other.fresh = true
	for i := range 100 {
		got, want := one.forward(a), other.forward(b)
		if len(got) != len(want) {
			t.Fatalf("forward %d: %d numbers, want %d", i, len(got), len(want))
		}
		if err := vectors.Equal(got, want); err != nil {
			t.Fatalf("forward %d: %v", i, err)
		}
	}
	if one.seen < 10 || other.seen != 0 {
		t.Errorf("%d forwards of 100 had graphs, and %d where all are forgotten; want 10 or more, and none", one.seen, other.seen)
	}
	graphs := len(a.graphs.list)
	one.lists[0][0].Close()
	if n := len(a.graphs.list); n == 0 || n >= graphs {
		t.Errorf("%d graphs, and %d once a program is closed", graphs, n)
	}
	if err := one.lists[0][0].Start(t.Context(), backend.Values{}); !errors.Is(err, errGone) {
		t.Errorf("a closed program: %v", err)
	}
}

// A backend keeps so many graphs and no more: the one that was not used for longest
// goes.
func TestGraphsBounded(t *testing.T) {
	h := startHost(t, 1, 1)
	b := h.y.b
	h.run()
	first := b.graphs.list[0]
	for len(b.graphs.list) < maxGraphs {
		f := h.y.list().rest(nil).compile(t)
		if _, err := run(f, h.v); err != nil {
			t.Fatal(err)
		}
		if len(b.graphs.list)%50 == 0 {
			h.run()
		}
	}
	second := b.graphs.list[maxGraphs-1]
	if second == first {
		t.Fatal("the graph that was used is the oldest")
	}
	f := h.y.list().rest(nil).compile(t)
	if _, err := run(f, h.v); err != nil {
		t.Fatal(err)
	}
	if n := len(b.graphs.list); n != maxGraphs || b.graphs.find(second.f, &second.geometry) != nil || b.graphs.find(f, &f.now.geometry) == nil {
		t.Errorf("%d graphs, want %d: without the oldest, with the newest", n, maxGraphs)
	}
}
