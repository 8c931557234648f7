package backendtest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/quant"
)

// array is a random tensor with the values that its stored form really has.
type array struct {
	tensor backend.Tensor
	values []float64
}

// copied is an array of its own: a backend may keep the data of what it was given.
func (a array) copied() array {
	a.tensor.Data, a.values = slices.Clone(a.tensor.Data), slices.Clone(a.values)
	return a
}

// fits reports whether rows of that length can be of a dtype.
func fits(dt backend.DType, in int) bool {
	if dt.Affine() {
		return in%32 == 0
	}
	return in%dt.BlockSize() == 0
}

// quantized rounds normal values to a quantised type; affine groups are as
// long as r has it.
func quantized(r *rand.Rand, name string, dt backend.DType, scale float64, shape []int) array {
	out, in := shape[0], shape[1]
	a := array{values: make([]float64, out*in)}
	w := make([]float32, out*in)
	for i := range w {
		w[i] = float32(r.NormFloat64() * scale)
	}
	group := 0
	if dt.Affine() {
		for group = 32 << r.IntN(3); in%group != 0; {
			group /= 2
		}
	}
	if dt == backend.F8_E4M3 {
		a.tensor = float8s(r, name, out, in, scale)
	} else {
		a.tensor = quant.Encode(name, dt, out, in, group, w)
	}
	for o := range out {
		quant.Row(w[:in], &a.tensor, o)
		for i, v := range w[:in] {
			a.values[o*in+i] = float64(v)
		}
	}
	return a
}

// float8s makes a weight of random floats of 8 bits, in groups that leave a
// shorter one at a row's end; no encoder of the type is needed elsewhere.
func float8s(r *rand.Rand, name string, out, in int, scale float64) backend.Tensor {
	t := backend.Tensor{Name: name, DType: backend.F8_E4M3, Shape: []int{out, in}, Group: 96}.Allocated()
	for i := range t.Data {
		t.Data[i] = byte(r.IntN(2)<<7 | r.IntN(0x48)) // up to 4: NaN is 0x7f
	}
	for i := 0; i < len(t.Scales); i += 4 {
		quant.Blocks(t.Scales[i:], backend.F32, []float32{float32(scale * (0.5 + r.Float64()))})
	}
	return t
}

// random makes a tensor of normal values; scale is their deviation.
func random(r *rand.Rand, name string, dt backend.DType, scale float64, shape ...int) array {
	if dt.Quantized() {
		return quantized(r, name, dt, scale, shape)
	}
	n := 1
	for _, s := range shape {
		n *= s
	}
	a := array{tensor: backend.Tensor{Name: name, DType: dt, Shape: shape}, values: make([]float64, n)}
	data := make([]byte, n*dt.Size())
	for i := range a.values {
		f := float32(r.NormFloat64() * scale)
		switch dt {
		case backend.F32:
			binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(f))
		case backend.BF16:
			b := quant.F32ToBF16(f)
			binary.LittleEndian.PutUint16(data[2*i:], b)
			f = quant.BF16ToF32(b)
		case backend.F16:
			b := quant.F32ToF16(f)
			binary.LittleEndian.PutUint16(data[2*i:], b)
			f = quant.F16ToF32(b)
		}
		a.values[i] = float64(f)
	}
	a.tensor.Data = data
	return a
}

// matmul is x [rows, in] · wᵀ, w [out, in].
func matmul(x, w []float64, rows, in, out int) []float64 {
	y := make([]float64, rows*out)
	for r := range rows {
		for o := range out {
			var s float64
			for k := range in {
				s += x[r*in+k] * w[o*in+k]
			}
			y[r*out+o] = s
		}
	}
	return y
}

func rmsNorm(x, w []float64, eps float64) []float64 {
	var s float64
	for _, v := range x {
		s += v * v
	}
	inv := 1 / math.Sqrt(s/float64(len(x))+eps)
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v * inv * w[i]
	}
	return y
}

// rotated turns half-split pairs.
func rotated(x []float64, cos, sin []float32) []float64 {
	n := len(x) / 2
	y := make([]float64, len(x))
	for i := range n {
		y[i] = x[i]*float64(cos[i]) - x[i+n]*float64(sin[i])
		y[i+n] = x[i+n]*float64(cos[i]) + x[i]*float64(sin[i])
	}
	return y
}

func silu(g float64) float64 { return g / (1 + math.Exp(-g)) }

// compare fails where got is further from want than tolerance, by relative
// norm; and where one element is off by more than ten times that of the
// largest.
func compare(t *testing.T, what string, got []float32, want []float64, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d elements, want %d", what, len(got), len(want))
	}
	if err := vectors.Near(got, want, tolerance); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// equalBits fails where two rows differ in any bit.
func equalBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d elements, want %d", what, len(got), len(want))
	}
	for i := range got {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: element %d is %v, alone it is %v", what, i, got[i], want[i])
		}
	}
}
