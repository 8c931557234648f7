package cpu

import (
	"unsafe"

	"windrow/backend"
	"windrow/quant"
)

// The decoders of rows of quantised weights to f32, with the bits of quant.Row:
// affine ones by groups, the others by blocks.

//go:noescape
func rowAffine8AVX2(dst *float32, src, scales, biases *byte, groups, group int)

//go:noescape
func rowAffine4AVX2(dst *float32, src, scales, biases *byte, groups, group int)

//go:noescape
func rowQ80AVX2(dst *float32, src *byte, blocks int)

//go:noescape
func rowQ40AVX2(dst *float32, src *byte, blocks int)

//go:noescape
func rowQ4KAVX2(dst *float32, src *byte, blocks int)

//go:noescape
func rowQ6KAVX2(dst *float32, src *byte, blocks int)

//go:noescape
func rowAffine8AVX512(dst *float32, src, scales, biases *byte, groups, group int)

//go:noescape
func rowAffine4AVX512(dst *float32, src, scales, biases *byte, groups, group int)

//go:noescape
func rowQ80AVX512(dst *float32, src *byte, blocks int)

//go:noescape
func rowQ40AVX512(dst *float32, src *byte, blocks int)

//go:noescape
func rowQ4KAVX512(dst *float32, src *byte, blocks int)

//go:noescape
func rowQ6KAVX512(dst *float32, src *byte, blocks int)

// avx2QuantRow is quant.Row in 8 lanes.
func avx2QuantRow(dst []float32, t *backend.Tensor, o int) {
	in := t.Shape[len(t.Shape)-1]
	stride := t.DType.RowBytes(in)
	to, src := unsafe.SliceData(dst[:in]), unsafe.SliceData(t.Data[o*stride:(o+1)*stride])
	switch t.DType {
	case backend.Affine8:
		groups := in / t.Group
		scales, biases := affineRow(t, o, groups)
		rowAffine8AVX2(to, src, scales, biases, groups, t.Group)
	case backend.Affine4:
		groups := in / t.Group
		scales, biases := affineRow(t, o, groups)
		rowAffine4AVX2(to, src, scales, biases, groups, t.Group)
	case backend.Q8_0:
		rowQ80AVX2(to, src, in/32)
	case backend.Q4_0:
		rowQ40AVX2(to, src, in/32)
	case backend.Q4_K:
		rowQ4KAVX2(to, src, in/256)
	case backend.Q6_K:
		rowQ6KAVX2(to, src, in/256)
	default:
		quant.Row(dst, t, o)
	}
}

// avx512QuantRow is quant.Row in 16 lanes.
func avx512QuantRow(dst []float32, t *backend.Tensor, o int) {
	in := t.Shape[len(t.Shape)-1]
	stride := t.DType.RowBytes(in)
	to, src := unsafe.SliceData(dst[:in]), unsafe.SliceData(t.Data[o*stride:(o+1)*stride])
	switch t.DType {
	case backend.Affine8:
		groups := in / t.Group
		scales, biases := affineRow(t, o, groups)
		rowAffine8AVX512(to, src, scales, biases, groups, t.Group)
	case backend.Affine4:
		groups := in / t.Group
		scales, biases := affineRow(t, o, groups)
		rowAffine4AVX512(to, src, scales, biases, groups, t.Group)
	case backend.Q8_0:
		rowQ80AVX512(to, src, in/32)
	case backend.Q4_0:
		rowQ40AVX512(to, src, in/32)
	case backend.Q4_K:
		rowQ4KAVX512(to, src, in/256)
	case backend.Q6_K:
		rowQ6KAVX512(to, src, in/256)
	default:
		quant.Row(dst, t, o)
	}
}
