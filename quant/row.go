package quant

import (
	"encoding/binary"
	"math"

	"windrow/backend"
)

// Row widens row o of t, [out, in] or [n] (one row), into dst, which takes
// the row's length. t must have passed its Check: it is the reference that
// each kernel of the row's format is compared with.
func Row(dst []float32, t *backend.Tensor, o int) {
	in := t.Shape[len(t.Shape)-1]
	stride := t.DType.RowBytes(in)
	dst, src := dst[:in], t.Data[o*stride:(o+1)*stride]
	switch t.DType {
	case backend.F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case backend.F16:
		for i := range dst {
			dst[i] = F16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case backend.BF16:
		for i := range dst {
			dst[i] = BF16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case backend.Affine4, backend.Affine8:
		groups := 2 * (in / t.Group)
		AffineToF32(dst, src, t.Scales[o*groups:(o+1)*groups], t.Biases[o*groups:(o+1)*groups], t.DType.Bits(), t.Group)
	case backend.F8_E4M3:
		groups := 4 * t.Groups()
		Float8ToF32(dst, src, t.Scales[o*groups:(o+1)*groups], t.Group)
	case backend.Q8_0:
		Q8_0ToF32(dst, src)
	case backend.Q4_0:
		Q4_0ToF32(dst, src)
	case backend.Q4_K:
		Q4_KToF32(dst, src)
	case backend.Q6_K:
		Q6_KToF32(dst, src)
	case backend.Q4_1:
		Q4_1ToF32(dst, src)
	case backend.Q5_0:
		Q5_0ToF32(dst, src)
	case backend.Q5_1:
		Q5_1ToF32(dst, src)
	case backend.Q2_K:
		Q2_KToF32(dst, src)
	case backend.Q3_K:
		Q3_KToF32(dst, src)
	case backend.Q5_K:
		Q5_KToF32(dst, src)
	case backend.IQ4_NL:
		IQ4_NLToF32(dst, src)
	case backend.IQ4_XS:
		IQ4_XSToF32(dst, src)
	}
}

// Blocks encodes rows into one of GGUF's block types, or into floats; false
// for types that it does not write. len(src) is a whole number of blocks.
func Blocks(dst []byte, d backend.DType, src []float32) bool {
	switch d {
	case backend.F32:
		for i, v := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
		}
	case backend.F16:
		for i, v := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], F32ToF16(v))
		}
	case backend.BF16:
		for i, v := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], F32ToBF16(v))
		}
	case backend.Q8_0:
		F32ToQ8_0(dst, src)
	case backend.Q4_0:
		F32ToQ4_0(dst, src)
	case backend.Q4_K:
		F32ToQ4_K(dst, src)
	case backend.Q6_K:
		F32ToQ6_K(dst, src)
	case backend.Q4_1:
		F32ToQ4_1(dst, src)
	case backend.Q5_0:
		F32ToQ5_0(dst, src)
	case backend.Q5_1:
		F32ToQ5_1(dst, src)
	case backend.Q2_K:
		F32ToQ2_K(dst, src)
	case backend.Q3_K:
		F32ToQ3_K(dst, src)
	case backend.Q5_K:
		F32ToQ5_K(dst, src)
	case backend.IQ4_NL:
		F32ToIQ4_NL(dst, src)
	case backend.IQ4_XS:
		F32ToIQ4_XS(dst, src)
	default:
		return false
	}
	return true
}
