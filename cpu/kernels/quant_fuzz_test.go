package kernels

import (
	"math"
	"math/rand/v2"
	"testing"

	"windrow/cpu/kernels/kernelstest"
)

// FuzzInt8 multiplies weights of any bytes, with scales that are numbers, by every
// table's integer arithmetic: the same bits from all, for a row alone and among
// others, near what float64 gives.
func FuzzInt8(f *testing.F) {
	for i := range kernelstest.Formats {
		f.Add(uint8(i), uint8(1), uint8(1), uint8(1), uint64(1))
		f.Add(uint8(i), uint8(7), uint8(19), uint8(3), uint64(2))
		f.Add(uint8(i), uint8(13), uint8(40), uint8(2), uint64(3))
	}
	f.Fuzz(func(t *testing.T, format, rows8, out8, steps uint8, seed uint64) {
		c := kernelstest.Formats[int(format)%len(kernelstest.Formats)]
		rows, out := int(rows8)%40+1, int(out8)%50+1
		in := (int(steps)%4 + 1) * max(quantStep, c.DType.BlockSize())
		rng := rand.New(rand.NewPCG(seed, 41))
		w := quantMatrix(rng, c, out, in, int(seed%3))
		scales := map[int]bool{} // places in a row that hold scales
		for i := range w.stride() {
			switch c.DType.String() {
			case "q8_0":
				scales[i] = i%34 < 2
			case "q4_0":
				scales[i] = i%18 < 2
			case "q4_k":
				scales[i] = i%144 < 4
			case "q6_k":
				scales[i] = i%210 >= 208
			case "q4_1":
				scales[i] = i%20 < 4
			case "q5_0":
				scales[i] = i%22 < 2
			case "q5_1":
				scales[i] = i%24 < 4
			case "iq4_nl":
				scales[i] = i%18 < 2
			case "q5_k":
				scales[i] = i%176 < 4
			case "iq4_xs":
				scales[i] = i%136 < 2
			case "q2_k":
				scales[i] = i%84 >= 80
			case "q3_k":
				scales[i] = i%110 >= 108
			}
		}
		for i := range w.data {
			if !scales[i%w.stride()] {
				w.data[i] = byte(rng.Uint32())
			}
		}
		x := kernelstest.Rows(rng, rows*in)
		for i := range x {
			if rng.IntN(4) == 0 {
				x[i] *= float32(math.Exp2(float64(rng.IntN(80) - 40)))
			}
		}
		pick := rng.IntN(rows)
		want, first := int8Want(w, x, rows), ""
		var size float64
		for _, v := range want {
			size = max(size, math.Abs(float64(v)))
		}
		var same []float32
		for name, pr := range int8Projectors(&w.tensor) {
			y := runProjector(pr, w, x, rows, 0, out, 1+rng.IntN(out))
			if same == nil {
				same, first = y, name
			}
			alone := runProjector(pr, w, x[pick*in:(pick+1)*in], 1, 0, out, out)
			for i, v := range y {
				if v != same[i] {
					t.Fatalf("%s %v %dx%d, %d rows: y[%d] = %v, in %s %v", name, c, out, in, rows, i, v, first, same[i])
				}
				if math.Abs(float64(v-want[i])) > 1e-5*size {
					t.Fatalf("%s %v %dx%d, %d rows: y[%d] = %v, want %v", name, c, out, in, rows, i, v, want[i])
				}
				if r, o := i/out, i%out; r == pick && v != alone[o] {
					t.Fatalf("%s %v %dx%d, row %d of %d: y[%d] = %v, alone %v", name, c, out, in, r, rows, o, v, alone[o])
				}
			}
		}
	})
}
