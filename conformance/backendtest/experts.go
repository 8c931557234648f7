package backendtest

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/quant"
)

// RunExperts passes a backend that has mixtures of experts through their part of the
// suite: routing, the experts, and the golden model.
func RunExperts(t *testing.T, golden string, open func(t *testing.T) backend.Backend) {
	for name, f := range map[string]func(t *testing.T, b backend.Backend){
		"route": testRoute, "experts": testExperts, "experts of other rows": testExpertsInvariance,
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			defer b.Close()
			f(t, b)
		})
	}
	if golden != "" {
		t.Run("golden of experts", func(t *testing.T) { testGoldenLengths(t, golden, "qwen3-moe-tiny", open) })
	}
}

// routed is what Route is to find: numbers ascending, then weights.
func routed(logits []float64, k int, renormalise bool) []float64 {
	order := make([]int, len(logits))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(logits[b], logits[a]) })
	all, chosen := 0.0, 0.0
	for i, e := range order {
		p := math.Exp(logits[e] - logits[order[0]])
		all += p
		if i < k {
			chosen += p
		}
	}
	if renormalise {
		all = chosen
	}
	best := order[:k]
	slices.Sort(best)
	list := make([]float64, 2*k)
	for i, e := range best {
		list[i], list[k+i] = float64(e), math.Exp(logits[e]-slices.Max(logits))/all
	}
	return list
}

// testRoute: the k best, the lower number of equal ones, and their weights.
func testRoute(t *testing.T, b backend.Backend) {
	r := seeded(31)
	for _, s := range []struct{ experts, k, width int }{{1, 1, 32}, {2, 1, 40}, {8, 2, 128}, {16, 16, 64}, {128, 8, 96}, {256, 8, 64}, {512, 10, 64}} {
		for _, rows := range []int{1, 7, 33} {
			for _, dt := range []backend.DType{backend.F32, backend.BF16} {
				x := random(r, "x", backend.F32, 1, rows, s.width)
				router := random(r, "router", dt, 1, s.experts, s.width)
				if s.experts > 2 { // two that are equal, whatever the row
					half := len(router.tensor.Data) / s.experts
					copy(router.tensor.Data[half*(s.experts-1):], router.tensor.Data[half:2*half])
					copy(router.values[s.width*(s.experts-1):], router.values[s.width:2*s.width])
				}
				for _, renormalise := range []bool{false, true} {
					p := begin(t, b)
					h, routing := p.load(x), p.Buffer(2*s.k)
					p.Route(routing, h, matrix(t, b, router), s.k, renormalise)
					p.Tap(routing)
					_, taps := p.run(rowsOf(rows))
					logits := matmul(x.values, router.values, rows, s.width, s.experts)
					for row := range rows {
						got := taps[0][row*2*s.k : (row+1)*2*s.k]
						want := routed(logits[row*s.experts:(row+1)*s.experts], s.k, renormalise)
						for i, w := range want {
							if i < s.k && float64(got[i]) != w || math.Abs(float64(got[i])-w) > 1e-5*math.Max(1e-3, w) {
								t.Fatalf("%d of %d experts, %v, row %d, renormalise %v: %v, want %v", s.k, s.experts, dt, row, renormalise, got, want)
							}
						}
					}
				}
			}
		}
	}
}

// mixture is experts with random weights.
type mixture struct {
	gate, up, down []array
	shared         []array // gate, up, down, weight; nil: none
	inner          int
}

func newMixture(seed uint64, dt backend.DType, experts, width, inner, shared int) *mixture {
	r := seeded(seed)
	m := &mixture{inner: inner}
	in, out := 1/math.Sqrt(float64(width)), 1/math.Sqrt(float64(inner))
	for e := range experts {
		name := fmt.Sprint("expert ", e)
		m.gate = append(m.gate, random(r, name, dt, 2*in, inner, width))
		m.up = append(m.up, random(r, name, dt, in, inner, width))
		m.down = append(m.down, random(r, name, dt, out, width, inner))
	}
	if shared > 0 {
		m.shared = []array{
			random(r, "shared gate", dt, 2*in, shared, width), random(r, "shared up", dt, in, shared, width),
			random(r, "shared down", dt, out, width, shared), random(r, "shared weight", backend.BF16, in, 1, width),
		}
	}
	return m
}

// of gives the weights to a backend, or to who runs experts in the host's memory for it.
func (m *mixture) of(t *testing.T, b backend.Backend) *backend.Experts {
	e := &backend.Experts{}
	if h, ok := b.(backend.ExpertsOnHost); ok {
		e.Host, _ = h.HostExperts()
	}
	for i := range m.gate {
		e.Gate = append(e.Gate, expertMatrix(t, b, e, m.gate[i]))
		e.Up = append(e.Up, expertMatrix(t, b, e, m.up[i]))
		e.Down = append(e.Down, expertMatrix(t, b, e, m.down[i]))
	}
	if s := m.shared; s != nil {
		e.Shared = &backend.SharedExpert{Gate: matrix(t, b, s[0]), Up: matrix(t, b, s[1]), Down: matrix(t, b, s[2]), Weight: matrix(t, b, s[3])}
	}
	return e
}

// expertMatrix gives a weight of an expert to who runs it.
func expertMatrix(t *testing.T, b backend.Backend, e *backend.Experts, a array) backend.Matrix {
	t.Helper()
	if e.Host == nil {
		return matrix(t, b, a)
	}
	y, err := e.Host.Matrix(a.tensor)
	if err != nil {
		t.Fatal(err)
	}
	return y
}

// spoiled is the experts with those at some places of weights that are no numbers.
func (m *mixture) spoiled(t *testing.T, b backend.Backend, e *backend.Experts, at func(expert int) bool) *backend.Experts {
	t.Helper()
	bad := func(a array) backend.Matrix {
		part := &a.tensor.Data
		if a.tensor.DType.Affine() {
			part = &a.tensor.Biases // by the size of scales a backend may take a whole mixture otherwise
		}
		*part = bytes.Repeat([]byte{0xff}, len(*part)) // NaNs, as f32, f16 and bf16
		return expertMatrix(t, b, e, a)
	}
	gate, up, down := bad(m.gate[0]), bad(m.up[0]), bad(m.down[0])
	y := *e
	y.Gate, y.Up, y.Down = slices.Clone(e.Gate), slices.Clone(e.Up), slices.Clone(e.Down)
	for i := range y.Gate {
		if at(i) {
			y.Gate[i], y.Up[i], y.Down[i] = gate, up, down
		}
	}
	return &y
}

// swiglu is what one expert makes of a row.
func swiglu(x []float64, gate, up, down array) []float64 {
	inner, width := gate.tensor.Shape[0], len(x)
	g, u := matmul(x, gate.values, 1, width, inner), matmul(x, up.values, 1, width, inner)
	for i := range g {
		g[i] = silu(g[i]) * u[i]
	}
	return matmul(g, down.values, 1, inner, width)
}

// add adds what the experts make of a row to y.
func (m *mixture) add(y, x, routing []float64) {
	k := len(routing) / 2
	for i, e := range routing[:k] {
		for j, v := range swiglu(x, m.gate[int(e)], m.up[int(e)], m.down[int(e)]) {
			y[j] += routing[k+i] * v
		}
	}
	if s := m.shared; s != nil {
		weight := 1 / (1 + math.Exp(-matmul(x, s[3].values, 1, len(x), 1)[0]))
		for j, v := range swiglu(x, s[0], s[1], s[2]) {
			y[j] += weight * v
		}
	}
}

// testExperts compares ExpertsAdd with the reference, its routing given by a router
// whose choices are far apart.
func testExperts(t *testing.T, b backend.Backend) {
	r := seeded(33)
	for _, dt := range dtypes {
		for _, s := range []struct{ experts, k, width, inner, shared int }{{1, 1, 64, 64, 0}, {4, 4, 96, 64, 64}, {16, 3, 256, 256, 0}, {40, 8, 256, 512, 256}, {20, 8, 256, 512, 512}} {
			if !fits(dt, s.width) || !fits(dt, s.inner) || s.shared > 0 && !fits(dt, s.shared) {
				continue
			}
			if s.k == 8 && testing.Short() && dt != backend.BF16 && dt != backend.Affine4 && dt != backend.Q4_K {
				continue // to make so many takes a second of each format under an emulator
			}
			m := newMixture(uint64(s.experts), dt, s.experts, s.width, s.inner, s.shared)
			if dt == backend.Affine4 && s.experts == 4 { // scales of any size, in one of them
				m.down[1] = random(r, "large", dt, 20, s.width, s.inner)
			}
			experts := m.of(t, b)
			for _, rows := range []int{1, 5, 40} {
				if rows > 5 && (testing.Short() || s.k == 8) {
					continue // the reference takes seconds
				}
				x, y := random(r, "x", backend.F32, 1, rows, s.width), random(r, "y", backend.F32, 1, rows, s.width)
				scale := 4.0
				if s.k == 8 { // each of many counts
					scale = 0.1
				}
				router := random(r, "router", backend.F32, scale, s.experts, s.width)
				what := fmt.Sprintf("%v, %d of %d experts of %d in %d, %d rows", dt, s.k, s.experts, s.inner, s.width, rows)
				run := func(shown bool) [][]float32 {
					p := begin(t, b)
					h, dst, routing := p.load(x), p.load(y), p.Buffer(2*s.k)
					p.Route(routing, h, matrix(t, b, router), s.k, true)
					p.ExpertsAdd(dst, h, routing, experts)
					if shown {
						p.Tap(routing)
					}
					p.Tap(dst)
					_, taps := p.run(rowsOf(rows))
					return taps
				}
				taps := run(true)
				if rows == 1 { // whose experts a backend may choose where they run, if nobody looks
					if err := vectors.Equal(run(false)[0], taps[1]); err != nil {
						t.Fatalf("%s: their routing not shown: %v", what, err)
					}
				}
				want := slices.Clone(y.values)
				for row := range rows {
					chosen := make([]float64, 2*s.k)
					for i := range chosen {
						chosen[i] = float64(taps[0][row*2*s.k+i])
					}
					m.add(want[row*s.width:(row+1)*s.width], x.values[row*s.width:(row+1)*s.width], chosen)
				}
				compare(t, what, taps[1], want, 3*tolerance(b, dt))
			}
		}
	}
}

// testExpertsInvariance: a row has the same bits whatever other rows there are, and an
// expert that a row does not choose has no influence on it, whatever its weights are.
func testExpertsInvariance(t *testing.T, b backend.Backend) {
	r := seeded(34)
	for _, dt := range []backend.DType{backend.F32, backend.BF16, backend.Affine4, backend.Q8_0, backend.Q4_K} {
		const experts, width, inner, rows = 12, 256, 256, 48
		const first, only = 0, 5 // experts that rows choose, or not, by their last element
		m := newMixture(7, dt, experts, width, inner, inner)
		x, y := random(r, "x", backend.F32, 1, rows, width), random(r, "y", backend.F32, 1, rows, width)
		router := random(r, "router", backend.BF16, 1, experts, width)
		last := func(a *array, row int, v float32) {
			at := (row+1)*width - 1
			a.values[at] = float64(v)
			quant.Blocks(a.tensor.Data[at*a.tensor.DType.Size():], a.tensor.DType, []float32{v})
		}
		for e := range experts {
			last(&router, e, 0)
		}
		last(&router, first, 1000)
		chooses := func(row int) bool { return row%7 == 3 }
		for row := range rows {
			last(&x, row, -1)
			if chooses(row) {
				last(&x, row, 1)
			}
		}
		compiled := func(e *backend.Experts, router array, k int) backend.Forward {
			p := begin(t, b)
			h, dst, routing := p.load(x), p.load(y), p.Buffer(2*k)
			p.Route(routing, h, matrix(t, b, router), k, true)
			p.ExpertsAdd(dst, h, routing, e)
			p.Tap(routing)
			p.Tap(dst)
			f := p.compile()
			t.Cleanup(f.Close)
			return f
		}
		whole := m.of(t, b)
		const k = 3
		f := compiled(whole, router, k)
		_, all := tapped(t, f, rowsOf(rows))
		cuts := func(what string, f backend.Forward, want []float32, lengths ...int) {
			t.Helper()
			for _, n := range lengths {
				for from := 0; from+n <= rows; from += 11 {
					v := rowsOf(n)
					for i := range v.Tokens {
						v.Tokens[i] += int32(from)
					}
					_, some := tapped(t, f, v)
					equalBits(t, fmt.Sprintf("%v, %s%d rows from %d", dt, what, n, from), some[1], want[from*width:(from+n)*width])
				}
			}
		}
		cuts("", f, all[1], 1, 2, 7, 31)
		// Beside rows that have no numbers, of an expert whose weights are none.
		_, beside := tapped(t, compiled(m.spoiled(t, b, whole, func(e int) bool { return e == first }), router, k), rowsOf(rows))
		equalBits(t, fmt.Sprintf("%v, the routing", dt), beside[0], all[0])
		for row := range rows {
			got, want := beside[1][row*width:(row+1)*width], all[1][row*width:(row+1)*width]
			if !chooses(row) {
				equalBits(t, fmt.Sprintf("%v, row %d, which does not choose what is no number", dt, row), got, want)
			} else if slices.Equal(got, want) || all[0][row*2*k] != first {
				t.Fatalf("%v, row %d does not choose expert %d: %v", dt, row, first, all[0][row*2*k:(row+1)*2*k])
			}
		}
		// All rows choose one expert, and only that one is there.
		x, router = x.copied(), router.copied()
		last(&router, first, -1000)
		for row := range rows {
			last(&x, row, 1)
		}
		last(&router, only, 1000)
		f = compiled(m.spoiled(t, b, whole, func(e int) bool { return e != only }), router, 1)
		_, one := tapped(t, f, rowsOf(rows))
		want := slices.Clone(y.values)
		for row := range rows {
			if got := one[0][2*row : 2*row+2]; got[0] != only || got[1] != 1 {
				t.Fatalf("%v, row %d chooses %v, want all of %d", dt, row, got, only)
			}
			m.add(want[row*width:(row+1)*width], x.values[row*width:(row+1)*width], []float64{only, 1})
		}
		compare(t, fmt.Sprintf("%v, all rows to one expert", dt), one[1], want, 3*tolerance(b, dt))
		cuts("to one expert, ", f, one[1], 1, 31)
	}
}
