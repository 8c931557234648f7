package quant

import (
	"encoding/binary"
	"math"
	"testing"

	"windrow/backend"
)

// Converted weights are the same bit for bit, or the nearest bf16; what a backend
// has to hold is what was said before.
func TestConvert(t *testing.T) {
	for _, d := range backend.DTypes() {
		const out, in = 5, 512
		if d.Affine() || !d.Quantized() {
			if ConvertedType(d, false) != d || ConvertedType(d, true) != d {
				t.Errorf("%v is converted", d)
			}
			continue
		}
		x := backend.Tensor{Name: "x", DType: d, Shape: []int{out, in}, Data: anyBlocks(d, splitMix(d), out*in/d.BlockSize()), Split: backend.SplitOutputs}
		if d == backend.F8_E4M3 { // with groups that leave a shorter one at a row's end
			x.Group = 100
			x.Scales = make([]byte, 4*out*x.Groups())
			for i := 0; i < len(x.Scales); i += 4 {
				Blocks(x.Scales[i:], backend.F32, []float32{0.01 * float32(i+1)})
			}
			for i, b := range x.Data {
				if b&0x7f == 0x7f {
					x.Data[i] = 0 // it is NaN
				}
			}
		}
		for _, exact := range []bool{false, true} {
			y := Convert(x, exact)
			if err := y.Check(); err != nil {
				t.Fatal(err)
			}
			if y.DType != ConvertedType(d, exact) || y.Bytes() != ConvertedBytes(x, exact) || y.Split != x.Split || y.Name != x.Name {
				t.Errorf("%v: converted to %v of %d bytes, said %v and %d", d, y.DType, y.Bytes(), ConvertedType(d, exact), ConvertedBytes(x, exact))
			}
			if _, unpacks := UnitsOf(y.DType); unpacks {
				t.Errorf("%v: converted to %v, which has no kernels either", d, y.DType)
			}
			got, want := make([]float32, in), make([]float32, in)
			for o := range out {
				Row(got, &y, o)
				Row(want, &x, o)
				for i, w := range want {
					if y.DType == backend.BF16 {
						w = BF16ToF32(F32ToBF16(w))
					}
					if math.Float32bits(got[i]) != math.Float32bits(w) && !(got[i] != got[i] && w != w) {
						t.Fatalf("%v to %v, row %d: weight %d is %v, want %v", d, y.DType, o, i, got[i], w)
					}
				}
			}
		}
	}
}

// TestScalesReachHalf puts one scale of a size at each place among small ones.
func TestScalesReachHalf(t *testing.T) {
	for _, groups := range []int{1, 3, 4, 13} {
		for at := range groups {
			for bits, want := range map[uint16]bool{
				0x3eff: false, 0x3f00: true, 0x3f80: true, 0x7f80: true, 0x7fc0: true, 0x0001: false, 0x0000: false,
			} {
				for _, sign := range []uint16{0, 0x8000} {
					x := backend.Tensor{DType: backend.Affine4, Scales: make([]byte, 2*groups)}
					for i := range groups {
						binary.LittleEndian.PutUint16(x.Scales[2*i:], 0xbeff) // as large as may be
					}
					binary.LittleEndian.PutUint16(x.Scales[2*at:], bits|sign)
					if got := ScalesReachHalf(x); got != want {
						t.Errorf("%#x as scale %d of %d: %t, want %t", bits|sign, at, groups, got, want)
					}
				}
			}
		}
	}
}
