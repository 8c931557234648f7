package cuda

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"windrow/backend"
	"windrow/backend/vectors"
)

func openCUDA(t testing.TB) *Backend {
	t.Helper()
	b, err := New(Options{Library: testLibrary(t)})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// host is the host's part of steps of one shape, without the launch: recording,
// finding the graph, filling the step block.
type host struct {
	t      testing.TB
	y      *toy
	tokens []int32
	spans  []backend.Span
}

func newHost(t testing.TB, y *toy, kv backend.KV, rows int) *host {
	y.angles(rows, 0)
	return &host{t: t, y: y, tokens: make([]int32, rows), spans: []backend.Span{{KV: kv, Rows: rows}}}
}

func (h *host) record() *pass {
	p, err := h.y.b.Begin(len(h.tokens))
	if err != nil {
		h.t.Fatal(err)
	}
	h.y.begin(p)
	h.y.record(p, h.tokens, h.spans, nil)
	return p.(*pass)
}

// run is a whole step.
func (h *host) run() {
	if err := h.record().End(); err != nil {
		h.t.Fatal(err)
	}
}

// step is one without its launch; it tells whether the graph was found without
// planning.
func (h *host) step() bool {
	p, b := h.record(), h.y.b
	p.plan.geometry = p.geometry()
	found := p.recall(nil) != nil
	if found {
		p.values.write(b.step.host.Bytes(), p.plan.shape, b.step.device)
	}
	p.forget()
	p.open = false
	return found
}

// TestStepsAllocateNothing holds the host's part of a step that equals one
// before it to no allocation and no planning.
func TestStepsAllocateNothing(t *testing.T) {
	b := openCUDA(t)
	defer b.Close()
	y := newToy(t, b, backend.BF16, 2, 1)
	kv := y.kv(t)
	defer kv.Close()
	h := newHost(t, y, kv, 3)
	if h.step() {
		t.Fatal("the graph of a pass that never ran")
	}
	h.run()
	if n := testing.AllocsPerRun(20, func() {
		if !h.step() {
			t.Fatal("an equal step was planned")
		}
	}); n != 0 {
		t.Errorf("a step allocates %v times", n)
	}
	b.graphs.clear()
	if h.step() {
		t.Error("a graph that is gone")
	}
}

// BenchmarkRecording is the host's part of a step of a model of 36 layers.
func BenchmarkRecording(b *testing.B) {
	for _, rows := range []int{1, 16} {
		b.Run(fmt.Sprintf("%d rows", rows), func(b *testing.B) {
			back := openCUDA(b)
			defer back.Close()
			y := newToy(b, back, backend.BF16, 36, 1)
			kv := y.kv(b)
			defer kv.Close()
			h := newHost(b, y, kv, rows)
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

// script is a random sequence of passes: what it draws does not depend on the
// backend.
type script struct {
	t    *testing.T
	r    *rand.Rand
	toys [3]*toy
	seqs [3]sequence
	last int // kind of pass
	seen int // passes whose graph was found without planning
}

type sequence struct {
	kv   backend.KV
	base int
}

func newScript(t *testing.T, b *Backend) *script {
	s := &script{t: t, r: rand.New(rand.NewPCG(11, 5))}
	for i, dt := range []backend.DType{backend.BF16, backend.BF16, backend.Affine4} {
		s.toys[i] = newToy(t, b, dt, 2, uint64(i))
	}
	return s
}

// pass runs one pass and returns all that it computed.
func (s *script) pass(b *Backend) (out []float32) {
	y := s.toys[0]
	if s.r.IntN(3) == 0 {
		y = s.toys[1+s.r.IntN(2)]
	}
	usual := s.r.IntN(3) != 0 // a row or 16 of one sequence, the last one wanted
	what := s.r.IntN(14)
	if s.last == 7 {
		what = 0
	}
	pair := what == 7 || s.last == 7 // alike but for what came before
	s.last = what
	if pair {
		y, usual = s.toys[0], true
	}
	rowsOf := []int{1, 2, 9, 40}
	var spans []backend.Span
	total := 0
	for i := range s.seqs {
		q := &s.seqs[i]
		rows := rowsOf[s.r.IntN(len(rowsOf))]
		if usual {
			rows = []int{1, 1, 16}[s.r.IntN(3)]
		}
		if pair {
			rows = 1
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
		spans = append(spans, backend.Span{KV: q.kv, Base: q.base, First: total, Rows: rows})
		total += rows
		if s.r.IntN(3) != 0 && what != 2 && what != 7 {
			q.base += rows
		}
	}
	tokens := make([]int32, total)
	for i := range tokens {
		tokens[i] = int32(s.r.IntN(96))
	}
	want := backend.Want{TopK: 1, Except: -1, Logits: s.r.IntN(3) == 0}
	if !usual {
		want.TopK += s.r.IntN(2)
	}
	for i := range total {
		if i == total-1 || !usual && s.r.IntN(5) == 0 {
			want.Rows = append(want.Rows, int32(i))
		}
	}
	y.angles(total, s.r.IntN(50))
	first, err := b.Begin(total)
	if err != nil {
		s.t.Fatal(err)
	}
	p := first.(*pass)
	y.begin(p)
	if what == 7 { // of what nobody wrote: the same operations as those after a Read between layers
		y.layer(p, spans, 1)
		p.Results(y.x, y.norm, 1e-6, y.head, want)
		p.End()
		return nil
	}
	if what == 0 {
		p.Read(y.h) // undefined, and now the first in memory
	}
	y.record(p, tokens, spans, func(layer int) {
		switch {
		case what == 0 && layer == 0:
			out = append(out, p.Read(y.x)...)
		case what == 1 && layer == 0:
			out = append(out, p.Read(y.attn)...)
		case what == 2 && layer == 1:
			p.Project([]backend.Buffer{y.q}, y.mlp, s.toys[0].layers[0].qkv[:1]) // of another width
		}
	})
	if what == 3 { // another eps of the last operation
		p.RMSNorm(y.h, y.x, y.norm, float32(1+s.r.IntN(2)))
		out = append(out, p.Read(y.h)...)
	}
	if what != 4 {
		results, err := p.Results(y.x, y.norm, 1e-6, y.head, want)
		if (err != nil) != (what == 2) {
			s.t.Fatalf("a pass of kind %d: error %v", what, err)
		}
		if err == nil && len(p.plan.actions) == 0 {
			s.seen++
		}
		for _, r := range results {
			out = append(out, r.Entropy, r.LogSumExp, float32(r.Argmax))
			out = append(out, r.Logits...)
			for _, c := range r.Top {
				out = append(out, float32(c.ID), c.Logit)
			}
		}
	}
	if what == 5 || what == 6 { // the first was never in f32
		out = append(out, p.Read(y.attn)...)
		out = append(out, p.Read(y.x)...)
	}
	if err := p.End(); (err != nil) != (what == 2) {
		s.t.Fatalf("a pass of kind %d: error %v", what, err)
	}
	return out
}

// TestRecall runs passes of changing shapes, weights, contexts and readers, and
// ones that fail, on two backends of which one forgets all graphs before each
// pass: their bits are equal.
func TestRecall(t *testing.T) {
	a, b := openCUDA(t), openCUDA(t)
	defer a.Close()
	defer b.Close()
	one, other := newScript(t, a), newScript(t, b)
	for i := range 100 {
		b.graphs.clear()
		got, want := one.pass(a), other.pass(b)
		if len(got) != len(want) {
			t.Fatalf("pass %d: %d numbers, want %d", i, len(got), len(want))
		}
		if err := vectors.Equal(got, want); err != nil {
			t.Fatalf("pass %d: %v", i, err)
		}
	}
	if one.seen < 10 || other.seen != 0 {
		t.Errorf("%d passes of 100 were found, and %d where nothing is remembered; want 10 or more, and none", one.seen, other.seen)
	}
}
