package quant

import (
	"encoding/binary"
	"math"
)

// Encoders of the other blocks of 32. Q4_1, Q5_0 and Q5_1 give the bytes of ggml's
// reference encoder; IQ4_NL rounds to the nearest of its values without ggml's
// search for a better scale.
//
// src holds whole blocks of elements.

// F32ToQ4_1 encodes blocks of 32: the smallest element becomes 0, the largest 15.
func F32ToQ4_1(dst []byte, src []float32) {
	for ; len(src) >= 32; dst, src = dst[20:], src[32:] {
		numbers := spread(dst, src[:32], 15)
		for i := range 16 {
			dst[4+i] = numbers[i] | numbers[i+16]<<4
		}
	}
}

// F32ToQ5_1 encodes blocks of 32: the smallest element becomes 0, the largest 31.
func F32ToQ5_1(dst []byte, src []float32) {
	for ; len(src) >= 32; dst, src = dst[24:], src[32:] {
		numbers := spread(dst, src[:32], 31)
		putFives(dst[4:], &numbers)
	}
}

// F32ToQ5_0 encodes blocks of 32: the element of largest magnitude becomes −16.
func F32ToQ5_0(dst []byte, src []float32) {
	for ; len(src) >= 32; dst, src = dst[22:], src[32:] {
		d := signedLargest(src[:32]) / -16
		inverse := reciprocal(d)
		binary.LittleEndian.PutUint16(dst, F32ToF16(d))
		var numbers [32]byte
		for i, v := range src[:32] {
			scaled := float32(v * inverse) // the conversion bars a fused multiply-add
			numbers[i] = byte(min(31, int8(scaled+16.5)))
		}
		putFives(dst[2:], &numbers)
	}
}

// spread writes the scale and the minimum of a block, and returns its elements in
// steps of the scale, 0 to top.
func spread(dst []byte, x []float32, top float32) (numbers [32]byte) {
	low, high := float32(math.MaxFloat32), float32(-math.MaxFloat32)
	for _, v := range x {
		low, high = min(low, v), max(high, v)
	}
	d := (high - low) / top
	inverse := reciprocal(d)
	binary.LittleEndian.PutUint16(dst, F32ToF16(d))
	binary.LittleEndian.PutUint16(dst[2:], F32ToF16(low))
	for i, v := range x {
		scaled := float32((v - low) * inverse)
		numbers[i] = byte(min(int8(top), int8(scaled+0.5)))
	}
	return numbers
}

// putFives writes 32 numbers of 5 bits: the fifth ones, then the low four.
func putFives(dst []byte, numbers *[32]byte) {
	fifth := uint32(0)
	for i, q := range numbers {
		fifth |= uint32(q>>4) << i
	}
	binary.LittleEndian.PutUint32(dst, fifth)
	for i := range 16 {
		dst[4+i] = numbers[i]&15 | numbers[i+16]<<4
	}
}

// F32ToIQ4_NL encodes blocks of 32: the element of largest magnitude becomes −127.
func F32ToIQ4_NL(dst []byte, src []float32) {
	for ; len(src) >= 32; dst, src = dst[18:], src[32:] {
		bits := F32ToF16(signedLargest(src[:32]) / -127)
		binary.LittleEndian.PutUint16(dst, bits)
		putIQ4(dst[2:18], src[:32], F16ToF32(bits))
	}
}

// putIQ4 writes the numbers of 32 elements whose scale is d.
func putIQ4(dst []byte, x []float32, d float32) {
	inverse := reciprocal(d)
	for i := range 16 {
		dst[i] = nearestIQ4(x[i]*inverse) | nearestIQ4(x[i+16]*inverse)<<4
	}
}

// nearestIQ4 numbers the value nearest to x.
func nearestIQ4(x float32) (number byte) {
	for i, v := range iq4Values {
		if abs(x-float32(v)) < abs(x-float32(iq4Values[number])) {
			number = byte(i)
		}
	}
	return number
}
