package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"windrow/cpu/kernels/kernelstest"
)

var (
	inf32 = float32(math.Inf(1))
	nan32 = float32(math.NaN())
)

// fastTables calls f for every kernel table of this architecture but the
// reference, as a subtest that is skipped where the machine cannot run it.
func fastTables(t *testing.T, f func(t *testing.T, k *Table)) {
	for _, table := range architectureTables {
		t.Run(table.name, func(t *testing.T) {
			if lacking := table.lacks(); lacking != "" {
				t.Skipf("needs the table %s; this machine lacks %s", table.name, lacking)
			}
			f(t, table.make())
		})
	}
}

// machineTables are the tables that this machine runs.
func machineTables() (all []*Table) {
	for _, t := range tables() {
		if t.lacks() == "" {
			all = append(all, t.make())
		}
	}
	return all
}

// needsInt8 skips a test on machines without integer kernels.
func needsInt8(t testing.TB) {
	t.Helper()
	for _, k := range machineTables() {
		if k.Quant != nil {
			return
		}
	}
	var names []string
	for _, t := range architectureTables {
		names = append(names, t.name)
	}
	t.Skipf("needs a table with integer kernels, one of %v; this machine runs %v", names, Names())
}

// vectorLengths are all tails of 16 lanes and of loops unrolled to 128, and
// sizes of real models.
func vectorLengths() []int {
	var l []int
	for n := range 131 {
		l = append(l, n)
	}
	return append(l, 255, 1000, 1024, 3072, 5003)
}

// misaligned returns n elements that start 4 bytes past the allocation, with
// guard values around them that check compares.
func misaligned(n int) (x []float32, check func(t *testing.T)) {
	const guard = 12345.5
	mem := make([]float32, n+33)
	for i := range mem {
		mem[i] = guard
	}
	return mem[1 : n+1 : n+1], func(t *testing.T) {
		t.Helper()
		if mem[0] != guard {
			t.Errorf("n=%d: the element before the slice was overwritten", n)
		}
		for i, v := range mem[n+1:] {
			if v != guard {
				t.Fatalf("n=%d: element %d past the slice was overwritten", n, i)
			}
		}
	}
}

// TestWidenNarrow compares all 65,536 halves and bfloat16s, all int8s, and the
// rounding of values around every tie, exactly.
func TestWidenNarrow(t *testing.T) {
	fastTables(t, func(t *testing.T, k *Table) {
		all := make([]byte, 2<<16+1)
		for i := range 1 << 16 {
			binary.LittleEndian.PutUint16(all[1+2*i:], uint16(i))
		}
		src := all[1:]
		got, want := make([]float32, 1<<16), make([]float32, 1<<16)
		k.WidenBF16(got, src)
		genericWidenBF16(want, src)
		kernelstest.Compare(t, "widenBF16", got, want, 0, 0)
		k.WidenF16(got, src)
		genericWidenF16(want, src)
		kernelstest.Compare(t, "widenF16", got, want, 0, 0)

		// Upper halves with the lower halves that decide the rounding.
		for _, low := range []uint32{0, 1, 0x7fff, 0x8000, 0x8001, 0xffff} {
			x := make([]float32, 1<<16)
			for i := range x {
				x[i] = math.Float32frombits(uint32(i)<<16 | low)
			}
			g, w := make([]byte, 2<<16+1), make([]byte, 2<<16+1)
			k.NarrowBF16(g[1:], x)
			genericNarrowBF16(w[1:], x)
			for i := range x {
				if a, b := binary.LittleEndian.Uint16(g[1+2*i:]), binary.LittleEndian.Uint16(w[1+2*i:]); a != b {
					t.Fatalf("narrowBF16(%08x) = %04x, want %04x", math.Float32bits(x[i]), a, b)
				}
			}
		}

		for _, n := range vectorLengths() {
			got, check := misaligned(n)
			want := make([]float32, n)
			src := all[3 : 3+2*n]
			k.WidenBF16(got, src)
			genericWidenBF16(want, src)
			kernelstest.Compare(t, "widenBF16", got, want, 0, 0)
			k.WidenF16(got, src)
			genericWidenF16(want, src)
			kernelstest.Compare(t, "widenF16", got, want, 0, 0)
			k.WidenInt8(got, all[7:7+n], 0.37)
			genericWidenInt8(want, all[7:7+n], 0.37)
			kernelstest.Compare(t, "widenInt8", got, want, 0, 0)
			check(t)

			out := make([]byte, 2*n+40)
			k.NarrowBF16(out[1:2*n+1], want)
			if out[0] != 0 || string(out[2*n+1:]) != string(make([]byte, 39)) {
				t.Fatalf("narrowBF16, n=%d: wrote outside the slice", n)
			}
			for i := range n {
				if a, b := binary.LittleEndian.Uint16(out[1+2*i:]), want[i]; a != bf16Of(b) {
					t.Fatalf("narrowBF16, n=%d: element %d is %04x, want %04x", n, i, a, bf16Of(b))
				}
			}
		}
	})
}

func bf16Of(f float32) uint16 {
	var b [2]byte
	genericNarrowBF16(b[:], []float32{f})
	return binary.LittleEndian.Uint16(b[:])
}

// TestElementwise compares the operations that write vectors. Where a fused
// multiply-add replaces two roundings the bound is that of the terms.
func TestElementwise(t *testing.T) {
	fastTables(t, func(t *testing.T, k *Table) {
		r := rand.New(rand.NewPCG(1, 2))
		for _, n := range vectorLengths() {
			x, check := misaligned(n)
			w, checkW := misaligned(n)
			dst, checkDst := misaligned(n)
			want := make([]float32, n)
			kernelstest.Gaussian(r, x, 1)
			kernelstest.Gaussian(r, w, 1)

			k.ScaleMul(dst, x, w, 0.7)
			genericScaleMul(want, x, w, 0.7)
			kernelstest.Compare(t, "scaleMul", dst, want, 0, 0)

			k.Add(dst, x)
			genericAdd(want, x)
			kernelstest.Compare(t, "add", dst, want, 0, 0)

			k.Scale(dst, -1.3)
			genericScale(want, -1.3)
			kernelstest.Compare(t, "scale", dst, want, 0, 0)

			kernelstest.Gaussian(r, x, 8)
			k.SiluMul(dst, x, w)
			genericSiluMul(want, x, w)
			kernelstest.Compare(t, "siluMul", dst, want, 5e-7, 1e-37)

			// Half-split pairs, n/2 apart: an odd last element is left alone.
			half := n / 2
			y, wantY := append([]float32(nil), x...), append([]float32(nil), x...)
			cos, sin := make([]float32, half), make([]float32, half)
			for i := range half {
				s, c := math.Sincos(r.Float64() * 7)
				cos[i], sin[i] = float32(c), float32(s)
			}
			half2 := half * 2
			k.Rotate(y[:half2], cos, sin)
			genericRotate(wantY[:half2], cos, sin)
			kernelstest.Compare(t, "rotate", y, wantY, 1e-7, 8*4*1.2e-7)
			check(t)
			checkW(t)
			checkDst(t)
		}
	})
}

// TestNormRows demands the bits of one row after the other, at lengths that are taken at once
// and not.
func TestNormRows(t *testing.T) {
	fastTables(t, func(t *testing.T, k *Table) {
		if k.NormRows == nil {
			t.Skip("has none")
		}
		alone := *k
		alone.NormRows = nil
		r := rand.New(rand.NewPCG(9, 4))
		for _, n := range []int{1, 8, 15, 16, 24, 32, 40, 48, 64, 80, 128, 256, 1024} {
			for _, rows := range []int{1, 2, 5} {
				ldx, ldd := n+3, n+7
				x, _ := misaligned(rows * ldx)
				w, _ := misaligned(n)
				y, check := misaligned(rows * ldd)
				for _, v := range [][]float32{x, w, y} {
					kernelstest.Gaussian(r, v, 1)
				}
				want := append([]float32(nil), y...)
				alone.RMSNormRows(want, ldd, x, ldx, w, n, rows, 1e-6)
				k.RMSNormRows(y, ldd, x, ldx, w, n, rows, 1e-6)
				kernelstest.Compare(t, fmt.Sprintf("%d rows of %d", rows, n), y, want, 0, 0)
				check(t)
				z, check := misaligned(rows * n)
				kernelstest.Gaussian(r, z, 3)
				clear(z[:n])
				want = append([]float32(nil), z...)
				alone.UnitRows(want, n, rows, 0.3, 1e-6)
				k.UnitRows(z, n, rows, 0.3, 1e-6)
				kernelstest.Compare(t, fmt.Sprintf("%d unit rows of %d", rows, n), z, want, 0, 0)
				check(t)
			}
		}
	})
}

// TestGateDiv demands the bits that the table's own exponentials give.
func TestGateDiv(t *testing.T) {
	fastTables(t, func(t *testing.T, k *Table) {
		if k.GateDiv == nil {
			t.Skip("has none")
		}
		r := rand.New(rand.NewPCG(9, 6))
		for _, n := range vectorLengths() {
			x, check := misaligned(n)
			gate, _ := misaligned(n)
			kernelstest.Gaussian(r, x, 1)
			kernelstest.Gaussian(r, gate, 5)
			for i, v := range []float32{inf32, -inf32, nan32, 0, 200, -200} {
				if 2*i < n {
					gate[2*i] = v
				}
			}
			e, want := make([]float32, n), make([]float32, n)
			for i, v := range gate {
				e[i] = -v
			}
			k.ExpSum(e, 0)
			for i, v := range x {
				want[i] = v / (1 + e[i])
			}
			k.GateDiv(x, gate)
			kernelstest.Compare(t, fmt.Sprintf("n=%d", n), x, want, 0, 0)
			check(t)
		}
	})
}

// TestFirstAtLeast looks for one place after the other.
func TestFirstAtLeast(t *testing.T) {
	fastTables(t, func(t *testing.T, k *Table) {
		for _, n := range vectorLengths() {
			x, _ := misaligned(n)
			for i := range x {
				x[i] = -1
			}
			if n > 3 {
				x[1] = nan32
			}
			if got := k.FirstAtLeast(x, 0); got != n {
				t.Fatalf("n=%d: %d, want none", n, got)
			}
			for i := n - 1; i >= 0; i-- { // larger ones behind it do not matter
				x[i] = float32(n - i)
				if got := k.FirstAtLeast(x, 1); got != i {
					t.Fatalf("n=%d: %d, want %d", n, got, i)
				}
			}
			if got := k.FirstAtLeast(x, float32(n)); n > 0 && got != 0 {
				t.Fatalf("n=%d: %d, want the first", n, got)
			}
		}
	})
}

// TestAddRows demands the bits of one row after the other.
func TestAddRows(t *testing.T) {
	fastTables(t, func(t *testing.T, k *Table) {
		if k.AddRows == nil {
			t.Skip("has none")
		}
		alone := *k
		alone.AddRows = nil
		r := rand.New(rand.NewPCG(9, 5))
		for _, n := range []int{1, 8, 15, 16, 24, 32, 33, 128} {
			for _, rows := range []int{0, 1, 2, 5} {
				for kind := range 4 {
					ldd := n + 3
					y, check := misaligned((rows+2)*ldd + n)
					x, _ := misaligned(rows * n)
					weights, _ := misaligned(rows)
					for _, v := range [][]float32{x, weights, y} {
						kernelstest.Gaussian(r, v, 1)
					}
					list := r.Perm(rows + 2)[:rows]
					if kind&1 != 0 {
						list = nil
					}
					if kind&2 != 0 {
						weights = nil
					}
					want := append([]float32(nil), y...)
					alone.AddTo(want, ldd, list, append([]float32(nil), x...), n, weights, rows)
					k.AddTo(y, ldd, list, x, n, weights, rows)
					kernelstest.Compare(t, fmt.Sprintf("%d rows of %d, kind %d", rows, n, kind), y, want, 0, 0)
					check(t)
				}
			}
		}
	})
}

// TestSiluMulExtremes checks the ends, where e^-g leaves the range of f32.
func TestSiluMulExtremes(t *testing.T) {
	gate := []float32{0, float32(math.Copysign(0, -1)), 1e-38, 88, 89, 104, 1e4, 3e38, -80, -86, -87.5, -88, -88.9, -104, -1e4, -3e38, inf32, nan32}
	up := make([]float32, len(gate))
	for i := range up {
		up[i] = 2
	}
	fastTables(t, func(t *testing.T, k *Table) {
		got, want := make([]float32, len(gate)), make([]float32, len(gate))
		k.SiluMul(got, gate, up)
		genericSiluMul(want, gate, up)
		for i := range want {
			// Near g = -88.7 e^-g overflows one step earlier or later: both
			// results are below 3e-37.
			if !kernelstest.Near(got[i], want[i], 5e-7, 6e-37) {
				t.Errorf("siluMul(%g) = %g, want %g", gate[i], got[i], want[i])
			}
		}
	})
}

// TestExp bounds the relative error of e^x over the whole range of f32 results:
// 2e-7 is about 3 units in the last place of numbers just below a power of 2.
// Below the normal numbers one unit of 2^-149 is allowed.
func TestExp(t *testing.T) {
	fastTables(t, func(t *testing.T, k *Table) {
		var x []float32
		for v := -106.0; v < 88.72; v += 0.00173 {
			x = append(x, float32(v))
		}
		for i := range 3000 {
			x = append(x, float32(i-1500)*1e-5)
		}
		in := append([]float32(nil), x...)
		k.ExpSum(x, 0)
		worst := 0.0
		for i, v := range in {
			want := math.Exp(float64(v))
			err := math.Abs(float64(x[i]) - want)
			if want > 1.2e-38 {
				worst = max(worst, err/want)
			}
			if err > 2e-7*want+1.5e-45 {
				t.Fatalf("exp(%g) = %g, want %g", v, x[i], want)
			}
		}
		t.Logf("%s: worst relative error %.2g", k.Name, worst)

		special := []float32{-inf32, -1e30, -200, -111, 0, 89.5, 1e30, inf32, nan32}
		want := []float32{0, 0, 0, 0, 1, inf32, inf32, inf32, nan32}
		got := append([]float32(nil), special...)
		k.ExpSum(got, 0)
		kernelstest.Compare(t, "exp", got, want, 0, 0)
		// A large shift: the difference is what counts.
		got = []float32{3e4 - 1, 3e4, -inf32, -3e38}
		if s := k.ExpSum(got, 3e4); !kernelstest.Near(s, 1+float32(math.Exp(-1)), 3e-7, 0) || got[2] != 0 || got[3] != 0 {
			t.Errorf("expSum with shift 3e4: %v, sum %g", got, s)
		}
	})
}

// TestReductions compares sums and maxima with float64. The bound of a sum of
// n terms of one sign in 16 lanes or more is n/16·2^-24 and the tree's few.
func TestReductions(t *testing.T) {
	fastTables(t, func(t *testing.T, k *Table) {
		r := rand.New(rand.NewPCG(3, 4))
		for _, n := range append(vectorLengths(), 151936) {
			x, check := misaligned(n)
			kernelstest.Gaussian(r, x, 3)
			bound := float64(n)/8*6e-8 + 1e-6

			var ss, s0, s1 float64
			best := float32(math.Inf(-1))
			for _, v := range x {
				ss += float64(v) * float64(v)
				best = max(best, v)
			}
			if got := k.SumSquares(x); !kernelstest.Near(got, float32(ss), bound, 0) {
				t.Errorf("sumSquares, n=%d: %g, want %g", n, got, ss)
			}
			if got := k.Maximum(x); got != best {
				t.Errorf("maximum, n=%d: %g, want %g", n, got, best)
			}
			for i := range x {
				if i%7 == 3 {
					x[i] = -inf32
				}
			}
			const shift = 4
			for _, v := range x {
				if d := float64(v - shift); !math.IsInf(d, 0) {
					s0 += math.Exp(d)
					s1 += math.Exp(d) * d
				}
			}
			g0, g1 := k.ExpSums(x, shift)
			if !kernelstest.Near(g0, float32(s0), bound, 0) || !kernelstest.Near(g1, float32(s1), bound, bound*math.Abs(s0)) {
				t.Errorf("expSums, n=%d: %g %g, want %g %g", n, g0, g1, s0, s1)
			}
			if got := k.ExpSum(x, shift); !kernelstest.Near(got, float32(s0), bound, 0) {
				t.Errorf("expSum, n=%d: %g, want %g", n, got, s0)
			}
			check(t)
		}
	})
}

// TestMaximumPlaces puts the maximum, and then a NaN beside it, at each place.
func TestMaximumPlaces(t *testing.T) {
	fastTables(t, func(t *testing.T, k *Table) {
		if m := k.Maximum(nil); m != -inf32 {
			t.Errorf("maximum of none: %g, want -Inf", m)
		}
		for _, n := range []int{1, 7, 16, 33, 130, 200} {
			for i := range n {
				x := make([]float32, n)
				for j := range x {
					x[j] = -float32(j) - 2
				}
				x[i] = -1
				if m := k.Maximum(x); m != -1 {
					t.Fatalf("maximum, n=%d at %d: %g, want -1", n, i, m)
				}
				if n > 1 {
					x[(i+1)%n] = nan32
					if m := k.Maximum(x); m != -1 && m == m {
						t.Fatalf("maximum, n=%d at %d beside a NaN: %g, want -1 or NaN", n, i, m)
					}
				}
			}
		}
	})
}

// TestAttendScores compares with float64 and then demands, for every tile
// shape, the bits that a query alone with one key gives.
func TestAttendScores(t *testing.T) {
	fastTables(t, func(t *testing.T, k *Table) {
		r := rand.New(rand.NewPCG(5, 6))
		for _, d := range []int{1, 5, 8, 16, 20, 31, 64, 80, 100, 128, 256} {
			const maxQ, maxK = 9, 67
			q, _ := misaligned(maxQ * d)
			key, _ := misaligned(maxK * d)
			kernelstest.Gaussian(r, q, 1)
			kernelstest.Gaussian(r, key, 1)
			single := make([]float32, maxQ*maxK)
			for i := range maxQ {
				for j := range maxK {
					s := single[i*maxK+j:]
					k.AttendScores(s[:1], 1, q[i*d:(i+1)*d], key[j*d:(j+1)*d], 1, 1, d)
					var want, norm float64
					for c := range d {
						p := float64(q[i*d+c]) * float64(key[j*d+c])
						want += p
						norm += math.Abs(p)
					}
					// d/8 additions a lane and the tree, of terms below norm.
					if math.Abs(float64(s[0])-want) > norm*6e-8*(float64(d)/8+5) {
						t.Fatalf("d=%d q %d k %d: %g, want %g", d, i, j, s[0], want)
					}
				}
			}
			for nq := 1; nq <= maxQ; nq++ {
				for _, nk := range []int{1, 2, 3, 4, 5, 7, 15, 16, 17, 19, 32, 62, 63, 64, 67} {
					lds := nk + 3
					s, check := misaligned((nq-1)*lds + nk)
					k.AttendScores(s, lds, q[:nq*d], key[:nk*d], nq, nk, d)
					for i := range nq {
						for j := range nk {
							if got, want := s[i*lds+j], single[i*maxK+j]; got != want {
								t.Fatalf("d=%d nq=%d nk=%d: score (%d,%d) is %g, alone it is %g", d, nq, nk, i, j, got, want)
							}
						}
						for j := nk; i < nq-1 && j < lds; j++ {
							if s[i*lds+j] != 12345.5 {
								t.Fatalf("d=%d nq=%d nk=%d: row %d was written past its keys", d, nq, nk, i)
							}
						}
					}
					check(t)
				}
			}
		}
	})
}

// TestAttendValues demands the bits of one multiply-add after the other, j
// ascending, which float64 emulates: the product of two f32 is exact in it and
// the sum is rounded to 53 bits, then 24. Double rounding strikes about once in
// 2^29, not with this seed.
func TestAttendValues(t *testing.T) {
	fastTables(t, func(t *testing.T, k *Table) {
		r := rand.New(rand.NewPCG(7, 8))
		for _, d := range []int{1, 5, 8, 16, 20, 31, 64, 80, 100, 128, 200, 256} {
			for _, nq := range []int{1, 2, 3, 4, 5, 7, 8, 9} {
				for _, nk := range []int{1, 2, 7, 16, 33, 64} {
					ldp := nk + 2
					acc, check := misaligned(nq * d)
					p, _ := misaligned((nq-1)*ldp + nk)
					v, _ := misaligned(nk * d)
					kernelstest.Gaussian(r, acc, 1)
					kernelstest.Gaussian(r, p, 1)
					kernelstest.Gaussian(r, v, 1)
					want := append([]float32(nil), acc...)
					for i := range nq {
						for j := range nk {
							for c := range d {
								want[i*d+c] = float32(math.FMA(float64(p[i*ldp+j]), float64(v[j*d+c]), float64(want[i*d+c])))
							}
						}
					}
					k.AttendValues(acc, p, ldp, v, nq, nk, d)
					kernelstest.Compare(t, fmt.Sprintf("attendValues d=%d nq=%d nk=%d", d, nq, nk), acc, want, 0, 0)
					check(t)
				}
			}
		}
	})
}

// TestShortSlices: a slice that is too short panics in Go, before any assembly.
func TestShortSlices(t *testing.T) {
	fastTables(t, func(t *testing.T, k *Table) {
		x, short := make([]float32, 8), make([]float32, 7, 8)
		for name, f := range map[string]func(){
			"widenBF16":    func() { k.WidenBF16(x, make([]byte, 15)) },
			"widenF16":     func() { k.WidenF16(x, make([]byte, 15)) },
			"narrowBF16":   func() { k.NarrowBF16(make([]byte, 15), x) },
			"widenInt8":    func() { k.WidenInt8(x, make([]byte, 7), 1) },
			"scaleMul":     func() { k.ScaleMul(x, x, short, 1) },
			"add":          func() { k.Add(short, x) },
			"rotate":       func() { k.Rotate(x, short[:3], x) },
			"siluMul":      func() { k.SiluMul(x, x, short) },
			"attendScores": func() { k.AttendScores(short[:3], 2, x[:4], x[:4], 2, 2, 2) },
			"attendValues": func() { k.AttendValues(short[:3], x, 2, x[:4], 2, 2, 2) },
			"taps":         func() { k.Taps(x, [][]float32{x, x}, append(short, short...), 7) },
			"tapsRow":      func() { k.Taps(x, [][]float32{x, short}, make([]float32, 16), 8) },
			"deltaFold":    func() { k.DeltaFold(x, short, x[:1], x, 1) },
			"deltaStep":    func() { k.DeltaStep(short, x[:1], x[:1], x, x, x, 1, 1) },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s took a slice that is too short", name)
					}
				}()
				f()
			}()
		}
	})
}
