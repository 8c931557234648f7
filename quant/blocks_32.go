package quant

import "encoding/binary"

// The blocks of 32 that mixes of K-quants fall back on where rows are no multiple
// of 256, and those of llama.cpp's older types. Decoding follows ggml's reference
// operation for operation. A whole number of 8 bits times an f16 scale is exact,
// and one sum follows at most, so that fused multiply-adds cannot change a bit.

// iq4Values are the numbers that the 4 bits of IQ4_NL and IQ4_XS stand for.
var iq4Values = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// Q4_1ToF32 widens blocks of 32: d and m f16, 16 bytes with elements 0..15 in the
// low halves and 16..31 in the high ones. A weight is d·q + m.
func Q4_1ToF32(dst []float32, src []byte) {
	for ; len(src) >= 20; dst, src = dst[32:], src[20:] {
		d, m := half(src), half(src[2:])
		for i, q := range src[4:20] {
			dst[i] = float32(q&15)*d + m
			dst[i+16] = float32(q>>4)*d + m
		}
	}
}

// Q5_0ToF32 widens blocks of 32: d f16, 32 bits that are the fifth of each
// element, 16 bytes of the low four bits as those of Q4_0. A weight is d·(q − 16).
func Q5_0ToF32(dst []float32, src []byte) {
	for ; len(src) >= 22; dst, src = dst[32:], src[22:] {
		d, fifth := half(src), binary.LittleEndian.Uint32(src[2:])
		for i, q := range src[6:22] {
			dst[i] = float32(int(q&15|fifthBit(fifth, i))-16) * d
			dst[i+16] = float32(int(q>>4|fifthBit(fifth, i+16))-16) * d
		}
	}
}

// Q5_1ToF32 widens blocks of 32: d and m f16, then as Q5_0. A weight is d·q + m.
func Q5_1ToF32(dst []float32, src []byte) {
	for ; len(src) >= 24; dst, src = dst[32:], src[24:] {
		d, m, fifth := half(src), half(src[2:]), binary.LittleEndian.Uint32(src[4:])
		for i, q := range src[8:24] {
			dst[i] = float32(q&15|fifthBit(fifth, i))*d + m
			dst[i+16] = float32(q>>4|fifthBit(fifth, i+16))*d + m
		}
	}
}

// IQ4_NLToF32 widens blocks of 32 that lie as those of Q4_0; the 4 bits choose
// from iq4Values.
func IQ4_NLToF32(dst []float32, src []byte) {
	for ; len(src) >= 18; dst, src = dst[32:], src[18:] {
		d := half(src)
		for i, q := range src[2:18] {
			dst[i] = d * float32(iq4Values[q&15])
			dst[i+16] = d * float32(iq4Values[q>>4])
		}
	}
}

// half is the f16 at the start of p.
func half(p []byte) float32 { return F16ToF32(binary.LittleEndian.Uint16(p)) }

// fifthBit is bit i of the fifth ones, in its place.
func fifthBit(bits uint32, i int) byte { return byte(bits>>i&1) << 4 }
