package kernels

import (
	"unsafe"

	"windrow/backend"
)

// rowDecoders are the decoders of a row of a quantised weight to f32 of one
// instruction set, with the bits of quant.Row: affine ones by groups, the
// others by blocks.
type rowDecoders struct {
	affine8, affine4     func(dst *float32, src, scales, biases *byte, groups, group int)
	q8_0, q4_0, q4k, q6k func(dst *float32, src *byte, blocks int)
	widenInt8            func(dst []float32, src []byte, scale float32) // of the table
}

// of gives a table the decoders; types without one are widened by its kernels.
func (d rowDecoders) of(k *Table) *Table {
	d.widenInt8 = k.WidenInt8
	k.QuantRow = d.row
	return k
}

// row is quant.Row by the decoders.
func (d *rowDecoders) row(dst []float32, t *backend.Tensor, o int) {
	in := t.Shape[len(t.Shape)-1]
	stride := t.DType.RowBytes(in)
	to, src := unsafe.SliceData(dst[:in]), unsafe.SliceData(t.Data[o*stride:(o+1)*stride])
	blocks := in / t.DType.BlockSize()
	affine := func(decode func(dst *float32, src, scales, biases *byte, groups, group int)) {
		groups := in / t.Group
		scales, biases := t.Scales[2*o*groups:2*(o+1)*groups], t.Biases[2*o*groups:2*(o+1)*groups]
		decode(to, src, unsafe.SliceData(scales), unsafe.SliceData(biases), groups, t.Group)
	}
	switch t.DType {
	case backend.Affine8:
		affine(d.affine8)
	case backend.Affine4:
		affine(d.affine4)
	case backend.Q8_0:
		d.q8_0(to, src, blocks)
	case backend.Q4_0:
		d.q4_0(to, src, blocks)
	case backend.Q4_K:
		d.q4k(to, src, blocks)
	case backend.Q6_K:
		d.q6k(to, src, blocks)
	case backend.F8_E4M3:
		decodeFloat8(dst, t, o)
	default:
		unitsRow(d.widenInt8, dst, t, o)
	}
}
