package cpu

import (
	"unsafe"

	"windrow/backend"
	"windrow/quant"
)

//go:noescape
func neonRowAffine8(dst *float32, src, scales, biases *byte, groups, group int)

//go:noescape
func neonRowAffine4(dst *float32, src, scales, biases *byte, groups, group int)

//go:noescape
func neonRowQ80(dst *float32, src *byte, blocks int)

//go:noescape
func neonRowQ40(dst *float32, src *byte, blocks int)

//go:noescape
func neonRowQ4K(dst *float32, src *byte, blocks int)

//go:noescape
func neonRowQ6K(dst *float32, src *byte, blocks int)

// neonQuantRow is quant.Row in vectors of 128 bits.
func neonQuantRow(dst []float32, t *backend.Tensor, o int) {
	in := t.Shape[len(t.Shape)-1]
	stride := t.DType.RowBytes(in)
	to, src := unsafe.SliceData(dst[:in]), unsafe.SliceData(t.Data[o*stride:(o+1)*stride])
	switch t.DType {
	case backend.Affine8:
		groups := in / t.Group
		scales, biases := affineRow(t, o, groups)
		neonRowAffine8(to, src, scales, biases, groups, t.Group)
	case backend.Affine4:
		groups := in / t.Group
		scales, biases := affineRow(t, o, groups)
		neonRowAffine4(to, src, scales, biases, groups, t.Group)
	case backend.Q8_0:
		neonRowQ80(to, src, in/32)
	case backend.Q4_0:
		neonRowQ40(to, src, in/32)
	case backend.Q4_K:
		neonRowQ4K(to, src, in/256)
	case backend.Q6_K:
		neonRowQ6K(to, src, in/256)
	default:
		quant.Row(dst, t, o)
	}
}
