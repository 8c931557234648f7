package quant

import (
	"encoding/binary"
	"math"
)

// Encoders of the K-quants of 2, 3 and 5 bits and of IQ4_XS. They round to nearest
// without ggml's search for better scales: they serve tests and measurements.
//
// src holds whole blocks of elements.

// biased are the scales and minima of a block's groups, as whole numbers of d and
// dmin.
type biased struct {
	dBits, dminBits uint16 // d and dmin in f16
	scales, minima  [16]byte
	numbers         [256]byte
}

// bias finds them for groups of that length, numbers of 0 to topNumber and scales
// of 0 to topScale.
func bias(x []float32, group, topNumber int, topScale float32) (b biased) {
	var scales, minima [16]float32 // minima as distances below 0
	largestScale, largestMinimum := float32(0), float32(0)
	groups := len(x) / group
	for j := range groups {
		low, high := float32(0), float32(math.Inf(-1))
		for _, v := range x[group*j : group*(j+1)] {
			low, high = min(low, v), max(high, v)
		}
		scales[j], minima[j] = (high-low)/float32(topNumber), -low
		largestScale, largestMinimum = max(largestScale, scales[j]), max(largestMinimum, minima[j])
	}
	b.dBits, b.dminBits = F32ToF16(largestScale/topScale), F32ToF16(largestMinimum/topScale)
	d, dmin := F16ToF32(b.dBits), F16ToF32(b.dminBits)
	for j := range groups {
		b.scales[j] = byte(min(max(roundEven(scales[j]*reciprocal(d)), 0), topScale))
		b.minima[j] = byte(min(max(roundEven(minima[j]*reciprocal(dmin)), 0), topScale))
		inverse, low := reciprocal(d*float32(b.scales[j])), float32(dmin*float32(b.minima[j]))
		for i, v := range x[group*j : group*(j+1)] {
			b.numbers[group*j+i] = byte(min(max(roundEven((v+low)*inverse), 0), float32(topNumber)))
		}
	}
	return b
}

// putScalesK packs the scales and minima of 8 sub-blocks as q4KScale reads them.
func (b *biased) putScalesK(packed []byte) {
	clear(packed[:12])
	for j := range 8 {
		s, m := b.scales[j], b.minima[j]
		if j < 4 {
			packed[j] |= s
			packed[j+4] |= m
		} else {
			packed[j+4] = s&15 | m&15<<4
			packed[j-4] |= s >> 4 << 6
			packed[j] |= m >> 4 << 6
		}
	}
}

// F32ToQ5_K encodes blocks of 256.
func F32ToQ5_K(dst []byte, src []float32) {
	for ; len(src) >= 256; dst, src = dst[176:], src[256:] {
		b := bias(src[:256], 32, 31, 63)
		binary.LittleEndian.PutUint16(dst, b.dBits)
		binary.LittleEndian.PutUint16(dst[2:], b.dminBits)
		b.putScalesK(dst[4:16])
		clear(dst[16:176])
		for i, q := range b.numbers {
			j, l := i/32, i%32
			dst[16+l] |= q >> 4 << j
			dst[48+32*(j/2)+l] |= q & 15 << (4 * (j & 1))
		}
	}
}

// F32ToQ2_K encodes blocks of 256.
func F32ToQ2_K(dst []byte, src []float32) {
	for ; len(src) >= 256; dst, src = dst[84:], src[256:] {
		b := bias(src[:256], 16, 3, 15)
		for j := range 16 {
			dst[j] = b.scales[j] | b.minima[j]<<4
		}
		clear(dst[16:80])
		for i, q := range b.numbers {
			twoBits(dst[16:80], i/16)[i%16] |= q << twoBitsShift(i/16)
		}
		binary.LittleEndian.PutUint16(dst[80:], b.dBits)
		binary.LittleEndian.PutUint16(dst[82:], b.dminBits)
	}
}

// signedScales are the scales of groups whose element of largest magnitude becomes
// the number least, as whole numbers of −32 to 31.
func signedScales(x []float32, group int, least float32) (dBits uint16, d float32, scales [16]int) {
	var exact [16]float32
	groups := len(x) / group
	for j := range groups {
		exact[j] = signedLargest(x[group*j:group*(j+1)]) / least
	}
	dBits = F32ToF16(signedLargest(exact[:groups]) / -32)
	d = F16ToF32(dBits)
	for j := range groups {
		scales[j] = int(min(max(roundEven(exact[j]*reciprocal(d)), -32), 31))
	}
	return dBits, d, scales
}

// F32ToQ3_K encodes blocks of 256.
func F32ToQ3_K(dst []byte, src []float32) {
	for ; len(src) >= 256; dst, src = dst[110:], src[256:] {
		dBits, d, scales := signedScales(src[:256], 16, -4)
		clear(dst[:108])
		binary.LittleEndian.PutUint16(dst[108:], dBits)
		for j, s := range scales {
			packed := byte(s + 32)
			dst[96+j%8] |= packed & 15 << (j / 8 * 4)
			dst[104+j%4] |= packed >> 4 << (j / 4 * 2)
			inverse := reciprocal(d * float32(s))
			for i, v := range src[16*j : 16*j+16] {
				q := byte(min(max(roundEven(v*inverse), -4), 3) + 4)
				twoBits(dst[32:96], j)[i] |= q & 3 << twoBitsShift(j)
				dst[16*(j%2)+i] |= q >> 2 << (j / 2)
			}
		}
	}
}

// F32ToIQ4_XS encodes blocks of 256.
func F32ToIQ4_XS(dst []byte, src []float32) {
	for ; len(src) >= 256; dst, src = dst[136:], src[256:] {
		dBits, d, scales := signedScales(src[:256], 32, -127)
		clear(dst[:8])
		binary.LittleEndian.PutUint16(dst, dBits)
		high := uint16(0)
		for j, s := range scales[:8] {
			packed := byte(s + 32)
			dst[4+j/2] |= packed & 15 << (4 * (j & 1))
			high |= uint16(packed>>4) << (2 * j)
			putIQ4(dst[8+16*j:24+16*j], src[32*j:32*j+32], d*float32(s))
		}
		binary.LittleEndian.PutUint16(dst[2:], high)
	}
}
