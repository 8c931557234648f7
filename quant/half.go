// Package quant holds the number formats of weights and caches, in plain Go:
// the references that every backend's kernels are compared with.
package quant

import "math"

// BF16ToF32 widens a bfloat16.
func BF16ToF32(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// F32ToBF16 rounds to the nearest bfloat16, ties to even; a NaN stays a
// (quiet) NaN.
func F32ToBF16(f float32) uint16 {
	u := math.Float32bits(f)
	if u&0x7fffffff > 0x7f800000 {
		return uint16(u>>16) | 0x40
	}
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

// F16ToF32 widens an IEEE 754 half, subnormals included.
func F16ToF32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h>>10) & 0x1f
	frac := uint32(h & 0x3ff)
	switch {
	case exp == 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	case exp != 0:
		return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
	}
	// A subnormal is frac · 2^-24, exact in f32.
	f := float32(frac) * (1.0 / (1 << 24))
	return math.Float32frombits(math.Float32bits(f) | sign)
}

// F32ToF16 rounds to the nearest half, ties to even; overflow gives infinity.
func F32ToF16(f float32) uint16 {
	u := math.Float32bits(f)
	sign := uint16(u >> 16 & 0x8000)
	u &= 0x7fffffff
	switch {
	case u > 0x7f800000:
		return sign | 0x7e00
	case u >= 0x477ff000: // rounds to 65520 or more
		return sign | 0x7c00
	case u >= 0x38800000: // normal
		u += 0xfff + u>>13&1
		return sign | uint16((u-0x38000000)>>13)
	}
	// Subnormal: adding 0.5 makes the FPU round at 2^-24.
	r := math.Float32frombits(u) + 0.5
	return sign | uint16(math.Float32bits(r)-0x3f000000)
}
