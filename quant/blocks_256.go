package quant

import "encoding/binary"

// The K-quants of 2, 3 and 5 bits, and IQ4_XS, as ggml lays them out: see
// blocks.go. An f16 scale times a sub-block's scale has 17 bits, and with the
// element's number 24 at most: every product is exact in f32.

// Q2_KToF32 widens blocks of 256: 16 bytes with the scale of 16 elements in the
// low half and their minimum in the high one, 64 bytes of 2 bits, d and dmin f16.
// A weight is d·scale·q − dmin·minimum.
func Q2_KToF32(dst []float32, src []byte) {
	for ; len(src) >= 84; dst, src = dst[256:], src[84:] {
		d, dmin := half(src[80:]), half(src[82:])
		for group, packed := range src[:16] {
			scale, low := d*float32(packed&15), dmin*float32(packed>>4)
			for i, q := range twoBits(src[16:80], group) {
				dst[16*group+i] = scale*float32(q>>twoBitsShift(group)&3) - low
			}
		}
	}
}

// twoBits are the bytes that hold 2 bits of each element of a group of 16: 32
// bytes hold 128 elements, those of a quarter 2 bits above those of the one
// before. twoBitsShift is where they begin.
func twoBits(numbers []byte, group int) []byte {
	at := 32*(group/8) + 16*(group%2)
	return numbers[at : at+16]
}

func twoBitsShift(group int) int { return group % 8 / 2 * 2 }

// Q3_KToF32 widens blocks of 256: 32 bytes whose bit k is the third one of the
// elements from 32k on, 64 bytes of 2 bits as those of Q2_K, 12 bytes of 6-bit
// scales, d f16. A weight is d·(scale − 32)·(q − 4).
func Q3_KToF32(dst []float32, src []byte) {
	for ; len(src) >= 110; dst, src = dst[256:], src[110:] {
		d, third := half(src[108:]), src[:32]
		for group := range 16 {
			scale := d * float32(q3KScale(src[96:108], group))
			for i, q := range twoBits(src[32:96], group) {
				high := third[16*(group%2)+i] >> (group / 2) & 1 << 2
				dst[16*group+i] = scale * float32(int(q>>twoBitsShift(group)&3|high)-4)
			}
		}
	}
}

// q3KScale unpacks the scale of a group of 16, less 32: bytes 0..7 hold the low 4
// bits of groups 0..7 in their low halves and of 8..15 in their high ones; byte
// 8 + k holds the high 2 bits of groups k, k + 4, k + 8 and k + 12.
func q3KScale(p []byte, group int) int {
	low := p[group%8] >> (group / 8 * 4) & 15
	high := p[8+group%4] >> (group / 4 * 2) & 3
	return int(low|high<<4) - 32
}

// Q5_KToF32 widens blocks of 256: d, dmin and 12 bytes of scales and minima as
// Q4_K, 32 bytes whose bit k is the fifth one of sub-block k, 128 bytes of the low
// four bits as those of Q4_K. A weight is d·scale·q − dmin·minimum.
func Q5_KToF32(dst []float32, src []byte) {
	for ; len(src) >= 176; dst, src = dst[256:], src[176:] {
		d, dmin := half(src), half(src[2:])
		for j := range 8 {
			s, m := q4KScale(src[4:16], j)
			scale, low := d*float32(s), dmin*float32(m)
			for i, fifth := range src[16:48] {
				q := src[48+32*(j/2)+i] >> (4 * (j & 1)) & 15
				dst[32*j+i] = scale*float32(q|fifth>>j&1<<4) - low
			}
		}
	}
}

// IQ4_XSToF32 widens blocks of 256: d f16, 16 bits with the high 2 of each
// sub-block's scale, 4 bytes with the low 4, 128 bytes of 8 sub-blocks that lie as
// those of IQ4_NL. A weight is d·(scale − 32) times one of iq4Values.
func IQ4_XSToF32(dst []float32, src []byte) {
	for ; len(src) >= 136; dst, src = dst[256:], src[136:] {
		d := half(src)
		for j := range 8 {
			scale := d * float32(iq4XSScale(src, j))
			for i, q := range src[8+16*j : 24+16*j] {
				dst[32*j+i] = scale * float32(iq4Values[q&15])
				dst[32*j+i+16] = scale * float32(iq4Values[q>>4])
			}
		}
	}
}

// iq4XSScale unpacks the scale of sub-block j of a block, less 32.
func iq4XSScale(block []byte, j int) int {
	high := binary.LittleEndian.Uint16(block[2:]) >> (2 * j) & 3
	low := block[4+j/2] >> (4 * (j & 1)) & 15
	return int(low|byte(high)<<4) - 32
}
