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

// host runs steps of one shape, of operations that are kept.
type host struct {
	t    testing.TB
	y    *toy
	v    backend.Values
	kept *kept
}

// startHost opens a backend with a toy of bf16 and its cache, and a host on it.
func startHost(t testing.TB, layers, rows int) *host {
	t.Helper()
	b := openCUDA(t)
	t.Cleanup(func() { b.Close() })
	y := newToy(t, b, backend.BF16, layers, 1)
	kv := y.kv(t)
	t.Cleanup(kv.Close)
	return newHost(t, y, kv, rows)
}

func newHost(t testing.TB, y *toy, kv backend.KV, rows int) *host {
	t.Helper()
	h, err := tryHost(t, y, kv, rows)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// tryHost fails where results are not finite.
func tryHost(t testing.TB, y *toy, kv backend.KV, rows int) (*host, error) {
	y.angles(rows, 0)
	h := &host{t: t, y: y, v: backend.Values{
		Tokens: make([]int32, rows), Cos: y.cos, Sin: y.sin,
		Spans: []backend.Span{{KV: kv, Rows: rows}}, Want: bestOf(rows),
	}}
	p, err := y.b.Begin(rows)
	if err != nil {
		return nil, err
	}
	y.begin(p)
	y.record(p, h.v.Tokens, h.v.Spans, nil)
	if _, err := p.Results(y.x, y.norm, 1e-6, y.head, h.v.Want); err != nil {
		p.End()
		return nil, err
	}
	k, err := p.(backend.Keeper).Keep()
	if err != nil {
		return nil, err
	}
	h.kept = k.(*kept)
	return h, nil
}

// run is a whole step.
func (h *host) run() []backend.Result {
	h.t.Helper()
	if err := h.kept.Start(h.v); err != nil {
		h.t.Fatal(err)
	}
	results, err := h.kept.Wait()
	if err != nil {
		h.t.Fatal(err)
	}
	return results
}

// step is what comes before the launch of one; it tells whether the graph was found
// without planning.
func (h *host) step() bool {
	b := h.y.b
	first, err := b.Begin(len(h.v.Tokens))
	if err != nil {
		h.t.Fatal(err)
	}
	p := first.(*pass)
	p.use(h.kept)
	p.fill(h.kept, h.v)
	p.wantRows(candidates{1, 96, -1}, h.v.Want.Rows)
	p.plan.geometry = p.geometry(p.values.spans)
	found := p.recall() != nil
	if found {
		p.values.write(b.step.host.Bytes(), p.plan.shape, b.step.device)
	}
	p.forget()
	if err := p.End(); err != nil {
		h.t.Fatal(err)
	}
	return found
}

// TestStepsAllocateNothing holds a step of kept operations to no planning, and to no
// allocation but for its results: one, and one a row.
func TestStepsAllocateNothing(t *testing.T) {
	h := startHost(t, 2, 3)
	if h.step() {
		t.Fatal("the graph of a pass that never ran")
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
	h.y.b.graphs.clear()
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

// script is a random sequence of passes: what it draws does not depend on the
// backend.
type script struct {
	t    *testing.T
	r    *rand.Rand
	toys [3]*toy
	kept [3]backend.Recording // of the toys; nil: none yet
	keep bool
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
	toy := 0
	if s.r.IntN(3) == 0 {
		toy = 1 + s.r.IntN(2)
	}
	usual := s.r.IntN(3) != 0 // a row or 16 of one sequence, the last one wanted
	what := s.r.IntN(14)
	if s.last == 7 {
		what = 0
	}
	pair := what == 7 || s.last == 7 // alike but for what came before
	s.last = what
	if pair {
		toy, usual = 0, true
	}
	y := s.toys[toy]
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
	plain := what > 7
	if k := s.kept[toy]; k != nil && plain {
		return s.again(b, k, backend.Values{Tokens: tokens, Cos: y.cos, Sin: y.sin, Spans: spans, Want: want})
	}
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
		out = append(out, numbers(results)...)
	}
	if what == 5 || what == 6 { // the first was never in f32
		out = append(out, p.Read(y.attn)...)
		out = append(out, p.Read(y.x)...)
	}
	if s.keep {
		k, err := p.Keep()
		if (err != nil) != (what == 2) || plain != (k != nil) {
			s.t.Fatalf("a pass of kind %d: kept %v, error %v", what, k, err)
		}
		if plain {
			s.kept[toy] = k
		}
		return out
	}
	if err := p.End(); (err != nil) != (what == 2) {
		s.t.Fatalf("a pass of kind %d: error %v", what, err)
	}
	return out
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

// again runs kept operations, after some values that they refuse.
func (s *script) again(b *Backend, k backend.Recording, v backend.Values) []float32 {
	closed := s.toys[0].kv(s.t)
	closed.Close()
	for what, change := range map[string]func(*backend.Values){
		"a token":       func(v *backend.Values) { v.Tokens = append([]int32{96}, v.Tokens[1:]...) },
		"angles":        func(v *backend.Values) { v.Sin = v.Sin[1:] },
		"a closed kv":   func(v *backend.Values) { v.Spans = []backend.Span{{KV: closed, Rows: len(v.Tokens)}} },
		"no span":       func(v *backend.Values) { v.Spans = nil },
		"no row":        func(v *backend.Values) { v.Tokens = nil },
		"no wanted row": func(v *backend.Values) { v.Want.Rows = nil },
		"a wanted row":  func(v *backend.Values) { v.Want.Rows = []int32{int32(len(v.Tokens))} },
	} {
		bad := v
		change(&bad)
		if err := k.Start(bad); err == nil {
			s.t.Fatalf("started in spite of %s", what)
		}
	}
	if _, err := k.Wait(); err == nil {
		s.t.Fatal("results of a forward that never started")
	}
	if err := k.Start(v); err != nil {
		s.t.Fatal(err)
	}
	if len(b.pass.plan.actions) == 0 {
		s.seen++
	}
	if _, err := b.Begin(1); err == nil {
		s.t.Fatal("a forward began while another one runs")
	}
	clear(v.Tokens)
	clear(v.Cos)
	clear(v.Sin)
	clear(v.Spans)
	results, err := k.Wait()
	if err != nil {
		s.t.Fatal(err)
	}
	return numbers(results)
}

// TestKept runs passes of changing shapes, weights, contexts and readers, and
// ones that fail, on two backends: one keeps operations where it can, the other one
// forgets all graphs before each pass. Their bits are equal.
func TestKept(t *testing.T) {
	a, b := openCUDA(t), openCUDA(t)
	defer a.Close()
	defer b.Close()
	one, other := newScript(t, a), newScript(t, b)
	one.keep = true
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
		t.Errorf("%d passes of 100 were found, and %d where nothing is kept; want 10 or more, and none", one.seen, other.seen)
	}
}
