package kernels

import (
	"unsafe"

	"windrow/backend"
	"windrow/quant"
)

// Weight is a matrix [out, in] as its checkpoint holds it: data is kept, not
// copied, and of any alignment.
type Weight struct {
	dt      backend.DType
	out, in int
	data    []byte
	tensor  backend.Tensor // as it was given: of quantised types the scales and the group, too
}

// NewWeight is the weight of a tensor [out, in], whose data it keeps.
func NewWeight(t backend.Tensor) Weight {
	return Weight{dt: t.DType, out: t.Shape[0], in: t.Shape[1], data: t.Data, tensor: t}
}

// Out is the outputs: the rows of the matrix.
func (w *Weight) Out() int { return w.out }

// In is the elements of a row.
func (w *Weight) In() int { return w.in }

// stride is the bytes of one row.
func (w *Weight) stride() int { return w.dt.RowBytes(w.in) }

// widenRow converts row o to f32.
func (w *Weight) widenRow(dst []float32, o int, bf16, f16 func([]float32, []byte)) {
	if w.dt.Quantized() {
		quant.Row(dst, &w.tensor, o)
		return
	}
	src := w.data[o*w.stride() : (o+1)*w.stride()]
	switch w.dt {
	case backend.BF16:
		bf16(dst[:w.in], src)
	case backend.F16:
		f16(dst[:w.in], src)
	default:
		WidenF32(dst[:w.in], src)
	}
}

// Floats returns rows [o, o+n), [n, in], where they lie in memory as f32 already, nil
// where they do not. It is for little-endian systems.
func (w *Weight) Floats(o, n int) []float32 {
	data := w.data[o*w.stride() : (o+n)*w.stride()]
	if w.dt != backend.F32 || uintptr(unsafe.Pointer(&data[0]))%4 != 0 {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&data[0])), n*w.in)
}
