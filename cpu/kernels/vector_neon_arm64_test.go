package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"windrow/backend"
	"windrow/quant"
)

// neonLengths covers no vector, every tail, and the unrolled loops.
var neonLengths = []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 40, 63, 64, 100, 128}

func neonRandom(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// neonGuard gives a slice of n elements with canaries after it, and a check.
func neonGuard(t *testing.T, what string, x []float32) ([]float32, func()) {
	t.Helper()
	const canary = 12345
	all := append(append([]float32(nil), x...), canary, canary, canary, canary, canary, canary, canary, canary)
	return all[:len(x):len(x)], func() {
		t.Helper()
		for i, v := range all[len(x):] {
			if v != canary {
				t.Fatalf("%s, n %d: wrote element %d past the end", what, len(x), i)
			}
		}
	}
}

func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) && !(got[i] != got[i] && want[i] != want[i]) {
			t.Fatalf("%s, n %d: element %d is %v (%#x), want %v (%#x)", what, len(want), i,
				got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}

func nearTo(t *testing.T, what string, got, want []float32, rel, abs float64) {
	t.Helper()
	for i := range want {
		g, w := float64(got[i]), float64(want[i])
		if g == w || (g != g && w != w) {
			continue
		}
		if !(math.Abs(g-w) <= rel*math.Abs(w)+abs) {
			t.Fatalf("%s, n %d: element %d is %v, want %v", what, len(want), i, g, w)
		}
	}
}

func TestNeonWidenAllHalves(t *testing.T) {
	src := make([]byte, 2*65536+1)
	for _, shift := range []int{0, 1} { // files align nothing
		b := src[shift:]
		for i := range 65536 {
			binary.LittleEndian.PutUint16(b[2*i:], uint16(i))
		}
		got, want := make([]float32, 65536), make([]float32, 65536)
		neonWidenBF16(got, b)
		genericWidenBF16(want, b)
		sameBits(t, "bf16", got, want)
		neonWidenF16(got, b)
		genericWidenF16(want, b)
		sameBits(t, "f16", got, want)
	}
}

func TestNeonNarrowBF16(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	x := make([]float32, 0, 1<<16)
	for i := range 1 << 13 {
		hi := uint32(i) * 8 << 16
		for _, lo := range []uint32{0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, r.Uint32() & 0xffff} {
			x = append(x, math.Float32frombits(hi|lo), math.Float32frombits(hi+1<<16|lo))
		}
	}
	got, want := make([]byte, 2*len(x)), make([]byte, 2*len(x))
	neonNarrowBF16(got, x)
	genericNarrowBF16(want, x)
	for i := range x {
		g, w := binary.LittleEndian.Uint16(got[2*i:]), binary.LittleEndian.Uint16(want[2*i:])
		if g != w {
			t.Fatalf("%v (%#x): %#x, want %#x", x[i], math.Float32bits(x[i]), g, w)
		}
	}
}

func TestNeonElementwise(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for _, n := range neonLengths {
		x, w := neonRandom(r, n), neonRandom(r, n)
		want := make([]float32, n)

		got, check := neonGuard(t, "scaleMul", x)
		neonScaleMul(got, x, w, 0.37)
		genericScaleMul(want, x, w, 0.37)
		sameBits(t, "scaleMul", got, want)
		check()

		got, check = neonGuard(t, "add", x)
		copy(want, x)
		neonAdd(got, w)
		genericAdd(want, w)
		sameBits(t, "add", got, want)
		check()

		got, check = neonGuard(t, "scale", x)
		copy(want, x)
		neonScale(got, -1.7)
		genericScale(want, -1.7)
		sameBits(t, "scale", got, want)
		check()

		got, check = neonGuard(t, "siluMul", want)
		neonSiluMul(got, x, w)
		genericSiluMul(want, x, w)
		nearTo(t, "siluMul", got, want, 4e-7, 0)
		check()

		for _, m := range []int{n, 2 * n} {
			y := neonRandom(r, m)
			got, check = neonGuard(t, "rotate", y)
			want := append([]float32(nil), y...)
			neonRotate(got, neonRandom(r, m/2), neonRandom(r, m/2))
			cs := rand.New(rand.NewPCG(9, uint64(m)))
			c, s := neonRandom(cs, m/2), neonRandom(cs, m/2)
			copy(got, y)
			neonRotate(got, c, s)
			genericRotate(want, c, s)
			nearTo(t, "rotate", got, want, 3e-7, 3e-7)
			check()
		}

		bytes := make([]byte, n)
		for i := range bytes {
			bytes[i] = byte(i*37 + 128)
		}
		got, check = neonGuard(t, "widenInt8", want)
		neonWidenInt8(got, bytes, 0.021)
		genericWidenInt8(want, bytes, 0.021)
		sameBits(t, "widenInt8", got, want)
		check()

		var sum float64
		for _, v := range x {
			sum += float64(v) * float64(v)
		}
		nearTo(t, "sumSquares", []float32{neonSumSquares(x)}, []float32{float32(sum)}, 1e-6, 0)
		for i := range x {
			y := append([]float32(nil), x...)
			y[i] = 77
			if m := neonMaximum(y); m != 77 {
				t.Fatalf("maximum of %d, peak at %d: %v", n, i, m)
			}
			y[i] = float32(math.Inf(-1))
			sameBits(t, "maximum", []float32{neonMaximum(y)}, []float32{genericMaximum(y)})
		}
	}
	if m := neonMaximum(nil); !math.IsInf(float64(m), -1) {
		t.Fatalf("maximum of nothing: %v", m)
	}
}

func TestNeonExp(t *testing.T) {
	var x []float32
	for v := -110.0; v < 95; v += 0.0173 {
		x = append(x, float32(v))
	}
	inf := float32(math.Inf(1))
	x = append(x, 0, -inf, inf, float32(math.NaN()), -3.4e38, 1e-30, -87.34, -103.9, 88.72, 88.73)
	got := append([]float32(nil), x...)
	neonExpSum(got, 0)
	want := make([]float32, len(x))
	for i, v := range x {
		want[i] = float32(math.Exp(float64(v)))
	}
	// Below 2^-126 results are multiples of 2^-149.
	nearTo(t, "exp", got, want, 1.5e-7, 1.5e-45)
	for i, v := range x {
		if v <= -104 && got[i] != 0 {
			t.Errorf("e^%v is %v, want 0", v, got[i])
		}
	}

	r := rand.New(rand.NewPCG(3, 3))
	for _, n := range neonLengths {
		x := neonRandom(r, n)
		for i := range x {
			x[i] = x[i]*9 - 3
			if i%5 == 4 {
				x[i] = -inf
			}
		}
		const shift = 2.5
		var s0, s1 float64
		want := make([]float32, n)
		for i, v := range x {
			d := float64(v - shift)
			e := math.Exp(d)
			want[i] = float32(e)
			if e != 0 {
				s0, s1 = s0+e, s1+e*d
			}
		}
		g0, g1 := neonExpSums(x, shift)
		nearTo(t, "expSums", []float32{g0}, []float32{float32(s0)}, 1e-6, 0)
		// Σ e^d·d may cancel: its error goes with the terms.
		nearTo(t, "expSums", []float32{g1}, []float32{float32(s1)}, 1e-6, 1e-6*(s0*40+1e-9))
		y, check := neonGuard(t, "expSum", x)
		s := neonExpSum(y, shift)
		check()
		nearTo(t, "expSum", y, want, 2e-7, 1e-45)
		nearTo(t, "expSum", []float32{s}, []float32{float32(s0)}, 1e-6, 0)
	}

	gates := []float32{-inf, inf, 200, -200, -88, 88, 0, float32(math.NaN()), 5}
	got, want = make([]float32, len(gates)), make([]float32, len(gates))
	ones := make([]float32, len(gates))
	for i := range ones {
		ones[i] = 1
	}
	neonSiluMul(got, gates, ones)
	genericSiluMul(want, gates, ones)
	nearTo(t, "siluMul", got, want, 4e-7, 1e-37)
}

// TestNeonAttend compares with float64 and, bit for bit, with one query and
// one key (or value) at a time.
func TestNeonAttend(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for _, d := range []int{1, 3, 4, 6, 16, 18, 23, 64, 80, 128} {
		for _, nq := range []int{1, 2, 3, 4, 5, 9} {
			for _, nk := range []int{1, 2, 3, 4, 5, 7, 8, 13} {
				what := fmt.Sprintf("d %d, %d queries, %d keys", d, nq, nk)
				q, k := neonRandom(r, nq*d), neonRandom(r, nk*d)
				ld := nk + 3
				s, check := neonGuard(t, what, make([]float32, (nq-1)*ld+nk))
				for i := range s {
					s[i] = -99
				}
				neonAttendScores(s, ld, q, k, nq, nk, d)
				check()
				for i := range nq {
					for j := range ld {
						if i*ld+j >= len(s) {
							break
						}
						if j >= nk {
							if s[i*ld+j] != -99 {
								t.Fatalf("%s: wrote past the keys of query %d", what, i)
							}
							continue
						}
						var alone [1]float32
						neonAttendScores(alone[:], 1, q[i*d:(i+1)*d], k[j*d:(j+1)*d], 1, 1, d)
						sameBits(t, what, s[i*ld+j:i*ld+j+1], alone[:])
						var want, size float64
						for c := range d {
							p := float64(q[i*d+c]) * float64(k[j*d+c])
							want, size = want+p, size+math.Abs(p)
						}
						nearTo(t, what, s[i*ld+j:i*ld+j+1], []float32{float32(want)}, 1e-7, 5e-7*size)
					}
				}

				p, v, acc := neonRandom(r, len(s)), neonRandom(r, nk*d), neonRandom(r, nq*d)
				got, check := neonGuard(t, what, acc)
				neonAttendValues(got, p, ld, v, nq, nk, d)
				check()
				for i := range nq {
					alone := append([]float32(nil), acc[i*d:(i+1)*d]...)
					for j := range nk {
						neonAttendValues(alone, p[i*ld+j:], 1, v[j*d:(j+1)*d], 1, 1, d)
					}
					sameBits(t, what, got[i*d:(i+1)*d], alone)
					for c := range d {
						want := float64(acc[i*d+c])
						size := math.Abs(want)
						for j := range nk {
							x := float64(p[i*ld+j]) * float64(v[j*d+c])
							want, size = want+x, size+math.Abs(x)
						}
						nearTo(t, what, got[i*d+c:i*d+c+1], []float32{float32(want)}, 1e-7, 5e-7*size)
					}
				}
			}
		}
	}
}

// neonWeight returns a weight of the dtype at an odd address, with its values.
func neonWeight(r *rand.Rand, dt backend.DType, out, in int) (*Weight, []float32) {
	v := neonRandom(r, out*in)
	size := dt.Size()
	b := make([]byte, len(v)*size+1)[1:]
	for i, x := range v {
		switch dt {
		case backend.BF16:
			h := quant.F32ToBF16(x)
			binary.LittleEndian.PutUint16(b[2*i:], h)
			v[i] = quant.BF16ToF32(h)
		case backend.F16:
			h := quant.F32ToF16(x)
			binary.LittleEndian.PutUint16(b[2*i:], h)
			v[i] = quant.F16ToF32(h)
		default:
			binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(x))
		}
	}
	return &Weight{dt: dt, out: out, in: in, data: b}, v
}

func neonProject(proj Projector, w *Weight, x []float32, rows, o0, o1 int) []float32 {
	f, h := proj.PackSize(rows, w.in)
	p := &Packed{Rows: rows, in: w.in, f32: make([]float32, f), b16: make([]uint16, h)}
	step := proj.PackRows()
	for r := 0; r < rows; r += step {
		proj.Pack(p, x, r, min(r+step, rows))
	}
	y := make([]float32, rows*(o1-o0))
	proj.Project(y, o1-o0, p, w, o0, o1, &Scratch{})
	return y
}

// TestNeonProject compares with float64, and each row and chunk of outputs bit
// for bit with the row alone.
func TestNeonProject(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for _, dt := range []backend.DType{backend.BF16, backend.F16, backend.F32} {
		for _, in := range []int{1, 5, 8, 12, 24, 31, 32, 40, 71, 136} {
			for _, rows := range []int{1, 2, 3, 4, 5, 17} {
				const out = 11
				w, v := neonWeight(r, dt, out, in)
				x := neonRandom(r, rows*in)
				what := fmt.Sprintf("%v, in %d, %d rows", dt, in, rows)
				y := neonProject(neonProjector{}, w, x, rows, 0, out)
				part := neonProject(neonProjector{}, w, x, rows, 3, 9)
				for i := range rows {
					alone := neonProject(neonProjector{}, w, x[i*in:(i+1)*in], 1, 0, out)
					sameBits(t, what, y[i*out:(i+1)*out], alone)
					sameBits(t, what, part[i*6:(i+1)*6], alone[3:9])
					for o := range out {
						var want, size float64
						for c := range in {
							p := float64(x[i*in+c]) * float64(v[o*in+c])
							want, size = want+p, size+math.Abs(p)
						}
						nearTo(t, what, alone[o:o+1], []float32{float32(want)}, 1e-7, 5e-7*size)
					}
				}
			}
		}
	}
	// More rows than one block of activations holds.
	w, _ := neonWeight(r, backend.BF16, 5, 8192)
	x := neonRandom(r, 32*8192)
	y := neonProject(neonProjector{}, w, x, 32, 0, 5)
	for i := range 32 {
		alone := neonProject(neonProjector{}, w, x[i*8192:(i+1)*8192], 1, 0, 5)
		sameBits(t, "32 rows", y[i*5:(i+1)*5], alone)
	}
}
