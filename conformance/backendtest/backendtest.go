// Package backendtest is the suite that every backend passes: each operation
// at odd shapes against a float64 reference, batch invariance, refusals, and
// whole forwards against golden tensors.
package backendtest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/backend"
)

// The tolerances, as relative norms over an operation's whole output.
const (
	// tolF32: f32 arithmetic over sums of up to a few hundred terms.
	tolF32 = 2e-6
	// tolBF16: activations rounded to bf16, 2⁻⁹ each at most, which averages
	// to about 2⁻⁹/√3 of the norm.
	tolBF16 = 3e-3
	// tolInt8: activations rounded to 1/127 of their group's largest. The largest
	// of 128 normal values is about 2.8 deviations: steps of 0.022, whose rounding
	// is 0.022/√12 = 6.4e-3 of the norm; outputs of a few elements vary.
	tolInt8 = 1.5e-2
	// tolInt8KV: keys and values rounded to 1/127 of their group's largest.
	tolInt8KV = 2e-2
)

// Run passes a backend through the suite. open is called for each part;
// golden is the folder of golden models ("" leaves the whole forwards out).
// models names the golden models that run, all of them if there is no name.
// WINDROW_SLOW set runs every golden model with every KV type; else the large
// one runs with f32 alone.
func Run(t *testing.T, golden string, open func(t *testing.T) backend.Backend, models ...string) {
	runParts(t, golden, open, testInvariance, nil, models...)
}

// RunBrief is Run for emulated devices whose kernels have tests of their own
// for each format: without whole forwards, and with invariance in three formats.
func RunBrief(t *testing.T, open func(t *testing.T) backend.Backend) {
	runParts(t, "", open, testInvarianceBrief, nil)
}

// RunShort is Run without the parts that take longest on emulated devices, and without
// whole forwards.
func RunShort(t *testing.T, open func(t *testing.T) backend.Backend) {
	t.Log("left out: projections, attention and results by themselves, seconds on the emulator: leave -short out")
	runParts(t, "", open, testInvariance, []string{"project", "attention", "rotating attention", "results"})
}

func runParts(t *testing.T, golden string, open func(t *testing.T) backend.Backend, invariance func(t *testing.T, b backend.Backend), leaveOut []string, models ...string) {
	part := func(name string, f func(t *testing.T, b backend.Backend)) {
		if slices.Contains(leaveOut, name) {
			return
		}
		t.Run(name, func(t *testing.T) {
			b := open(t)
			defer func() {
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			}()
			f(t, b)
		})
	}
	part("embed", testEmbed)
	part("rms norm", testRMSNorm)
	part("project", testProject)
	part("large scales", testLargeScales)
	part("gated project", testGatedProject)
	part("attention", testAttention)
	part("rotating attention", testRotating)
	part("results", testResults)
	part("unpacked", testUnpacked)
	part("not finite", testNotFinite)
	part("invariance", invariance)
	part("wanted by row", testWanted)
	part("deferred", testDeferred)
	part("values", testValues)
	part("partial rotation", testPartialRotation)
	part("gates", testGates)
	part("input", testInput)
	part("fork", testFork)
	part("export", testExport)
	part("budget", testBudget)
	part("refusals", testRefusals)
	if golden != "" {
		t.Run("golden", func(t *testing.T) { testGolden(t, golden, open, models) })
	}
}

// tolerance of a projection with weights of a dtype.
func tolerance(b backend.Backend, dt backend.DType) float64 {
	switch {
	case b.Features().Exact:
		return tolF32
	case dt == backend.BF16:
		return tolBF16
	case dt.Quantized():
		return tolInt8
	}
	return tolF32
}

func matrix(t *testing.T, b backend.Backend, a array) backend.Matrix {
	t.Helper()
	m, err := b.Matrix(a.tensor)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func vector(t *testing.T, b backend.Backend, a array) backend.Vector {
	t.Helper()
	v, err := b.Vector(a.tensor)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }

var dtypes = []backend.DType{
	backend.F32, backend.F16, backend.BF16,
	backend.Affine4, backend.Affine8, backend.Q8_0, backend.Q4_0, backend.Q4_K, backend.Q6_K,
}

func testEmbed(t *testing.T, b backend.Backend) {
	r := seeded(1)
	for _, dt := range dtypes {
		for _, width := range []int{1, 3, 64, 130, 256} {
			if !fits(dt, width) {
				continue
			}
			a := random(r, "table", dt, 1, 11, width)
			ids := []int32{10, 0, 3, 3, 7}
			p := begin(t, b)
			buf := p.Buffer(width)
			p.Embed(buf, matrix(t, b, a))
			p.Tap(buf)
			_, taps := p.run(backend.Values{Tokens: ids})
			var want []float64
			for _, id := range ids {
				want = append(want, a.values[int(id)*width:int(id+1)*width]...)
			}
			compare(t, fmt.Sprintf("%v width %d", dt, width), taps[0], want, 0)
		}
	}
}

func testRMSNorm(t *testing.T, b backend.Backend) {
	r := seeded(2)
	for _, width := range []int{1, 5, 64, 384, 1027} {
		x := random(r, "x", backend.F32, 3, 9, width)
		w := random(r, "w", backend.BF16, 1, width)
		p := begin(t, b)
		buf, out := p.load(x), p.Buffer(width)
		p.RMSNorm(out, buf, vector(t, b, w), 1e-6)
		p.Tap(out)
		_, taps := p.run(rowsOf(9))
		var want []float64
		for i := range 9 {
			want = append(want, rmsNorm(x.values[i*width:(i+1)*width], w.values, 1e-6)...)
		}
		compare(t, fmt.Sprintf("width %d", width), taps[0], want, tolF32)
	}
}

// shapes are outputs and inputs: odd ones, and ones that kernels like.
var shapes = []struct{ out, in int }{{1, 1}, {3, 5}, {16, 32}, {17, 33}, {31, 96}, {48, 64}, {100, 130}, {129, 384}, {257, 512}, {19, 768}}

func testProject(t *testing.T, b backend.Backend) {
	r := seeded(3)
	for _, dt := range dtypes {
		for _, s := range shapes {
			if !fits(dt, s.in) {
				continue
			}
			for _, rows := range []int{1, 2, 7, 16, 17, 33, 70} {
				name := fmt.Sprintf("%v %d×%d, %d rows", dt, s.out, s.in, rows)
				x := random(r, "x", backend.F32, 1, rows, s.in)
				w := random(r, "w", dt, 1/math.Sqrt(float64(s.in)), s.out, s.in)
				w2 := random(r, "w2", dt, 1/math.Sqrt(float64(s.in)), s.out+3, s.in)
				bias := random(r, "bias", backend.BF16, 1, s.out)
				sum := random(r, "sum", backend.F32, 1, rows, s.out+3)
				p := begin(t, b)
				buf, y, y2 := p.load(x), p.Buffer(s.out), p.load(sum)
				p.Project([]backend.Buffer{y}, buf, []backend.Linear{{Weight: matrix(t, b, w), Bias: vector(t, b, bias)}})
				p.ProjectAdd(y2, buf, backend.Linear{Weight: matrix(t, b, w2)})
				p.Tap(y)
				p.Tap(y2)
				_, taps := p.run(rowsOf(rows))
				want := matmul(x.values, w.values, rows, s.in, s.out)
				want2 := matmul(x.values, w2.values, rows, s.in, s.out+3)
				for i := range want {
					want[i] += bias.values[i%s.out]
				}
				for i := range want2 {
					want2[i] += sum.values[i]
				}
				compare(t, name, taps[0], want, tolerance(b, dt))
				compare(t, name+", added", taps[1], want2, tolerance(b, dt))
			}
		}
	}
}

// testLargeScales multiplies weights whose groups have scales of any size, beside others
// that have small ones: kernels may be made for what is usual.
func testLargeScales(t *testing.T, b backend.Backend) {
	r := seeded(31)
	for _, dt := range []backend.DType{backend.Affine4, backend.Affine8} {
		for _, s := range []struct{ out, in int }{{48, 64}, {128, 384}, {256, 512}} {
			for _, rows := range []int{1, 7, 16, 33, 130} {
				x := random(r, "x", backend.F32, 1, rows, s.in)
				p := begin(t, b)
				buf := p.load(x)
				var lines []backend.Linear
				var outs []backend.Buffer
				var want [][]float64
				for _, deviation := range []float64{0.05, 20, 1e9} {
					w := random(r, "w", dt, deviation, s.out, s.in)
					lines = append(lines, backend.Linear{Weight: matrix(t, b, w)})
					outs = append(outs, p.Buffer(s.out))
					want = append(want, matmul(x.values, w.values, rows, s.in, s.out))
				}
				p.Project(outs[:2], buf, lines[:2])
				p.Project(outs[2:], buf, lines[2:])
				gated := p.Buffer(s.out)
				p.GatedProject(gated, buf, lines[0], lines[1])
				outs = append(outs, gated)
				product := make([]float64, len(want[0]))
				for i, v := range want[0] {
					product[i] = silu(v) * want[1][i]
				}
				want = append(want, product)
				for _, y := range outs {
					p.Tap(y)
				}
				_, taps := p.run(rowsOf(rows))
				for i, z := range want {
					compare(t, fmt.Sprintf("%v %d×%d, %d rows, output %d", dt, s.out, s.in, rows, i), taps[i], z, 2*tolerance(b, dt))
				}
			}
		}
	}
}

func testGatedProject(t *testing.T, b backend.Backend) {
	r := seeded(4)
	for _, dt := range dtypes {
		for _, s := range shapes {
			if !fits(dt, s.in) {
				continue
			}
			for _, rows := range []int{1, 6, 33} {
				x := random(r, "x", backend.F32, 1, rows, s.in)
				scale := 1 / math.Sqrt(float64(s.in))
				g, u := random(r, "gate", dt, 2*scale, s.out, s.in), random(r, "up", dt, scale, s.out, s.in)
				p := begin(t, b)
				buf, y := p.load(x), p.Buffer(s.out)
				p.GatedProject(y, buf, backend.Linear{Weight: matrix(t, b, g)}, backend.Linear{Weight: matrix(t, b, u)})
				p.Tap(y)
				_, taps := p.run(rowsOf(rows))
				want := matmul(x.values, g.values, rows, s.in, s.out)
				for i, v := range matmul(x.values, u.values, rows, s.in, s.out) {
					want[i] = silu(want[i]) * v
				}
				compare(t, fmt.Sprintf("%v %d×%d, %d rows", dt, s.out, s.in, rows), taps[0], want, 2*tolerance(b, dt))
			}
		}
	}
}

func testResults(t *testing.T, b backend.Backend) {
	r := seeded(5)
	for _, dt := range dtypes {
		for _, vocab := range []int{1, 7, 512, 513, 2000} {
			const rows = 40
			width := 64
			if dt.Quantized() {
				width = 256
			}
			x := random(r, "x", backend.F32, 1, rows, width)
			norm := random(r, "norm", backend.F32, 1, width)
			head := random(r, "head", dt, 0.4, vocab, width)
			bars := backend.NoBars
			limit := vocab
			if vocab > 2 {
				limit = vocab - 1
				bars = backend.Bars{Limit: int32(limit), Except: int32(vocab / 2)}
			}
			p := begin(t, b)
			p.Head(p.load(x), vector(t, b, norm), 1e-6, matrix(t, b, head), bars)
			f := p.compile()
			for _, logits := range []bool{true, false} {
				v := rowsOf(rows)
				for i := range rows {
					if i%3 != 1 {
						v.Want = append(v.Want, backend.Wanted{Row: int32(i), TopK: 5, Logits: logits})
					}
				}
				got := run(t, f, v)
				var logitsGot []float32
				var logitsWant []float64
				for i, w := range v.Want {
					h := rmsNorm(x.values[int(w.Row)*width:int(w.Row+1)*width], norm.values, 1e-6)
					z := matmul(h, head.values, 1, width, vocab)
					checkResult(t, fmt.Sprintf("%v vocabulary %d row %d", dt, vocab, w.Row), got[i], z, w, bars, tolerance(b, dt))
					logitsGot = append(logitsGot, got[i].Logits...)
					logitsWant = append(logitsWant, z...)
				}
				if logits {
					// The norm's error adds to the head's.
					compare(t, fmt.Sprintf("%v vocabulary %d, logits", dt, vocab), logitsGot, logitsWant, 2*tolerance(b, dt))
				}
			}
			f.Close()
		}
	}
}

// checkResult compares a row's result with the logits it should have.
func checkResult(t *testing.T, what string, got backend.Result, z []float64, w backend.Wanted, bars backend.Bars, tol float64) {
	t.Helper()
	peak := math.Inf(-1)
	for _, v := range z {
		peak = max(peak, v)
	}
	var s0, s1 float64
	for _, v := range z {
		s0 += math.Exp(v - peak)
		s1 += math.Exp(v-peak) * (v - peak)
	}
	slack := 20 * tol * math.Sqrt(float64(len(z))) // of logits with deviation about 3
	slack = min(slack, 100*tol)
	if h := math.Log(s0) - s1/s0; math.Abs(float64(got.Entropy)-h) > slack {
		t.Errorf("%s: entropy %v, want %v", what, got.Entropy, h)
	}
	if l := peak + math.Log(s0); math.Abs(float64(got.LogSumExp)-l) > slack {
		t.Errorf("%s: log-sum-exp %v, want %v", what, got.LogSumExp, l)
	}
	if (got.Logits != nil) != w.Logits {
		t.Errorf("%s: logits %v, asked for: %v", what, got.Logits != nil, w.Logits)
	}
	mayBe := func(id int) bool {
		return id < bars.Ids(len(z)) && int32(id) != bars.Except && (w.Allowed == nil || w.Allowed.Has(int32(id)))
	}
	allowed := 0
	for id := range z {
		if mayBe(id) {
			allowed++
		}
	}
	if len(got.Top) != min(w.TopK, allowed) {
		t.Fatalf("%s: %d top candidates, want %d", what, len(got.Top), min(w.TopK, allowed))
	}
	if len(got.Top) > 0 && got.Argmax != got.Top[0].ID {
		t.Errorf("%s: argmax %d, top %v", what, got.Argmax, got.Top)
	}
	if !mayBe(int(got.Argmax)) {
		t.Fatalf("%s: argmax %d may not be chosen", what, got.Argmax)
	}
	for id := range z {
		if mayBe(id) && z[id] > z[got.Argmax]+slack {
			t.Errorf("%s: argmax %d, but id %d is better", what, got.Argmax, id)
		}
	}
	for i, c := range got.Top {
		if !mayBe(int(c.ID)) {
			t.Errorf("%s: barred id %d among the top", what, c.ID)
		}
		better := 0
		for id := range z {
			if mayBe(id) && z[id] > z[c.ID]+slack {
				better++
			}
		}
		if better > i {
			t.Errorf("%s: candidate %d is id %d, but %d ids are better", what, i, c.ID, better)
		}
		if i > 0 && c.Logit > got.Top[i-1].Logit {
			t.Errorf("%s: top %v is not in order", what, got.Top)
		}
	}
}

func testNotFinite(t *testing.T, b backend.Backend) {
	r := seeded(6)
	x := random(r, "x", backend.F32, 1, 2, 32)
	norm := random(r, "norm", backend.F32, 1, 32)
	head := random(r, "head", backend.F32, 1, 600, 32)
	for i := range 4 {
		head.tensor.Data[4*(550*32)+i] = 0xff // a NaN
	}
	p := begin(t, b)
	p.Head(p.load(x), vector(t, b, norm), 1e-6, matrix(t, b, head), backend.NoBars)
	f := p.compile()
	defer f.Close()
	v := rowsOf(2)
	v.Want = []backend.Wanted{{Row: 0}, {Row: 1}}
	err := f.Start(context.Background(), v)
	if err == nil {
		_, err = f.Wait()
	}
	if err == nil {
		t.Error("logits of NaN: want an error")
	}
	v.Want = nil
	run(t, f, v) // the next forward is not concerned
	bad := random(r, "v", backend.F32, 1, 4)
	copy(bad.tensor.Data, []byte{0, 0, 0x80, 0x7f})
	if _, err := b.Vector(bad.tensor); err == nil {
		t.Error("an infinite norm weight: want an error")
	}
}

func testRefusals(t *testing.T, b backend.Backend) {
	r := seeded(7)
	ok := random(r, "w", backend.F32, 1, 4, 6)
	short := ok.tensor
	short.Data = short.Data[:90]
	flat := ok.tensor
	flat.Shape = []int{24}
	for _, bad := range []backend.Tensor{short, flat, {Name: "none"}} {
		if _, err := b.Matrix(bad); err == nil {
			t.Errorf("matrix %v of %d bytes: want an error", bad.Shape, len(bad.Data))
		}
	}
	heads := func(layers ...backend.LayerStore) backend.Layout {
		return backend.Layout{Layers: layers, DType: backend.KVF32, Slots: 4}
	}
	keys := backend.LayerStore{Kind: backend.StoreKeys, KVHeads: 1, HeadDim: 4}
	rotating, untyped := heads(keys), heads(keys)
	rotating.Window, rotating.Keep, untyped.DType = 4, 1, 0
	other, odd := keys, keys
	other.KVHeads, odd.HeadDim = 2, 3
	for _, l := range []backend.Layout{{}, heads(odd), heads(keys, other), heads(backend.LayerStore{Kind: 9}), untyped, rotating,
		heads(backend.LayerStore{Kind: backend.StoreState})} {
		if s, err := b.NewStorage(l); err == nil {
			s.Close()
			t.Errorf("storage %+v: want an error", l)
		}
	}
	refusePrograms(t, b)
	refuseValues(t, b)
}
