package kernels

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/cpu/kernels/kernelstest"
)

// TestMulAdd32 compares with a sum of exact numbers that is rounded once, also where
// float64 rounds to the middle between two float32, or is subnormal.
func TestMulAdd32(t *testing.T) {
	exact := func(x, y, z float32) float32 {
		b := func(v float32) *big.Float { return new(big.Float).SetPrec(2000).SetFloat64(float64(v)) }
		sum := b(x)
		sum.Add(sum.Mul(sum, b(y)), b(z))
		want, _ := sum.Float32()
		return want
	}
	r := rand.New(rand.NewPCG(3, 3))
	ties := 0
	for range 300_000 {
		x, y := math.Float32frombits(r.Uint32()), math.Float32frombits(r.Uint32())
		z := float32(math.Ldexp(float64(x)*float64(y), r.IntN(60)-30))
		switch r.IntN(4) {
		case 0: // 2²⁴ + 3 - 2⁻⁴⁶ and its like: float64 rounds it to the middle of two float32
			x, y = 1+1.0/(1<<23), 1-1.0/(1<<23)
			z = float32(int(1)<<24 + 2*r.IntN(1<<22))
			scale := float32(math.Ldexp(1, r.IntN(100)-50))
			x, z = x*scale, z*scale
			if r.IntN(2) == 0 {
				x, z = -x, -z
			}
		case 1:
			z = float32(r.NormFloat64()) * z
		}
		if v := float64(x) * float64(y) * float64(z); math.IsNaN(v) || math.IsInf(v, 0) || math.IsInf(float64(float32(float64(x)*float64(y))), 0) || v == 0 {
			continue
		}
		want := exact(x, y, z)
		if got := mulAdd32(x, y, z); math.Float32bits(got) != math.Float32bits(want) && !(got == 0 && want == 0) {
			t.Fatalf("%v·%v + %v: %v, want %v", x, y, z, got, want)
		}
		if float32(math.FMA(float64(x), float64(y), float64(z))) != want {
			ties++
		}
	}
	if ties < 1000 {
		t.Errorf("rounding twice would have been wrong %d times: want cases where it is", ties)
	}
	for _, c := range [][3]float32{{inf32, 1, 1}, {1, 2, -inf32}, {inf32, 0, 1}, {inf32, 1, -inf32}, {nan32, 1, 1}, {3e38, 3e38, 1}, {0, 1, 0}} {
		if got, want := mulAdd32(c[0], c[1], c[2]), float32(math.FMA(float64(c[0]), float64(c[1]), float64(c[2]))); got != want && (got == got || want == want) {
			t.Errorf("%v: %v, want %v", c, got, want)
		}
	}
}

// TestDelta demands the reference's bits of every table, at widths that leave columns to
// each tile, and touches nothing else.
func TestDelta(t *testing.T) {
	fastTables(t, func(t *testing.T, k *Table) {
		r, ref := rand.New(rand.NewPCG(5, 8)), Reference()
		vector := func(n int) ([]float32, func(t *testing.T)) {
			x, check := misaligned(n)
			kernelstest.Gaussian(r, x, 1)
			return x, check
		}
		for _, n := range []int{0, 1, 3, 4, 7, 8, 15, 16, 17, 20, 31, 32, 33, 48, 63, 64, 65, 100, 128} {
			for count := range 6 {
				var rows [][]float32
				for range count {
					x, _ := vector(n)
					rows = append(rows, x)
				}
				w, _ := vector(count * (n + 3))
				y, check := vector(n)
				want := make([]float32, n)
				ref.Taps(want, rows, w, n+3)
				k.Taps(y, rows, w, n+3)
				kernelstest.Compare(t, fmt.Sprintf("taps n=%d, %d rows", n, count), y, want, 0, 0)
				check(t)
			}
			for _, keys := range []int{1, 2, 17, 128} {
				s, check := vector(keys * n)
				q, _ := vector(keys)
				key, _ := vector(keys)
				v, _ := vector(n)
				d, checkD := vector(n)
				o, checkO := vector(n)
				what := fmt.Sprintf("n=%d, %d keys", n, keys)
				wantS, wantD, wantO := append([]float32(nil), s...), make([]float32, n), make([]float32, n)
				ref.DeltaStep(wantS, q, key, v, wantD, wantO, 0.9, 0.7)
				k.DeltaStep(s, q, key, v, d, o, 0.9, 0.7)
				for name, c := range map[string][2][]float32{"s": {s, wantS}, "d": {d, wantD}, "o": {o, wantO}} {
					kernelstest.Compare(t, "deltaStep "+name+" "+what, c[0], c[1], 0, 0)
				}
				y, checkY := vector(keys * n)
				ref.DeltaFold(wantS, wantS, key, d, 0.3)
				k.DeltaFold(y, s, key, d, 0.3)
				kernelstest.Compare(t, "deltaFold "+what, y, wantS, 0, 0)
				k.DeltaFold(s, s, key, d, 0.3)
				kernelstest.Compare(t, "deltaFold in place "+what, s, wantS, 0, 0)
				for _, check := range []func(*testing.T){check, checkD, checkO, checkY} {
					check(t)
				}
			}
		}
	})
}

// TestDeltaRows demands the bits of a row after the other of every table that takes several
// at once, and touches nothing else.
func TestDeltaRows(t *testing.T) {
	fastTables(t, func(t *testing.T, k *Table) {
		if k.DeltaRows == nil {
			t.Skip("has none")
		}
		r, ref := rand.New(rand.NewPCG(6, 8)), Reference()
		vector := func(n int) ([]float32, func(t *testing.T)) {
			x, check := misaligned(n)
			kernelstest.Gaussian(r, x, 1)
			return x, check
		}
		const n = DeltaColumns
		for _, keys := range []int{1, 2, 17, 32, 128} {
			for _, rows := range []int{1, 2, 3, 24} {
				for _, apart := range []bool{false, true} { // two states, or two halves of one
					lds, from := n, keys*n
					if apart {
						lds, from = 2*n, n
					}
					ldv, ldd, ldo, ldh := 2*n+3, 2*n+5, 2*n, 4
					if rows == 3 {
						ldd = 0 // one row's place for all
					}
					s, checkS := vector(2 * keys * n)
					q, _ := vector(rows * keys)
					key, _ := vector(rows * keys)
					v, _ := vector(rows * ldv)
					d, checkD := vector(rows*ldd + 2*n)
					o, checkO := vector(rows * ldo)
					h, _ := vector(rows * 2 * ldh)
					want := map[string][]float32{"s": slices.Clone(s), "d": slices.Clone(d), "o": slices.Clone(o)}
					y := DeltaRows{Rows: rows, Keys: keys, Q: q, K: key, StrideS: lds, StrideV: ldv, StrideD: ldd, StrideO: ldo, StrideH: ldh}
					for i := range y.Parts {
						y.Parts[i] = DeltaPart{S: s[i*from:], V: v[i*n:], D: d[i*n:], O: o[i*n:], Decay: h[i:], Beta: h[i+rows*ldh:]}
						state := make([]float32, keys*n)
						for row := range keys {
							copy(state[row*n:(row+1)*n], s[i*from+row*lds:])
						}
						for row := range rows {
							ref.DeltaStep(state, q[row*keys:(row+1)*keys], key[row*keys:(row+1)*keys], v[row*ldv+i*n:][:n],
								want["d"][row*ldd+i*n:][:n], want["o"][row*ldo+i*n:][:n], h[i+row*ldh], h[i+rows*ldh+row*ldh])
						}
						for row := range keys {
							copy(want["s"][i*from+row*lds:], state[row*n:(row+1)*n])
						}
					}
					k.DeltaRows(&y)
					for name, got := range map[string][]float32{"s": s, "d": d, "o": o} {
						kernelstest.Compare(t, fmt.Sprintf("%s of %d rows, %d keys", name, rows, keys), got, want[name], 0, 0)
					}
					for _, check := range []func(*testing.T){checkS, checkD, checkO} {
						check(t)
					}
				}
			}
		}
		for _, n := range []int{DeltaColumns, 2 * DeltaColumns} {
			for _, keys := range []int{1, 2, 17, 32, 128} {
				for _, rows := range []int{1, 2, 3, 24} {
					src, _ := vector(keys * n)
					dst, check := vector(keys * n)
					key, _ := vector(rows * (keys + 3))
					d, _ := vector(rows * (n + 5))
					alpha, _ := vector(rows * 3)
					want := slices.Clone(src)
					for row := range rows {
						ref.DeltaFold(want, want, key[row*(keys+3):][:keys], d[row*(n+5):][:n], alpha[row*3])
					}
					k.FoldRows(dst, src, n, keys, rows, key, keys+3, d, n+5, alpha, 3)
					kernelstest.Compare(t, fmt.Sprintf("%d rows folded, %d keys", rows, keys), dst, want, 0, 0)
					k.FoldRows(src, src, n, keys, rows, key, keys+3, d, n+5, alpha, 3)
					kernelstest.Compare(t, fmt.Sprintf("%d rows folded in place, %d keys", rows, keys), src, want, 0, 0)
					check(t)
				}
			}
		}
		for _, n := range []int{0, 1, 7, 8, 15, 16, 32, 50, 128} {
			for _, taps := range []int{1, 2, 4, 8} {
				for _, rows := range []int{0, 1, 2, 24} {
					ldx, ldw := n+3, n+5
					x, _ := vector((rows + taps) * ldx)
					w, _ := vector(taps * ldw)
					y, check := vector(rows * n)
					want := make([]float32, rows*n)
					for row := range rows {
						var list [][]float32
						for tap := range taps {
							list = append(list, x[(row+tap)*ldx:][:n])
						}
						ref.Taps(want[row*n:(row+1)*n], list, w, ldw)
					}
					k.TapsRows(y, n, rows, x, ldx, w, taps, ldw)
					kernelstest.Compare(t, fmt.Sprintf("%d rows of %d taps of %d channels", rows, taps, n), y, want, 0, 0)
					check(t)
				}
			}
		}
	})
}

// BenchmarkDelta is a row of a head of 128 by 128, in blocks of 64 columns, and what is
// folded in of one.
func BenchmarkDelta(b *testing.B) {
	const keys, columns = 128, 64
	s, q, v := make([]float32, keys*columns), make([]float32, keys), make([]float32, columns)
	d, o := make([]float32, columns), make([]float32, columns)
	for _, k := range machineTables() {
		b.Run("step/"+k.Name, func(b *testing.B) {
			b.SetBytes(4 * keys * columns)
			for b.Loop() {
				k.DeltaStep(s, q, q, v, d, o, 0.9, 0.5)
			}
		})
		b.Run("fold/"+k.Name, func(b *testing.B) {
			b.SetBytes(4 * keys * columns)
			for b.Loop() {
				k.DeltaFold(s, s, q, d, 0.9)
			}
		})
	}
}

// TestExps demands the bits of math.Exp: of any elements, at ends and beyond, in vectors and in
// what they leave.
func TestExps(t *testing.T) {
	fastTables(t, func(t *testing.T, k *Table) {
		r := rand.New(rand.NewPCG(4, 9))
		odd := []float64{0, math.Copysign(0, -1), 1e-300, 5e-324, expsFar, -expsFar, math.Nextafter(expsFar, 800), 709.7, 710, -709, -745, -746, math.NaN(), math.Inf(1), math.Inf(-1), 1e300}
		for try := range 20000 {
			x := make([]float64, r.IntN(40))
			scale := math.Exp(10 * (r.Float64() - .3))
			for i := range x {
				if x[i] = min(max(r.NormFloat64()*scale, -expsFar), expsFar); try%4 == 0 && r.IntN(30) == 0 {
					x[i] = odd[r.IntN(len(odd))]
				}
			}
			want := slices.Clone(x)
			genericExps(want)
			y := slices.Clone(x)
			k.Exps(y)
			for i := range y {
				if math.Float64bits(y[i]) != math.Float64bits(want[i]) {
					t.Fatalf("e^%v, %d of %d, is %v, want %v", x[i], i, len(x), y[i], want[i])
				}
			}
		}
	})
}
