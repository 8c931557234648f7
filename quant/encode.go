package quant

import (
	"encoding/binary"
	"math"
)

// Encoders of GGUF's blocks. Q8_0 and Q4_0 give the bytes of ggml's reference
// encoder; those of Q4_K and Q6_K round to nearest without ggml's search for
// better scales: they serve tests and measurements.
//
// src holds whole blocks of elements.

// F32ToQ8_0 encodes blocks of 32.
func F32ToQ8_0(dst []byte, src []float32) {
	for ; len(src) >= 32; dst, src = dst[34:], src[32:] {
		largest := float32(0)
		for _, v := range src[:32] {
			largest = max(largest, abs(v))
		}
		d := largest / 127
		inverse := reciprocal(d)
		binary.LittleEndian.PutUint16(dst, F32ToF16(d))
		for i, v := range src[:32] {
			dst[2+i] = byte(int8(math.Round(float64(v * inverse)))) // half away from zero, as roundf
		}
	}
}

// F32ToQ4_0 encodes blocks of 32: the element of largest magnitude becomes −8.
func F32ToQ4_0(dst []byte, src []float32) {
	for ; len(src) >= 32; dst, src = dst[18:], src[32:] {
		d := signedLargest(src[:32]) / -8
		inverse := reciprocal(d)
		binary.LittleEndian.PutUint16(dst, F32ToF16(d))
		number := func(v float32) byte {
			scaled := float32(v * inverse) // the conversion bars a fused multiply-add
			return byte(min(15, int8(scaled+8.5)))
		}
		for i := range 16 {
			dst[2+i] = number(src[i]) | number(src[i+16])<<4
		}
	}
}

// F32ToQ4_K encodes blocks of 256.
func F32ToQ4_K(dst []byte, src []float32) {
	for ; len(src) >= 256; dst, src = dst[144:], src[256:] {
		b := bias(src[:256], 32, 15, 63)
		binary.LittleEndian.PutUint16(dst, b.dBits)
		binary.LittleEndian.PutUint16(dst[2:], b.dminBits)
		b.putScalesK(dst[4:16])
		clear(dst[16:144])
		for i, q := range b.numbers {
			j := i / 32
			dst[16+32*(j/2)+i%32] |= q << (4 * (j & 1))
		}
	}
}

// F32ToQ6_K encodes blocks of 256.
func F32ToQ6_K(dst []byte, src []float32) {
	for ; len(src) >= 256; dst, src = dst[210:], src[256:] {
		var scales [16]float32
		for j := range scales {
			scales[j] = signedLargest(src[16*j:16*j+16]) / -32
		}
		dBits := F32ToF16(signedLargest(scales[:]) / -128)
		d := F16ToF32(dBits)
		clear(dst[:192])
		binary.LittleEndian.PutUint16(dst[208:], dBits)
		var numbers [256]byte
		for j, scale := range scales {
			s := int8(min(max(roundEven(scale*reciprocal(d)), -128), 127))
			dst[192+j] = byte(s)
			inverse := reciprocal(d * float32(s))
			for i, v := range src[16*j : 16*j+16] {
				numbers[16*j+i] = byte(int(min(max(roundEven(v*inverse), -32), 31)) + 32)
			}
		}
		putSixes(dst, &numbers)
	}
}

// putSixes adds the numbers of a block of Q6_K, 32 more, to zeros.
func putSixes(dst []byte, numbers *[256]byte) {
	for at, q := range numbers {
		half, k, l := at/128, at%128/32, at%32
		dst[64*half+32*(k&1)+l] |= q & 15 << (4 * (k >> 1))
		dst[128+32*half+l] |= q >> 4 << (2 * k)
	}
}

// signedLargest is the element of largest magnitude, the first of equals.
func signedLargest(x []float32) (largest float32) {
	for _, v := range x {
		if abs(v) > abs(largest) {
			largest = v
		}
	}
	return largest
}

// reciprocal is 1/x, and 0 where that is no finite number.
func reciprocal(x float32) float32 {
	if r := 1 / x; abs(r) <= math.MaxFloat32 {
		return r
	}
	return 0
}
