package quant

import "encoding/binary"

// GGUF's blocks, as ggml lays them out. Decoding follows ggml's reference
// operation for operation; f16 scales times the small whole numbers of a block
// are exact in f32 but for Q6_K, where no sum follows, so that fused
// multiply-adds cannot change a bit.
//
// src holds whole blocks, and dst as many elements.

// Q8_0ToF32 widens blocks of 32: d f16, 32 int8.
func Q8_0ToF32(dst []float32, src []byte) {
	for ; len(src) >= 34; dst, src = dst[32:], src[34:] {
		d := F16ToF32(binary.LittleEndian.Uint16(src))
		for i, q := range src[2:34] {
			dst[i] = float32(int8(q)) * d
		}
	}
}

// Q4_0ToF32 widens blocks of 32: d f16, 16 bytes with elements 0..15 in the low
// halves and 16..31 in the high ones.
func Q4_0ToF32(dst []float32, src []byte) {
	for ; len(src) >= 18; dst, src = dst[32:], src[18:] {
		d := F16ToF32(binary.LittleEndian.Uint16(src))
		for i, q := range src[2:18] {
			dst[i] = float32(int(q&15)-8) * d
			dst[i+16] = float32(int(q>>4)-8) * d
		}
	}
}

// Q4_KToF32 widens blocks of 256: d and dmin f16, 12 bytes of packed 6-bit
// scales and minima for 8 sub-blocks of 32, 128 bytes of numbers. A weight is
// d·scale·q − dmin·minimum.
func Q4_KToF32(dst []float32, src []byte) {
	for ; len(src) >= 144; dst, src = dst[256:], src[144:] {
		d := F16ToF32(binary.LittleEndian.Uint16(src))
		dmin := F16ToF32(binary.LittleEndian.Uint16(src[2:]))
		for j := range 4 { // 32 bytes hold sub-block 2j in the low halves, 2j+1 in the high ones
			s0, m0 := q4KScale(src[4:16], 2*j)
			s1, m1 := q4KScale(src[4:16], 2*j+1)
			scale0, low0 := d*float32(s0), dmin*float32(m0)
			scale1, low1 := d*float32(s1), dmin*float32(m1)
			x := dst[64*j : 64*j+64]
			for i, q := range src[16+32*j : 48+32*j] {
				x[i] = scale0*float32(q&15) - low0
				x[i+32] = scale1*float32(q>>4) - low1
			}
		}
	}
}

// q4KScale unpacks the scale and the minimum of sub-block j: bytes 0..3 and
// 4..7 hold those of 0..3 in their low 6 bits and the top 2 bits of those of
// 4..7; bytes 8..11 hold the low 4 bits of the latter.
func q4KScale(p []byte, j int) (scale, minimum byte) {
	if j < 4 {
		return p[j] & 63, p[j+4] & 63
	}
	return p[j+4]&15 | p[j-4]>>6<<4, p[j+4]>>4 | p[j]>>6<<4
}

// Q6_KToF32 widens blocks of 256: 128 bytes of low 4 bits, 64 bytes of high 2
// bits, 16 int8 scales of 16 elements each, d f16. A weight is
// d·scale·(q − 32).
func Q6_KToF32(dst []float32, src []byte) {
	for ; len(src) >= 210; dst, src = dst[256:], src[210:] {
		d := F16ToF32(binary.LittleEndian.Uint16(src[208:]))
		for half := range 2 {
			low, high := src[64*half:64*half+64], src[128+32*half:160+32*half]
			scales := src[192+8*half : 200+8*half]
			x := dst[128*half : 128*half+128]
			for k := range 4 { // elements 32k..32k+31 of the half
				nibbles := low[32*(k&1) : 32*(k&1)+32]
				for i, b := range nibbles {
					q := int(b>>(4*(k>>1))&15|high[i]>>(2*k)&3<<4) - 32
					x[32*k+i] = d * float32(int8(scales[2*k+i/16])) * float32(q)
				}
			}
		}
	}
}
