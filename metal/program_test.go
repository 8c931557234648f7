package metal

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/metal/fakeobjc"
	"windrow/rope"
)

// testMatrix is a weight of small numbers, which differ.
func testMatrix(t *testing.T, b *Backend, dt backend.DType, out, in int) backend.Linear {
	t.Helper()
	x := backend.Tensor{Name: "w", DType: dt, Shape: []int{out, in}}
	if dt.Affine() {
		x.Group = 64
	}
	x = x.Allocated()
	fillWeights(x.Data, dt)
	for _, half := range [][]byte{x.Scales, x.Biases} {
		repeat(half, []byte{0x80, 0x3c})
	}
	m, err := b.Matrix(x)
	if err != nil {
		t.Fatal(err)
	}
	return backend.Linear{Weight: m}
}

// testVector is n ones.
func testVector(t *testing.T, b *Backend, n int) backend.Vector {
	t.Helper()
	x := backend.Tensor{Name: "v", DType: backend.F32, Shape: []int{n}, Data: make([]byte, 4*n)}
	repeat(x.Data, []byte{0, 0, 0x80, 0x3f})
	v, err := b.Vector(x)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func testRotation(t *testing.T, b *Backend, dim, positions int) backend.Rotation {
	t.Helper()
	table, err := rope.New(rope.Config{HeadDim: dim, Theta: 1e4})
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.Rotation(table, positions)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// compiled compiles a program.
func compiled(t *testing.T, b *Backend, p *backend.Program) *forward {
	t.Helper()
	f, err := b.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f.(*forward)
}

// short is a program of a layer of 32, or of one at each of those places, whose
// vocabulary is 40.
func short(t *testing.T, b *Backend, layers ...int) *backend.Program {
	t.Helper()
	p := new(backend.Program)
	x, h, q, k, v, a := p.Buffer(32), p.Buffer(32), p.Buffer(32), p.Buffer(16), p.Buffer(16), p.Buffer(32)
	table := testMatrix(t, b, backend.BF16, 40, 32)
	p.Embed(x, table.Weight)
	p.Tap(x)
	if len(layers) == 0 {
		layers = []int{0}
	}
	norm, rotation, square := testVector(t, b, 32), testRotation(t, b, 16, 5000), testMatrix(t, b, backend.BF16, 32, 32)
	all := []backend.Linear{square, testMatrix(t, b, backend.BF16, 16, 32), testMatrix(t, b, backend.BF16, 16, 32)}
	for _, layer := range layers {
		p.RMSNorm(h, x, norm, 1e-6)
		p.Project([]backend.Buffer{q, k, v}, h, all)
		p.RotateStore(q, k, v, backend.Heads{KVHeads: 1, HeadDim: 16, Rotation: rotation}, layer)
		p.Attend(a, q, layer, 0.25)
		p.ProjectAdd(x, a, square)
	}
	p.TapNormed(x, h, testVector(t, b, 32), 1e-6)
	p.Head(x, testVector(t, b, 32), 1e-6, table.Weight, backend.NoBars)
	return p
}

// shortValues are those of rows of a new sequence, from a position on.
func shortValues(t *testing.T, b *Backend, rows, position int) backend.Values {
	t.Helper()
	kv, err := b.NewStorage(backend.KeysLayout(1, 1, 16, backend.KVBF16, 2000))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kv.Close)
	v := backend.Values{Spans: []backend.Span{{Storage: kv, Rows: rows}}}
	for i := range rows {
		v.Tokens, v.Positions = append(v.Tokens, int32(i*7%40)), append(v.Positions, int32(position+i))
		v.Want = append(v.Want, backend.Wanted{Row: int32(i), TopK: 1, Logits: i%2 == 1})
	}
	return v
}

// Start submits and returns, Wait waits; one forward of a backend runs at a time, and
// one that was not begun leaves the backend usable.
func TestStartAndWait(t *testing.T) {
	b, fake := countedBackend(t, Options{})
	f, other := compiled(t, b, short(t, b)), compiled(t, b, short(t, b))
	v := shortValues(t, b, 3, 0)
	if _, err := f.Wait(); err == nil {
		t.Error("Wait without Start: want an error")
	}
	bad := v
	bad.Tokens = []int32{0, 40, 0}
	if err := f.Start(t.Context(), bad); err == nil || !strings.HasPrefix(err.Error(), "metal: embed: token 40") {
		t.Errorf("a token past the table: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Start(ended, v); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
	if n := fake.Count("commit"); n != 0 {
		t.Errorf("%d commits of forwards that were refused", n)
	}
	tokens, positions, spans := slices.Clone(v.Tokens), slices.Clone(v.Positions), slices.Clone(v.Spans)
	start := func(f *forward) {
		t.Helper()
		v.Tokens, v.Positions, v.Spans = slices.Clone(tokens), slices.Clone(positions), slices.Clone(spans)
		if err := f.Start(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		clear(v.Tokens) // they may be changed now
		clear(v.Positions)
		clear(v.Spans)
	}
	start(f)
	if c, w := fake.Count("commit"), fake.Count("waitUntilCompleted"); c != 1 || w != 0 {
		t.Errorf("after Start: %d commits, %d waits", c, w)
	}
	for _, g := range []*forward{f, other} {
		if err := g.Start(t.Context(), v); err == nil {
			t.Error("two forwards at once: want an error")
		}
	}
	if _, err := other.Wait(); err == nil {
		t.Error("the results of another forward: want an error")
	}
	first, err := f.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Wait(); err == nil {
		t.Error("Wait twice: want an error")
	}
	start(other)
	second, err := other.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(first) != fmt.Sprint(second) || len(first) != 3 || len(first[1].Logits) != 40 || first[0].Logits != nil {
		t.Errorf("%v, then %v", first, second)
	}
	start(f)
	f.Close() // waits
	if err := f.Start(t.Context(), v); !errors.Is(err, errClosed) {
		t.Errorf("a forward after its Close: %v", err)
	}
	start(other) // the backend's Close waits
}

// With a Tap a forward runs up to each: its states are those that the next forward's
// first operations make too, and results do not change by a bit.
func TestTap(t *testing.T) {
	b, fake := countedBackend(t, Options{})
	f := compiled(t, b, short(t, b))
	v := shortValues(t, b, 5, 3)
	var plain, tapped []backend.Result
	var err error
	run := func(v backend.Values) []backend.Result {
		t.Helper()
		if err = f.Start(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		r, err := f.Wait()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	plain = run(v)
	before := fake.Count("commit")
	var order []int
	states := map[int][]float32{}
	v.Tap = func(i int, x []float32) { order, states[i] = append(order, i), x }
	tapped = run(v)
	if n := fake.Count("commit") - before; n != 3 {
		t.Errorf("%d command buffers of two taps and a head", n)
	}
	if fmt.Sprint(plain) != fmt.Sprint(tapped) || !slices.Equal(order, []int{0, 1}) || len(states[0]) != 5*32 || len(states[1]) != 5*32 {
		t.Errorf("taps %v, results %v, tapped %v", order, plain, tapped)
	}
	for r := range 5 { // normed by ones
		sum := 0.0
		for _, x := range states[1][32*r : 32*r+32] {
			sum += float64(x) * float64(x)
		}
		if math.Abs(sum/32-1) > 1e-3 {
			t.Errorf("row %d: a mean square of %v", r, sum/32)
		}
	}
	before = fake.Count("dispatchThreadgroups:threadsPerThreadgroup:")
	v.Want = nil
	if r := run(v); len(r) != 0 || len(order) != 4 {
		t.Errorf("nothing wanted: %v, taps %v", r, order)
	}
	v.Tap = nil
	middle := fake.Count("dispatchThreadgroups:threadsPerThreadgroup:")
	run(v)
	if a, b := middle-before, fake.Count("dispatchThreadgroups:threadsPerThreadgroup:")-middle; a != 8 || b != 7 {
		t.Errorf("%d dispatches with taps, %d without, want 8 and 7: embed, norm, project, rotate, attend, merge, add, norm of a tap", a, b)
	}
	if r := run(backend.Values{Tokens: v.Tokens, Positions: v.Positions, Spans: v.Spans, Want: []backend.Wanted{{Row: 4, TopK: 1}}}); fmt.Sprint(r) != fmt.Sprint(plain[4:]) {
		t.Errorf("row 4 alone: %v, want %v", r, plain[4:])
	}
}

// What fails after a forward's first command buffer is Wait's error; the next forward
// gives what it should.
func TestFailureInWait(t *testing.T) {
	b := emulatedWith(t, fakeobjc.Options{FailCommit: 3})
	f := compiled(t, b, short(t, b))
	v := shortValues(t, b, 2, 0)
	taps := 0
	var got []string
	for i := range 3 {
		if i == 1 {
			v.Tap = func(int, []float32) { taps++ }
		}
		if err := f.Start(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		results, err := f.Wait()
		if (err != nil) != (i == 1) || err != nil && strings.Contains(err.Error(), "\n") {
			t.Fatalf("forward %d: error %v", i, err)
		}
		if i == 1 && taps != 1 {
			t.Errorf("%d taps before the one that failed", taps)
		}
		if err == nil {
			got = append(got, fmt.Sprint(results))
		}
	}
	if got[0] != got[1] || taps != 3 {
		t.Errorf("%s, then %s; %d taps", got[0], got[1], taps)
	}
}

// Wanted rows go through the head some at a time, each as it would alone.
func TestHeadInChunks(t *testing.T) {
	b := emulatedWith(t, fakeobjc.Options{})
	f := compiled(t, b, short(t, b))
	v := shortValues(t, b, 2*headRows+7, 0)
	get := func(want ...backend.Wanted) []backend.Result {
		t.Helper()
		v.Want = want
		if err := f.Start(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		results, err := f.Wait()
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	only := backend.NewIDSet(40)
	only.Add(11)
	only.Add(30)
	kinds := []backend.Wanted{{}, {TopK: 5, Logits: true}, {TopK: 39}, {Allowed: only, TopK: 3}}
	var all []backend.Wanted
	for i := range 2*headRows + 7 {
		w := kinds[i%len(kinds)]
		w.Row = int32(i)
		all = append(all, w)
	}
	results := get(all...)
	if len(results) != len(all) {
		t.Fatalf("%d results of %d rows", len(results), len(all))
	}
	for _, i := range []int{0, 1, 2, 3, headRows - 1, headRows, headRows + 1, 2*headRows + 3, 2*headRows + 6} {
		if alone := get(all[i])[0]; alone.Argmax != results[i].Argmax || len(alone.Top) != len(results[i].Top) || len(alone.Logits) != len(results[i].Logits) {
			t.Errorf("row %d: %+v, alone %+v", i, results[i], alone)
		}
	}
	if r := results[3]; len(r.Top) != 2 || r.Top[0].ID != r.Argmax || r.Argmax != 11 && r.Argmax != 30 {
		t.Errorf("two ids allowed: %+v", r)
	}
	if r := results[2]; len(r.Top) != 39 || r.Logits != nil {
		t.Errorf("39 candidates: %+v", r)
	}
}
