package metal

import (
	"encoding/binary"
	"fmt"
	"math"

	"windrow/backend"
	"windrow/quant"
)

// bed is the device memory of a self-test. Its methods panic with a bedError
// on an error of the device; withBed makes that the error of the self-test.
type bed struct {
	d     *device
	owned []view
}

type bedError struct{ error }

// withBed runs a part of a self-test, and frees its memory.
func withBed(d *device, f func(b *bed) error) (err error) {
	b := &bed{d: d}
	defer func() {
		for _, v := range b.owned {
			d.free(v)
		}
		switch p := recover().(type) {
		case nil:
		case bedError:
			err = p.error
		default:
			panic(p)
		}
	}()
	return f(b)
}

// empty reserves n elements, all bits set: floats that nobody writes are NaN.
func (b *bed) empty(n int, e elem) view {
	v, err := b.d.alloc(max(n, 1)*e.size(), e)
	if err != nil {
		panic(bedError{err})
	}
	b.owned = append(b.owned, v)
	data := v.bytes()
	for i := range data {
		data[i] = 0xff
	}
	return v
}

// bytes is device memory that holds data.
func (b *bed) bytes(data []byte, e elem) view {
	v := b.empty((len(data)+e.size()-1)/e.size(), e)
	copy(v.bytes(), data)
	return v
}

// floats is device memory that holds x in f32.
func (b *bed) floats(x []float32) view { return b.values(x, elemF32) }

// values is device memory that holds x, rounded to f32, f16 or bf16.
func (b *bed) values(x []float32, e elem) view {
	data := make([]byte, e.size()*len(x))
	quant.Blocks(data, dtypeOf(e), x)
	return b.bytes(data, e)
}

// words is device memory that holds x.
func (b *bed) words(x []uint32) view {
	data := make([]byte, 0, 4*len(x))
	for _, v := range x {
		data = binary.LittleEndian.AppendUint32(data, v)
	}
	return b.bytes(data, elemU32)
}

// run hands dispatches to the device and waits for them.
func (b *bed) run(f func(e encoder)) {
	if err := b.d.encode(f); err != nil {
		panic(bedError{err})
	}
}

// read widens n elements of f32, f16 or bf16.
func (b *bed) read(v view, n int) []float32 {
	x := make([]float32, n)
	quant.Row(x, &backend.Tensor{DType: dtypeOf(v.elem), Shape: []int{n}, Data: v.bytes()[:n*v.elem.size()]}, 0)
	return x
}

// dtypeOf is the checkpoint type of floats of that element type.
func dtypeOf(e elem) backend.DType {
	switch e {
	case elemF16:
		return backend.F16
	case elemBF16:
		return backend.BF16
	}
	return backend.F32
}

// rounded is x through an element type.
func rounded(x []float32, e elem) []float32 {
	data, y := make([]byte, e.size()*len(x)), make([]float32, len(x))
	quant.Blocks(data, dtypeOf(e), x)
	quant.Row(y, &backend.Tensor{DType: dtypeOf(e), Shape: []int{len(x)}, Data: data}, 0)
	return y
}

// roundoff is the largest relative error of rounding to an element type.
func roundoff(e elem) float64 {
	switch e {
	case elemF16:
		return 1.0 / (1 << 11)
	case elemBF16:
		return 1.0 / (1 << 8)
	}
	return 1.0 / (1 << 24)
}

// weight is device memory that holds a tensor as it is stored.
func (b *bed) weight(t *backend.Tensor) weight {
	w := weight{dtype: t.DType, out: t.Shape[0], in: t.Shape[1], group: t.Group}
	e := elemBytes
	switch t.DType {
	case backend.F32:
		e = elemF32
	case backend.F16:
		e = elemF16
	case backend.BF16:
		e = elemBF16
	}
	w.data = b.bytes(t.Data, e)
	if t.DType.Affine() {
		w.scales, w.biases = b.bytes(t.Scales, elemBF16), b.bytes(t.Biases, elemBF16)
	}
	return w
}

// each compares every element with want by its own relative error.
func each(got []float32, want []float64, tolerance float64) error {
	for i, w := range want {
		if d := math.Abs(float64(got[i]) - w); !(d <= tolerance*math.Abs(w)) {
			return fmt.Errorf("element %d of %d is %v, want %v", i, len(want), got[i], w)
		}
	}
	return nil
}

// untouched holds memory that was to stay empty.
func untouched(data []byte) error {
	for i, c := range data {
		if c != 0xff {
			return fmt.Errorf("byte %d of %d that were to stay was written", i, len(data))
		}
	}
	return nil
}
