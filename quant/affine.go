package quant

import (
	"encoding/binary"
	"math"

	"windrow/backend"
)

// affineEps is the smallest scale, as in MLX: a group of equal values keeps a
// scale to divide by.
const affineEps = 1e-7

// Affine quantises w in groups, with the arithmetic of MLX's affine mode
// (mlx.core.quantize): scale and bias are found in f32 so that the edge of
// larger magnitude comes out exact, the numbers q are rounded against these
// f32 values, half to even, and only then are scale and bias rounded to bf16.
// A weight is q·scale + bias.
//
// len(w) is a multiple of group, and group of 32. data takes
// len(w)·bits/8 bytes: uint32 words, little-endian, low bits first; scales and
// biases take 2 bytes a group each.
func Affine(data, scales, biases []byte, w []float32, bits, group int) {
	top := float32(uint32(1)<<bits - 1)
	for g := range len(w) / group {
		x := w[g*group : (g+1)*group]
		scale, bias := affineScale(x, top)
		binary.LittleEndian.PutUint16(scales[2*g:], F32ToBF16(scale))
		binary.LittleEndian.PutUint16(biases[2*g:], F32ToBF16(bias))
		packed := data[g*group*bits/8 : (g+1)*group*bits/8]
		if bits == 8 {
			for i, v := range x {
				packed[i] = affineNumber(v, scale, bias, top)
			}
			continue
		}
		// Words are little-endian and hold low bits first, so that bytes do too.
		for i := range packed {
			packed[i] = affineNumber(x[2*i], scale, bias, top) | affineNumber(x[2*i+1], scale, bias, top)<<4
		}
	}
}

// affineScale finds scale and bias of one group.
func affineScale(x []float32, top float32) (scale, bias float32) {
	low, high := float32(math.Inf(1)), float32(math.Inf(-1))
	for _, v := range x {
		low, high = min(low, v), max(high, v)
	}
	scale = max((high-low)/top, affineEps)
	edge := low
	if !(abs(low) > abs(high)) {
		scale, edge = -scale, high
	}
	if n := roundEven(edge / scale); n != 0 {
		return edge / n, edge
	}
	return scale, 0
}

func affineNumber(v, scale, bias, top float32) byte {
	return byte(min(max(roundEven((v-bias)/scale), 0), top))
}

func roundEven(x float32) float32 { return float32(math.RoundToEven(float64(x))) }

func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// AffineToF32 widens len(dst) weights, a multiple of group: q·scale + bias.
//
// The product is exact in f32 (bf16 has 8 bits of precision, q at most 8), so
// that the sum is rounded once, fused or not.
func AffineToF32(dst []float32, data, scales, biases []byte, bits, group int) {
	for g := range len(dst) / group {
		scale := BF16ToF32(binary.LittleEndian.Uint16(scales[2*g:]))
		bias := BF16ToF32(binary.LittleEndian.Uint16(biases[2*g:]))
		x := dst[g*group : (g+1)*group]
		packed := data[g*group*bits/8 : (g+1)*group*bits/8]
		if bits == 8 {
			for i, q := range packed {
				x[i] = float32(q)*scale + bias
			}
			continue
		}
		for i, q := range packed {
			x[2*i] = float32(q&15)*scale + bias
			x[2*i+1] = float32(q>>4)*scale + bias
		}
	}
}

// ScalesReachHalf reports whether any group of an affine tensor has a scale of 1/2 or
// more, of either sign.
func ScalesReachHalf(t backend.Tensor) bool {
	const half = 0x3f00 // in bf16, as its lanes' largest numbers are
	s := t.Scales
	for ; len(s) >= 8; s = s[8:] {
		v := binary.LittleEndian.Uint64(s) & 0x7fff7fff7fff7fff
		if (v+(0x8000-half)*0x0001000100010001)&0x8000800080008000 != 0 {
			return true
		}
	}
	for ; len(s) >= 2; s = s[2:] {
		if binary.LittleEndian.Uint16(s)&0x7fff >= half {
			return true
		}
	}
	return false
}
