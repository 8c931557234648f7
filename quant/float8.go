package quant

import (
	"encoding/binary"
	"math"
)

// float8 holds the value of each F8_E4M3.
var float8 = func() (table [256]float32) {
	for b := range table {
		table[b] = float8Value(byte(b))
	}
	return table
}()

// float8Value is a float of 8 bits after "FP8 Formats for Deep Learning" (arXiv
// 2209.05433), E4M3: exponents have a bias of 7, both codes with all of exponent
// and fraction set are NaN, and there is no infinity.
func float8Value(b byte) float32 {
	exponent, fraction := int(b>>3&15), float64(b&7)
	var v float64
	switch {
	case b&0x7f == 0x7f:
		return math.Float32frombits(uint32(b)<<24 | 0x7fc00000)
	case exponent == 0:
		v = math.Ldexp(fraction, -9)
	default:
		v = math.Ldexp(8+fraction, exponent-10)
	}
	if b&0x80 != 0 {
		v = math.Copysign(v, -1)
	}
	return float32(v)
}

// Float8ToF32 widens a row of F8_E4M3: each times its group's scale, f32, rounded
// once. The last group may be shorter.
func Float8ToF32(dst []float32, src, scales []byte, group int) {
	for len(src) > 0 {
		n := min(group, len(src))
		scale := math.Float32frombits(binary.LittleEndian.Uint32(scales))
		for i, b := range src[:n] {
			dst[i] = float8[b] * scale
		}
		dst, src, scales = dst[n:], src[n:], scales[4:]
	}
}
