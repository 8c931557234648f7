package backendtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/backend"
)

// RunDelta passes a backend that has gated DeltaNet and gated attention through their
// part of the suite: both against float64, what becomes of states, and the golden models:
// those that models names, or all.
func RunDelta(t *testing.T, golden string, open func(t *testing.T) backend.Backend, models ...string) {
	for name, f := range map[string]func(t *testing.T, b backend.Backend){
		"delta": testDelta, "delta programs": testDeltaPrograms, "gated attention": testGatedAttention,
		"states": testStates, "roll-back": testRollBack, "states beside others": testStatesBeside, "states in memory": testStatesMemory, "states copied": testStatesCopied,
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			defer b.Close()
			f(t, b)
		})
	}
	for _, name := range []string{"qwen3-next-tiny", "qwen3-5-text-tiny", "qwen3-next-long", "qwen3-5-moe-tiny", "qwen3-5-drafts", "tiny-gsm-next"} {
		if golden != "" && (!testing.Short() || name == "qwen3-next-tiny") && (len(models) == 0 || slices.Contains(models, name)) {
			t.Run("golden "+name, func(t *testing.T) { testGoldenLengths(t, golden, name, open) })
		}
	}
}

// deltaCase is a layer of gated DeltaNet with random weights.
type deltaCase struct {
	backend.StateShape
	byHead bool // q, k, v, z lie by key head in one buffer, b and a in another
	// remember makes decays near 1.
	remember bool
}

func (c deltaCase) String() string {
	return fmt.Sprintf("%d/%d heads of %d/%d, %d taps, tiled %v, by head %v, remember %v", c.KeyHeads, c.ValueHeads, c.KeyDim, c.ValueDim, c.Conv, c.Tiled, c.byHead, c.remember)
}

var deltaCases = []deltaCase{
	{StateShape: backend.StateShape{KeyHeads: 1, ValueHeads: 1, KeyDim: 1, ValueDim: 1, Conv: 1}},
	{StateShape: backend.StateShape{KeyHeads: 1, ValueHeads: 1, KeyDim: 8, ValueDim: 8, Conv: 2}, byHead: true},
	{StateShape: backend.StateShape{KeyHeads: 2, ValueHeads: 4, KeyDim: 32, ValueDim: 32, Conv: 4}},
	{StateShape: backend.StateShape{KeyHeads: 2, ValueHeads: 6, KeyDim: 24, ValueDim: 40, Conv: 4}, byHead: true, remember: true},
	{StateShape: backend.StateShape{KeyHeads: 2, ValueHeads: 2, KeyDim: 128, ValueDim: 128, Conv: 4}, remember: true},
	{StateShape: backend.StateShape{KeyHeads: 1, ValueHeads: 4, KeyDim: 48, ValueDim: 100, Conv: 3}, byHead: true},
	{StateShape: backend.StateShape{KeyHeads: 3, ValueHeads: 9, KeyDim: 16, ValueDim: 24, Conv: 4, Tiled: true}},
	{StateShape: backend.StateShape{KeyHeads: 3, ValueHeads: 3, KeyDim: 17, ValueDim: 65, Conv: 8}},
	{StateShape: backend.StateShape{KeyHeads: 4, ValueHeads: 8, KeyDim: 16, ValueDim: 20, Conv: 4, Tiled: true}},
}

// deltaLayer is a case with its weights.
type deltaLayer struct {
	deltaCase
	taps, decay, step, norm array
}

func (c deltaCase) layer(r *rand.Rand) *deltaLayer {
	y := &deltaLayer{deltaCase: c}
	y.taps = random(r, "taps", backend.BF16, 0.6, c.Channels()*c.Conv)
	y.decay, y.step = random(r, "A_log", backend.F32, 1, c.ValueHeads), random(r, "dt_bias", backend.BF16, 1, c.ValueHeads)
	if c.remember {
		for i := range y.decay.values { // exp(-8 or so)·softplus: decays of 0.9997
			y.decay.values[i] = -8 + float64(i%3)
		}
		y.decay = array{backend.Tensor{Name: "A_log", DType: backend.F32, Shape: []int{c.ValueHeads}, Data: floats(y.decay.values)}, y.decay.values}
	}
	y.norm = random(r, "norm", backend.F32, 1, c.ValueDim)
	return y
}

func floats(x []float64) []byte {
	var data []byte
	for _, v := range x {
		b := math.Float32bits(float32(v))
		data = append(data, byte(b), byte(b>>8), byte(b>>16), byte(b>>24))
	}
	return data
}

// inputs are raw projections: [rows, width] of q, k, v and z, and of b and a.
func (y *deltaLayer) inputs(r *rand.Rand, rows int) (wide, narrow array) {
	return random(r, "qkvz", backend.F32, 1, rows, y.Channels()+y.Values()), random(r, "ba", backend.F32, 1.5, rows, 2*y.ValueHeads)
}

// parts are where q, k, v, z, b and a lie in the two buffers.
func (y *deltaLayer) parts(wide, narrow backend.Buffer) (q, k, v, z, b, a backend.Strided) {
	n, dk, dv := y.Group(), y.KeyDim, y.ValueDim
	if y.byHead {
		s := 2*dk + 2*n*dv
		return backend.Strided{Buffer: wide, Stride: s}, backend.Strided{Buffer: wide, First: dk, Stride: s},
			backend.Strided{Buffer: wide, First: 2 * dk, Stride: s}, backend.Strided{Buffer: wide, First: 2*dk + n*dv, Stride: s},
			backend.Strided{Buffer: narrow, Stride: 2 * n}, backend.Strided{Buffer: narrow, First: n, Stride: 2 * n}
	}
	return backend.Strided{Buffer: wide, Stride: dk}, backend.Strided{Buffer: wide, First: y.Keys(), Stride: dk},
		backend.Strided{Buffer: wide, First: 2 * y.Keys(), Stride: n * dv}, backend.Strided{Buffer: wide, First: y.Channels(), Stride: n * dv},
		backend.Strided{Buffer: narrow, Stride: n}, backend.Strided{Buffer: narrow, First: y.ValueHeads, Stride: n}
}

// list lists the layer behind buffers that it loads.
func (y *deltaLayer) list(t *testing.T, p *listed, wide, narrow backend.Buffer, layer int) backend.Buffer {
	d := backend.Delta{StateShape: y.StateShape, Eps: 1e-6,
		Taps: vector(t, p.b, y.taps), LogDecay: vector(t, p.b, y.decay), TimeStep: vector(t, p.b, y.step), Norm: vector(t, p.b, y.norm)}
	d.Q, d.K, d.V, d.Z, d.B, d.A = y.parts(wide, narrow)
	dst := p.Buffer(y.Values())
	p.Delta(dst, d, layer)
	return dst
}

// deltaKept is what a row of a layer leaves behind: its rows before the convolution, what
// is logged of it, and the matrices with it added.
type deltaKept struct{ raw, keys, deltas, decays, states []float64 }

// want is the layer over rows from the first on, in float64, written down step by step.
func (y *deltaLayer) want(wide, narrow array) []float64 {
	out, _ := y.follow(wide, narrow)
	return out
}

// follow is want, and what each row leaves behind.
func (y *deltaLayer) follow(wide, narrow array) (out []float64, kept []deltaKept) {
	rows := wide.tensor.Shape[0]
	width, thin := wide.tensor.Shape[1], narrow.tensor.Shape[1]
	at := func(a array, row, width int, s backend.Strided, head, i int) float64 {
		return a.values[row*width+s.First+head*s.Stride+i]
	}
	q, k, v, z, b, a := y.parts(0, 1)
	n, dk, dv := y.Group(), y.KeyDim, y.ValueDim
	mixed := func(row int, s backend.Strided, g, i, channel int) float64 {
		sum := 0.0
		for tap := range y.Conv {
			if from := row - y.Conv + 1 + tap; from >= 0 {
				sum += y.taps.values[channel*y.Conv+tap] * at(wide, from, width, s, g, i)
			}
		}
		return silu(sum)
	}
	unit := func(x []float64, scale float64) {
		sum := 1e-6
		for _, e := range x {
			sum += e * e
		}
		for i := range x {
			x[i] *= scale / math.Sqrt(sum)
		}
	}
	states := make([]float64, y.Size())
	for row := range rows {
		left := deltaKept{raw: make([]float64, y.Channels()), keys: make([]float64, y.Keys())}
		for j := range y.ValueHeads {
			g, part := y.KeyHead(j), j/n
			qs, ks := make([]float64, dk), make([]float64, dk)
			for i := range dk {
				qs[i], ks[i] = mixed(row, q, g, i, g*dk+i), mixed(row, k, g, i, y.Keys()+g*dk+i)
			}
			unit(qs, 1/math.Sqrt(float64(dk)))
			unit(ks, 1)
			copy(left.keys[g*dk:], ks)
			for i := range dk {
				left.raw[g*dk+i], left.raw[y.Keys()+g*dk+i] = at(wide, row, width, q, g, i), at(wide, row, width, k, g, i)
			}
			beta := 1 / (1 + math.Exp(-at(narrow, row, thin, b, part, j%n)))
			alpha := math.Exp(-math.Exp(y.decay.values[j]) * math.Log1p(math.Exp(at(narrow, row, thin, a, part, j%n)+y.step.values[j])))
			s := states[j*dk*dv : (j+1)*dk*dv]
			o := make([]float64, dv)
			for c := range dv {
				value, kv := mixed(row, v, part, j%n*dv+c, 2*y.Keys()+j*dv+c), 0.0
				for i := range dk {
					s[i*dv+c] *= alpha
					kv += s[i*dv+c] * ks[i]
				}
				delta := beta * (value - kv)
				left.raw[2*y.Keys()+j*dv+c] = at(wide, row, width, v, part, j%n*dv+c)
				left.deltas = append(left.deltas, delta)
				for i := range dk {
					s[i*dv+c] += ks[i] * delta
					o[c] += s[i*dv+c] * qs[i]
				}
			}
			left.decays = append(left.decays, alpha)
			for c, e := range rmsNorm(o, y.norm.values, 1e-6) {
				out = append(out, e*silu(at(wide, row, width, z, part, j%n*dv+c)))
			}
		}
		left.states = slices.Clone(states)
		kept = append(kept, left)
	}
	return out, kept
}

// deltaModel is a compiled layer with rows to run it over: the token of a row is its number.
type deltaModel struct {
	*deltaLayer
	t      *testing.T
	b      backend.Backend
	f      backend.Forward
	layout backend.Layout
	rows   int
	all    []float64 // what they come to
}

const deltaLog = 8

func newDeltaModel(t *testing.T, b backend.Backend, c deltaCase, rows int) *deltaModel {
	r := seeded(uint64(41 + rows + c.KeyDim))
	m := &deltaModel{deltaLayer: c.layer(r), t: t, b: b, rows: rows}
	wide, narrow := m.inputs(r, rows)
	m.all = m.want(wide, narrow)
	p := begin(t, b)
	first := m.list(t, p, p.load(wide), p.load(narrow), 0)
	p.Tap(first)
	m.f = p.compile()
	t.Cleanup(m.f.Close)
	m.layout = backend.Layout{Layers: p.Stores(), DType: backend.KVF32, Slots: rows + 64, LogRows: deltaLog}
	return m
}

func (m *deltaModel) storage() backend.Storage {
	s, err := m.b.NewStorage(m.layout)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(s.Close)
	return s
}

func (m *deltaModel) values(s backend.Storage, base, rows int) backend.Values {
	v := rowsOf(rows)
	for i := range v.Tokens {
		v.Tokens[i] = int32((base + i) % m.rows)
	}
	v.Spans = []backend.Span{{Storage: s, Base: base, Rows: rows}}
	return v
}

// told is what rows from base on come to.
func (m *deltaModel) told(s backend.Storage, base, rows int) []float32 {
	m.t.Helper()
	_, taps := tapped(m.t, m.f, m.values(s, base, rows))
	return taps[0]
}

// part is what rows come to in all.
func part[T any](all []T, width, from, rows int) []T { return all[from*width : (from+rows)*width] }

// testDelta compares layers with the reference, and forwards of all cuts with each other.
func testDelta(t *testing.T, b backend.Backend) {
	for _, c := range deltaCases {
		const rows = 70
		m := newDeltaModel(t, b, c, rows)
		one := m.told(m.storage(), 0, rows)
		compare(t, c.String(), one, m.all, 2e-6*math.Sqrt(float64(c.Conv)))
		for _, cut := range []int{1, 2, deltaLog, deltaLog + 1, 33} {
			s, base := m.storage(), 0
			for base < rows {
				n := min(cut, rows-base)
				equalBits(t, fmt.Sprintf("%v, %d rows at %d", c, n, base), m.told(s, base, n), part(one, m.Values(), base, n))
				base += n
			}
		}
	}
}

// rollBackCases are layers, by their number, with rows of a log: the one of which all is
// tried, one with as many rows as drafts need, a convolution that looks at no row
// before, a log that its rows do not fill evenly, and one shorter than what the
// convolution looks at.
var rollBackCases = []struct{ layer, log int }{{3, deltaLog}, {3, 16}, {0, 8}, {6, 5}, {7, 4}}

// testRollBack: of n rows the first k are committed, twice in a row, behind beginnings of all
// kinds: what follows, and the states that are copied, have the bits of a sequence that only
// ran what was kept.
func testRollBack(t *testing.T, b backend.Backend) {
	for i, c := range rollBackCases {
		const rows = 90
		m := newDeltaModel(t, b, deltaCases[c.layer], rows)
		m.layout.LogRows = c.log
		one := m.told(m.storage(), 0, rows)
		same := func(what string, s backend.Storage, base, n int) {
			t.Helper()
			equalBits(t, what, m.told(s, base, n), part(one, m.Values(), base, n))
		}
		begins := []int{0, 1, 2, 3, c.log, 3 * c.log}
		for n := 1; n <= c.log; n++ {
			if testing.Short() && i > 0 && n != 1 && n != 4 && n != 8 && n != c.log {
				continue // each takes forwards under an emulator
			}
			for kept := range n + 1 {
				some := begins[(n+kept)%len(begins):][:1]
				if i == 0 || i == 1 && (n <= 3 || n == c.log) && !testing.Short() {
					some = begins
				}
				for _, begun := range some {
					what := fmt.Sprintf("%v, %d of %d rows kept, twice, behind %d", m.deltaCase, kept, n, begun)
					s := m.storage()
					if begun > 0 {
						same("the beginning", s, 0, begun)
					}
					base := begun
					for range 2 {
						v := m.values(s, base, n)
						for i := kept; i < n; i++ {
							v.Tokens[i] = int32((base + 5*i + 60) % rows)
						}
						run(t, m.f, v)
						base += kept
					}
					if got := s.Reach(base, base+n-kept); got != base {
						t.Fatalf("%s: back to %d reaches %d", what, base, got)
					}
					m.sameStates(what, s, base)
					same(what, s, base, 5)
					if got := s.Reach(base, base+5); got != base && c.log >= 5 {
						t.Fatalf("%s: back to %d reaches %d", what, base, got)
					} else if got == base {
						same(what+", again", s, base, 3)
					}
					s.Close()
				}
			}
		}
	}
}

// sameStates compares states that are copied out behind base rows with those of a sequence
// that was never anywhere else: where a backend copies states.
func (m *deltaModel) sameStates(what string, s backend.Storage, base int) {
	m.t.Helper()
	y, ok := s.(backend.StateStorage)
	if !ok || base == 0 {
		return
	}
	copied := func(y backend.StateStorage, p backend.Place) []byte {
		m.t.Helper()
		data := make([]byte, m.layout.ExportedStates(p))
		if err := y.ExportStates(p, data); err != nil {
			m.t.Fatalf("%s: states of %+v: %v", what, p, err)
		}
		return data
	}
	places := y.Places(base)
	if len(places) == 0 {
		m.t.Fatalf("%s: no states behind %d rows", what, base)
	}
	p := places[len(places)-1]
	if p.End != base {
		m.t.Fatalf("%s: states of %+v behind %d rows", what, p, base)
	}
	// The same place of one that ran what was kept: a forward at its beginning adds what is
	// before to the state, and logs the rest, or, where there is none, the next row.
	plain := m.storage()
	defer plain.Close()
	if p.From > 0 {
		m.told(plain, 0, p.From)
	}
	m.told(plain, p.From, max(1, p.End-p.From))
	list := plain.(backend.StateStorage).Places(base)
	if i := slices.Index(list, p); i < 0 {
		m.t.Fatalf("%s: states of %+v, of one that only ran these of %+v", what, p, list)
	}
	if !bytes.Equal(copied(y, p), copied(plain.(backend.StateStorage), p)) {
		m.t.Fatalf("%s: other states of %+v than of one that only ran these", what, p)
	}
}

// testStates: whatever was run and not committed, cancelled, gone back from, forked or
// marked, what follows has the bits of a sequence that only ran what was kept.
func testStates(t *testing.T, b backend.Backend) {
	c := deltaCases[3]
	const rows = 120
	m := newDeltaModel(t, b, c, rows)
	one := m.told(m.storage(), 0, rows)
	width := m.Values()
	same := func(what string, s backend.Storage, base, n int) {
		t.Helper()
		n = min(n, rows-base)
		equalBits(t, what, m.told(s, base, n), part(one, width, base, n))
	}
	junk := func(s backend.Storage, base, n int) { // other tokens than those that follow
		t.Helper()
		v := m.values(s, base, n)
		for i := range v.Tokens {
			v.Tokens[i] = int32((base + 3*i + 50) % rows)
		}
		run(t, m.f, v)
	}
	// A long forward that is not committed, cancelled, or committed to within its log.
	s := m.storage()
	same("20", s, 0, 20)
	junk(s, 20, 30)
	same("after one that was not committed", s, 20, 25)
	ctx, cancel := context.WithCancel(t.Context())
	v := m.values(s, 45, 20)
	cancel()
	if err := m.f.Start(ctx, v); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	same("after one that was cancelled", s, 45, 20)
	for back := range deltaLog + 1 {
		if got := s.Reach(65-back, 65); got != 65-back {
			t.Errorf("%d rows back from 65 reaches %d", back, got)
		}
	}
	junk(s, 60, 3)
	same("back in the log", s, 60, 4)
	if got := s.Reach(59, 64); got != 0 {
		t.Errorf("past the log reaches %d, want 0", got)
	}
	if err := m.f.Start(t.Context(), m.values(s, 30, 1)); err == nil {
		t.Error("a forward behind states that are gone: want an error")
	}
	if err := m.f.Start(t.Context(), m.values(s, 90, 1)); err == nil {
		t.Error("a forward behind rows that were never run: want an error")
	}
	same("after errors", s, 64, 30)
	same("all anew", s, 0, 30)
	// Marks: back to them and behind them, also after other text, and in forks.
	s = m.storage()
	same("40", s, 0, 40)
	s.Mark(40)
	same("one by one", s, 40, 1)
	for i := 41; i < 70; i++ {
		same("one by one", s, i, 1)
	}
	for _, c := range []struct{ n, want int }{{70, 70}, {69, 69}, {68, 40}, {41, 40}, {40, 40}, {39, 39}, {40 - deltaLog, 40 - deltaLog}, {40 - deltaLog - 1, 0}} {
		if got := s.Reach(c.n, 70); got != c.want {
			t.Errorf("back to %d reaches %d, want %d", c.n, got, c.want)
		}
	}
	fork := func(n int) backend.Storage {
		t.Helper()
		y, err := s.Fork(n, rows)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(y.Close)
		return y
	}
	last, marked, inside := fork(70), fork(40), fork(36)
	if y, err := s.Fork(60, rows); err == nil {
		y.Close()
		t.Error("a fork between what can be reached: want an error")
	}
	junk(s, 70, 4)
	same("beside forks", s, 70, 10)
	junk(last, 70, 20)
	same("a fork's own", last, 70, 10)
	same("a fork at a mark", marked, 40, 20)
	junk(inside, 36, 5)
	same("a fork inside a mark's log", inside, 36, 30)
	junk(inside, 60, 5)
	same("a fork's own mark", inside, 36, 3)
	same("another fork's mark", last, 40, 3)
	junk(s, 40, 12) // other text from the mark on
	if got := s.Reach(52, 52); got != 52 {
		t.Errorf("after other text reach %d", got)
	}
	if got := s.Reach(40, 52); got != 40 {
		t.Errorf("the mark is gone: %d", got)
	}
	same("at the mark again", s, 38, 20)
	if got := s.Reach(40, 58); got != 38 {
		t.Errorf("what was past 38 is reached: %d", got)
	}
}

// testStatesBeside: sequences in one forward, in any order and of any length, have the
// bits that each has alone.
func testStatesBeside(t *testing.T, b backend.Backend) {
	const rows = 90
	m := newDeltaModel(t, b, deltaCases[2], rows)
	one := m.told(m.storage(), 0, rows)
	r := seeded(43)
	for range 12 {
		n := 1 + r.IntN(6)
		type sequence struct {
			s    backend.Storage
			base int
		}
		var list []*sequence
		for range n {
			list = append(list, &sequence{s: m.storage()})
		}
		for slices.ContainsFunc(list, func(x *sequence) bool { return x.base < rows-20 }) {
			r.Shuffle(n, func(i, j int) { list[i], list[j] = list[j], list[i] })
			var v backend.Values
			var want []float32
			for _, x := range list[:1+r.IntN(n)] {
				k := min(1+r.IntN(20), rows-x.base)
				if k <= 0 {
					continue
				}
				w := m.values(x.s, x.base, k)
				w.Spans[0].First = len(v.Tokens)
				v.Tokens, v.Positions, v.Spans = append(v.Tokens, w.Tokens...), append(v.Positions, w.Positions...), append(v.Spans, w.Spans...)
				want = append(want, part(one, m.Values(), x.base, k)...)
				kept := k - r.IntN(min(k, deltaLog)+1)
				x.base += kept
			}
			if len(v.Tokens) == 0 {
				continue
			}
			_, taps := tapped(t, m.f, v)
			equalBits(t, fmt.Sprintf("%d sequences", len(v.Spans)), taps[0], want)
		}
		for _, x := range list {
			x.s.Close()
		}
	}
}

// testStatesMemory: states are taken from the budget, shared by forks, and come back;
// marks go before a forward lacks memory.
func testStatesMemory(t *testing.T, b backend.Backend) {
	m := newDeltaModel(t, b, deltaCases[2], 60)
	each := m.layout.StateBytes()
	used := func() int64 { n, _ := b.Budget().Used(); return n / each }
	s := m.storage()
	if err := s.Reserve(0); err != nil || used() != 1 {
		t.Fatalf("%d states are taken, %v, want those of one sequence", used(), err)
	}
	m.told(s, 0, 20)
	m.told(s, 20, 20)
	m.told(s, 40, 1)
	if used() != 1 || s.Bytes() != each {
		t.Errorf("%d states are taken after a prompt and a step, %d bytes, want %d", used(), s.Bytes(), each)
	}
	y, err := s.Fork(41, 60)
	if err != nil {
		t.Fatal(err)
	}
	if used() != 1 {
		t.Errorf("%d states are taken with a fork, want 1", used())
	}
	m.told(y, 41, 1)
	if used() != 2 {
		t.Errorf("%d states are taken after a fork's step, want 2", used())
	}
	y.Mark(42)
	m.told(y, 42, 1)
	if used() != 3 {
		t.Errorf("%d states are taken with a mark, want 3", used())
	}
	b.Budget().Limit(3*each + each/2)
	defer b.Budget().Limit(0)
	z := m.storage()
	m.told(z, 0, 1)
	if used() != 3 || y.Reach(42, 43) != 42 {
		t.Errorf("%d states are taken, the mark went for another: reach %d", used(), y.Reach(42, 43))
	}
	lacks := (*backend.MemoryError)(nil)
	if err := m.f.Start(t.Context(), m.values(m.storage(), 0, 1)); !errors.As(err, &lacks) || lacks.Span != 0 {
		t.Errorf("a fourth sequence: %v", err)
	}
	y.Close()
	z.Close()
	s.Close()
	if n, _ := b.Budget().Used(); n != 0 {
		t.Errorf("%d bytes are taken when all is closed", n)
	}
}

// testDeltaPrograms refuses operands that cannot be.
func testDeltaPrograms(t *testing.T, b backend.Backend) {
	c := deltaCases[2]
	y := c.layer(seeded(44))
	for name, spoil := range map[string]func(d *backend.Delta){
		"":                            func(*backend.Delta) {},
		"heads that do not divide":    func(d *backend.Delta) { d.KeyHeads = 3 },
		"no heads":                    func(d *backend.Delta) { d.KeyHeads = 0 },
		"too many taps":               func(d *backend.Delta) { d.Conv = 9 },
		"a part past its buffer":      func(d *backend.Delta) { d.Z.First++ },
		"a negative part":             func(d *backend.Delta) { d.Q.First = -1 },
		"parts over each other":       func(d *backend.Delta) { d.V.Stride = 3 },
		"a buffer that there is not":  func(d *backend.Delta) { d.B.Buffer = 17 },
		"a decay for each key head":   func(d *backend.Delta) { d.LogDecay = vector(t, b, random(seeded(1), "", backend.F32, 1, 2)) },
		"no norm":                     func(d *backend.Delta) { d.Norm = nil },
		"a head too wide to multiply": func(d *backend.Delta) { d.KeyDim = 1 << 40 },
	} {
		p := begin(t, b)
		wide, narrow := y.inputs(seeded(45), 2)
		d := backend.Delta{StateShape: c.StateShape, Eps: 1e-6,
			Taps: vector(t, b, y.taps), LogDecay: vector(t, b, y.decay), TimeStep: vector(t, b, y.step), Norm: vector(t, b, y.norm)}
		d.Q, d.K, d.V, d.Z, d.B, d.A = y.parts(p.load(wide), p.load(narrow))
		spoil(&d)
		p.Delta(p.Buffer(c.Values()), d, 0)
		f, err := b.Compile(p.Program)
		if (err == nil) != (name == "") {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			f.Close()
		}
	}
}

// testGates: a backend that lacks gates of attention says so; none takes them for queries.
func testGates(t *testing.T, b backend.Backend) {
	p := begin(t, b)
	h := backend.Heads{KVHeads: 1, HeadDim: 32, Gated: true}
	_, h.Rotation = rotation(t, b, 16, 10, someAngles)
	r := seeded(47)
	q, k, out := p.load(random(r, "q", backend.F32, 1, 4, 64)), p.load(random(r, "k", backend.F32, 1, 4, 32)), p.Buffer(32)
	p.RotateStore(q, k, p.load(random(r, "v", backend.F32, 1, 4, 32)), h, 0)
	p.Attend(out, q, 0, 1)
	f, err := b.Compile(p.Program)
	if lacks := (*backend.UnsupportedError)(nil); err != nil && !errors.As(err, &lacks) {
		t.Error(err)
	}
	if err == nil {
		f.Close()
	}
}

// testGatedAttention compares attention with gates and without, over heads of which a
// part is rotated, with the ratios of heads that published models have.
func testGatedAttention(t *testing.T, b backend.Backend) {
	r := seeded(46)
	for _, s := range []struct{ heads, kvHeads, dim, pairs, rows int }{{2, 1, 32, 4, 5}, {4, 2, 64, 8, 70}, {12, 2, 256, 32, 9}, {16, 2, 256, 32, 33}, {16, 1, 64, 32, 20}} {
		const slots = 100
		wq, wk := s.heads*s.dim, s.kvHeads*s.dim
		gated := random(r, "q", backend.F32, 1, s.rows, 2*wq)
		plain := array{values: make([]float64, 0, s.rows*wq)}
		for at := 0; at < len(gated.values); at += 2 * s.dim {
			plain.values = append(plain.values, gated.values[at:at+s.dim]...)
		}
		plain.tensor = backend.Tensor{Name: "q", DType: backend.F32, Shape: []int{s.rows, wq}, Data: floats(plain.values)}
		k, v, norm := random(r, "k", backend.F32, 1, s.rows, wk), random(r, "v", backend.F32, 1, s.rows, wk), random(r, "norm", backend.F32, 1, s.dim)
		h := backend.Heads{KVHeads: s.kvHeads, HeadDim: s.dim, QNorm: vector(t, b, norm), KNorm: vector(t, b, norm), Eps: 1e-6}
		_, h.Rotation = rotation(t, b, s.pairs, slots, someAngles)
		one := func(q array, gated bool) backend.Forward {
			p := begin(t, b)
			h := h
			h.Gated = gated
			qb, out := p.load(q), p.Buffer(wq)
			p.RotateStore(qb, p.load(k), p.load(v), h, 0)
			p.Attend(out, qb, 0, float32(1/math.Sqrt(float64(s.dim))))
			p.Tap(out)
			f := p.compile()
			t.Cleanup(f.Close)
			return f
		}
		without, with := one(plain, false), one(gated, true)
		for _, kvType := range kvTypes(b) {
			var taps [2][]float32
			for i, f := range []backend.Forward{without, with} {
				kv, err := b.NewStorage(backend.KeysLayout(1, s.kvHeads, s.dim, kvType, slots))
				if err != nil {
					t.Fatal(err)
				}
				v := rowsOf(s.rows)
				for j := range v.Positions {
					v.Positions[j] = int32(j)
				}
				v.Spans = []backend.Span{{Storage: kv, Rows: s.rows}}
				_, all := tapped(t, f, v)
				taps[i] = all[0]
				kv.Close()
			}
			want := make([]float64, len(taps[0]))
			for i, x := range taps[0] {
				row, at := i/wq, i%wq
				gate := gated.values[row*2*wq+at/s.dim*2*s.dim+s.dim+at%s.dim]
				want[i] = float64(x) / (1 + math.Exp(-gate))
			}
			tolerance := 1e-6
			if !b.Features().Exact && b.Name() != "cpu" { // queries, gates and results are rounded
				tolerance = tolBF16
			}
			compare(t, fmt.Sprintf("%d/%d heads of %d, %v", s.heads, s.kvHeads, s.dim, kvType), taps[1], want, tolerance)
		}
	}
}
