// Package kernelstest makes the weights that the tests of cpu and of cpu/kernels
// share.
package kernelstest

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"windrow/backend"
	"windrow/quant"
)

// Format is a weight format of the tests. Group is that of affine types.
type Format struct {
	DType backend.DType
	Group int
}

// Formats are those that integer kernels multiply.
var Formats = []Format{
	{backend.Affine4, 32}, {backend.Affine4, 64}, {backend.Affine4, 128},
	{backend.Affine8, 32}, {backend.Affine8, 64}, {backend.Affine8, 128},
	{backend.Q8_0, 0}, {backend.Q4_0, 0}, {backend.Q4_K, 0}, {backend.Q6_K, 0},
	{backend.Q5_K, 0}, {backend.Q5_0, 0}, {backend.Q5_1, 0}, {backend.Q4_1, 0},
	{backend.Q3_K, 0}, {backend.Q2_K, 0}, {backend.IQ4_NL, 0}, {backend.IQ4_XS, 0},
}

func (f Format) String() string { return fmt.Sprintf("%v/%d", f.DType, f.Group) }

// Weight is a random weight [out, in] of elements of about 1/√in, in data that
// starts at the given misalignment.
func (f Format) Weight(rng *rand.Rand, out, in, misalign int) backend.Tensor {
	w := make([]float32, out*in)
	scale := 1 / math.Sqrt(float64(in))
	for i := range w {
		w[i] = float32(rng.NormFloat64() * scale)
	}
	t := backend.Tensor{Name: "w", DType: f.DType, Shape: []int{out, in}, Group: f.Group}
	bytes := func(n int) []byte { return make([]byte, misalign+n)[misalign:] }
	t.Data = bytes(out * f.DType.RowBytes(in))
	if f.DType.Affine() {
		t.Scales, t.Biases = bytes(2*out*in/f.Group), bytes(2*out*in/f.Group)
		quant.Affine(t.Data, t.Scales, t.Biases, w, f.DType.Bits(), f.Group)
	} else {
		quant.Blocks(t.Data, f.DType, w)
	}
	return t
}

// Distinct are as many distinct weights [out, in] as make up size bytes, so that
// no cache helps. Their bits are random, their scales small numbers.
func (f Format) Distinct(out, in, size int) (ws []backend.Tensor) {
	seed := f.Weight(rand.New(rand.NewPCG(5, 6)), min(out, 64), in, 0)
	repeat := func(b []byte, n int) []byte {
		d := make([]byte, n)
		for i := 0; i < n; i += len(b) {
			copy(d[i:], b)
		}
		return d
	}
	for total := 0; total < size; {
		t := seed
		t.Shape = []int{out, in}
		t.Data = repeat(t.Data, out*f.DType.RowBytes(in))
		if f.DType.Affine() {
			t.Scales, t.Biases = repeat(t.Scales, 2*out*in/f.Group), repeat(t.Biases, 2*out*in/f.Group)
		}
		ws = append(ws, t)
		total += t.Bytes()
	}
	return ws
}

// Float8 is a weight [out, in] of all codes of F8_E4M3 in turn, NaN left out where
// finite is set, and scales of any size.
func Float8(rng *rand.Rand, out, in, group int, finite bool) backend.Tensor {
	t := backend.Tensor{Name: "w", DType: backend.F8_E4M3, Shape: []int{out, in}, Group: group}.Allocated()
	for i := range t.Data {
		t.Data[i] = byte(i*7 + i/256)
		if finite && t.Data[i]&0x7f == 0x7f {
			t.Data[i] = 0x7e
		}
	}
	for i := 0; i < len(t.Scales); i += 4 {
		s := float32(math.Exp2(rng.Float64()*8 - 12))
		if !finite && i%12 == 8 {
			s = float32(math.Inf(-1))
		}
		binary.LittleEndian.PutUint32(t.Scales[i:], math.Float32bits(s))
	}
	return t
}

// Encode writes w in a type that is not quantised and returns the values that were
// kept, in bytes that start at an odd address.
func Encode(dt backend.DType, w []float32) (data []byte, kept []float32) {
	size := dt.Size()
	data = make([]byte, 1+len(w)*size)[1:]
	kept = make([]float32, len(w))
	for i, v := range w {
		switch dt {
		case backend.BF16:
			h := quant.F32ToBF16(v)
			binary.LittleEndian.PutUint16(data[2*i:], h)
			kept[i] = quant.BF16ToF32(h)
		case backend.F16:
			h := quant.F32ToF16(v)
			binary.LittleEndian.PutUint16(data[2*i:], h)
			kept[i] = quant.F16ToF32(h)
		default:
			binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(v))
			kept[i] = v
		}
	}
	return data, kept
}
