package kernels

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"windrow/backend"
	"windrow/cpu/kernels/kernelstest"
)

// tame returns x with what is not a number below 1e6 replaced, for operations
// whose result depends on rounding near overflow.
func tame(x []float32) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		if y[i] = v; !(v > -1e6 && v < 1e6) {
			y[i] = float32(math.Float32bits(v)%1000) / 8
		}
	}
	return y
}

// FuzzVector compares every table's vector kernels with the generic ones on
// arbitrary bit patterns: infinities, NaNs, subnormals.
func FuzzVector(f *testing.F) {
	special := binary.LittleEndian.AppendUint32(nil, 0x7fc00000)
	for _, v := range []float32{inf32, -inf32, 0, 1, -1, 1e-40, 88.5, -88.5, -104, 3e38} {
		special = binary.LittleEndian.AppendUint32(special, math.Float32bits(v))
	}
	f.Add(special, float32(0))
	f.Add(append(special, special...), float32(88))
	f.Add(make([]byte, 4*33), float32(-1))
	r := rand.New(rand.NewPCG(11, 1))
	for _, n := range []int{1, 15, 16, 17, 64, 131} {
		b := make([]byte, 4*n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		f.Add(b, float32(r.NormFloat64()))
	}
	f.Fuzz(func(t *testing.T, data []byte, s float32) {
		n := min(len(data)/4, 5000)
		raw := make([]float32, n)
		for i := range raw {
			raw[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		}
		mild := tame(raw)
		ref := Reference()
		for _, k := range machineTables() {
			if k.Name != "go" {
				equalVector(t, k, ref, data, raw, mild, s)
			}
		}
	})
}

func equalVector(t *testing.T, k, ref *Table, data []byte, raw, mild []float32, s float32) {
	n := len(raw)
	got, want := make([]float32, n), make([]float32, n)
	check := func(what string, rel, abs float64) {
		t.Helper()
		kernelstest.Compare(t, k.Name+" "+what, got, want, rel, abs)
	}
	both := func(run func(k *Table, x []float32)) {
		copy(got, raw)
		copy(want, raw)
		run(k, got)
		run(ref, want)
	}
	both(func(k *Table, x []float32) { k.WidenBF16(x, data) })
	check("widenBF16", 0, 0)
	both(func(k *Table, x []float32) { k.WidenF16(x, data) })
	check("widenF16", 0, 0)
	both(func(k *Table, x []float32) { k.WidenInt8(x, data, s) })
	check("widenInt8", 0, 0)
	both(func(k *Table, x []float32) { k.ScaleMul(x, raw, mild, s) })
	check("scaleMul", 0, 0)
	both(func(k *Table, x []float32) { k.Add(x, mild) })
	check("add", 0, 0)
	both(func(k *Table, x []float32) { k.Scale(x, s) })
	check("scale", 0, 0)
	both(func(k *Table, x []float32) { k.SiluMul(x, raw, mild) })
	check("siluMul", 5e-7, 6e-37*1e6)

	{
		shift := tame([]float32{s})[0]
		both(func(k *Table, x []float32) { k.ExpSum(x, shift) })
		for i := range want {
			// The last unit before overflow may round either way.
			if want[i] > 3.4e38 && got[i] > 3.4e38 {
				got[i] = want[i]
			}
		}
		check("expSum", 2.5e-7, 1.5e-45)
	}

	a, b := make([]byte, 2*n), make([]byte, 2*n)
	k.NarrowBF16(a, raw)
	ref.NarrowBF16(b, raw)
	if string(a) != string(b) {
		t.Fatalf("%s narrowBF16: %x, want %x", k.Name, a, b)
	}
	if g, w := k.Maximum(mild), ref.Maximum(mild); g != w {
		t.Fatalf("%s maximum: %g, want %g", k.Name, g, w)
	}
	var ss float64
	for _, v := range mild {
		ss += float64(v) * float64(v)
	}
	if g := k.SumSquares(mild); !kernelstest.Near(g, float32(ss), 1e-6+float64(n)*1e-8, 1e-40) {
		t.Fatalf("%s sumSquares: %g, want %g", k.Name, g, ss)
	}
	if n >= 2 {
		copy(got, mild)
		copy(want, mild)
		even := n / 2 * 2
		k.Rotate(got[:even], mild, mild[n-n/2:])
		ref.Rotate(want[:even], mild, mild[n-n/2:])
		for i := range want {
			bound := 0.0
			if i < even {
				h := n / 2
				j := i % h
				bound = 1.2e-7 * (math.Abs(float64(mild[j])) + math.Abs(float64(mild[j+h]))) *
					(math.Abs(float64(mild[j])) + math.Abs(float64(mild[len(mild)-h+j])))
			}
			if !kernelstest.Near(got[i], want[i], 0, bound+1e-44) {
				t.Fatalf("%s rotate: element %d is %g, want %g ± %g", k.Name, i, got[i], want[i], bound)
			}
		}
	}
}

// FuzzExact compares projections and attention scores of any small shape with
// float64, and a row alone with the row among others.
func FuzzExact(f *testing.F) {
	for _, c := range [][4]uint16{{1, 1, 1, 0}, {7, 5, 33, 1}, {6, 4, 64, 2}, {13, 9, 100, 0}, {40, 3, 1100, 0}, {2, 70, 31, 1}} {
		f.Add(c[0], c[1], c[2], uint8(c[3]), uint64(1))
	}
	f.Fuzz(func(t *testing.T, rows16, out16, in16 uint16, format uint8, seed uint64) {
		rows, out, in := int(rows16)%64+1, int(out16)%80+1, int(in16)%1500+1
		if rows*out*in > 1<<20 {
			return
		}
		dt := []backend.DType{backend.BF16, backend.F16, backend.F32}[format%3]
		r := rand.New(rand.NewPCG(seed, 12))
		w, x := make([]float32, out*in), make([]float32, rows*in)
		kernelstest.Gaussian(r, w, 1)
		kernelstest.Gaussian(r, x, 1)
		data, kept := kernelstest.Encode(dt, w)
		m := &Weight{dt: dt, out: out, in: in, data: data}
		pick := r.IntN(rows)
		for _, k := range machineTables() {
			name := k.Name
			y := projectAll(k.Exact, x, rows, m, 1+r.IntN(out))
			scores := make([]float32, rows*out)
			k.AttendScores(scores, out, x, kept, rows, out, in)
			for row := range rows {
				for o := range out {
					var want, norm float64
					for c := range in {
						p := float64(x[row*in+c]) * float64(kept[o*in+c])
						want += p
						norm += math.Abs(p)
					}
					bound := norm * (float64(in)/4 + 6) / (1 << 24)
					for what, got := range map[string]float32{"project": y[row*out+o], "attendScores": scores[row*out+o]} {
						if !(math.Abs(float64(got)-want) <= bound) {
							t.Fatalf("%s %s %v %dx%d: [%d][%d] = %g, want %g ± %g", name, what, dt, out, in, row, o, got, want, bound)
						}
					}
				}
			}
			alone := projectAll(k.Exact, x[pick*in:(pick+1)*in], 1, m, out)
			kernelstest.Compare(t, name+" row alone", y[pick*out:(pick+1)*out], alone, 0, 0)
		}
	})
}
