package quant

import (
	"encoding/binary"

	"windrow/backend"
)

// Units say how a block type reads as whole numbers in groups, each with a scale
// and of some types a bias: a weight is (number − Less)·scale + bias.
type Units struct {
	Group int  // elements that share a scale: 16 or 32
	Bits  int  // numbers are below 2^Bits
	Less  byte // what makes numbers unsigned
	Bias  bool // a bias beside each scale; otherwise it is 0
}

// UnitsOf gives the units of the types that Unpack takes; false for the others.
func UnitsOf(d backend.DType) (Units, bool) {
	switch d {
	case backend.Q4_1:
		return Units{Group: 32, Bits: 4, Bias: true}, true
	case backend.Q5_0:
		return Units{Group: 32, Bits: 5, Less: 16}, true
	case backend.Q5_1, backend.Q5_K:
		return Units{Group: 32, Bits: 5, Bias: true}, true
	case backend.Q2_K:
		return Units{Group: 16, Bits: 2, Bias: true}, true
	case backend.Q3_K:
		return Units{Group: 16, Bits: 3, Less: 4}, true
	case backend.IQ4_NL, backend.IQ4_XS:
		return Units{Group: 32, Bits: 8, Less: 128}, true
	}
	return Units{}, false
}

// Unpack splits a row of blocks into its numbers, one a byte and raised by raise,
// and the scales and biases of its groups, which are stride floats apart. All of
// them are exact. It works on 8 bytes at a time: 2 to 6 times as fast as Row.
//
// numbers holds len(src) blocks of elements; biases may be nil where Units have
// none, and d must have Units. raise may not carry out of a byte.
func Unpack(d backend.DType, numbers []byte, scales, biases []float32, stride int, src []byte, raise byte) {
	up := eightTimes(raise)
	switch d {
	case backend.Q4_1:
		for g := 0; len(src) >= 20; numbers, src, g = numbers[32:], src[20:], g+stride {
			scales[g], biases[g] = half(src), half(src[2:])
			unpackNibbles((*[32]byte)(numbers), (*[16]byte)(src[4:]), 0, up)
		}
	case backend.Q5_0:
		for g := 0; len(src) >= 22; numbers, src, g = numbers[32:], src[22:], g+stride {
			scales[g] = half(src)
			unpackNibbles((*[32]byte)(numbers), (*[16]byte)(src[6:]), binary.LittleEndian.Uint32(src[2:]), up)
		}
	case backend.Q5_1:
		for g := 0; len(src) >= 24; numbers, src, g = numbers[32:], src[24:], g+stride {
			scales[g], biases[g] = half(src), half(src[2:])
			unpackNibbles((*[32]byte)(numbers), (*[16]byte)(src[8:]), binary.LittleEndian.Uint32(src[4:]), up)
		}
	case backend.IQ4_NL:
		for g := 0; len(src) >= 18; numbers, src, g = numbers[32:], src[18:], g+stride {
			scales[g] = half(src)
			unpackIQ4((*[32]byte)(numbers), (*[16]byte)(src[2:]), up)
		}
	case backend.Q2_K:
		for g := 0; len(src) >= 84; numbers, src, g = numbers[256:], src[84:], g+16*stride {
			d, dmin := half(src[80:]), half(src[82:])
			for j, packed := range src[:16] {
				scales[g+j*stride], biases[g+j*stride] = d*float32(packed&15), -(dmin * float32(packed>>4))
			}
			unpackTwoBits((*[256]byte)(numbers), (*[64]byte)(src[16:]), &noThird, up)
		}
	case backend.Q3_K:
		for g := 0; len(src) >= 110; numbers, src, g = numbers[256:], src[110:], g+16*stride {
			d := half(src[108:])
			low, high := load8(src[96:104]), binary.LittleEndian.Uint32(src[104:])
			first := low&eightHalves | eightPairsOf(high, 0)<<4 // the scales of groups 0..7, as q3KScale has them
			second := low>>4&eightHalves | eightPairsOf(high, 4)<<4
			for j := range 8 {
				scales[g+j*stride] = d * float32(int(byte(first>>(8*j)))-32)
				scales[g+(j+8)*stride] = d * float32(int(byte(second>>(8*j)))-32)
			}
			unpackTwoBits((*[256]byte)(numbers), (*[64]byte)(src[32:]), (*[32]byte)(src), up)
		}
	case backend.Q5_K:
		for g := 0; len(src) >= 176; numbers, src, g = numbers[256:], src[176:], g+8*stride {
			d, dmin := half(src), half(src[2:])
			for j := range 8 {
				s, m := q4KScale(src[4:16], j)
				scales[g+j*stride], biases[g+j*stride] = d*float32(s), -(dmin * float32(m))
			}
			unpackQ5K((*[256]byte)(numbers), (*[160]byte)(src[16:]), up)
		}
	case backend.IQ4_XS:
		for g := 0; len(src) >= 136; numbers, src, g = numbers[256:], src[136:], g+8*stride {
			d, high, low := half(src), int(binary.LittleEndian.Uint16(src[2:])), int(binary.LittleEndian.Uint32(src[4:]))
			for j := range 8 {
				scales[g+j*stride] = d * float32(low>>(4*j)&15+high>>(2*j)&3<<4-32)
				unpackIQ4((*[32]byte)(numbers[32*j:]), (*[16]byte)(src[8+16*j:]), up)
			}
		}
	}
}

// Eight bytes of halves, of 2 bits and of 1 bit.
const (
	eightHalves = 0x0f0f0f0f0f0f0f0f
	eightPairs  = 0x0303030303030303
	eightBits   = 0x0101010101010101
)

// eightPairsOf are the 2 bits from low on of 4 bytes, then those above them.
func eightPairsOf(x uint32, low int) uint64 {
	const pairs = eightPairs & 0xffffffff
	return uint64(x>>low&pairs) | uint64(x>>(low+2)&pairs)<<32
}

func eightTimes(b byte) uint64 { return uint64(b) * eightBits }

func load8(p []byte) uint64           { return binary.LittleEndian.Uint64(p) }
func store8(p []byte, numbers uint64) { binary.LittleEndian.PutUint64(p, numbers) }

// fifths spreads 8 bits to the fifth bit of 8 bytes.
var fifths = func() (table [256]uint64) {
	for i := range table {
		for k := range 8 {
			table[i] |= uint64(i>>k&1) << (8*k + 4)
		}
	}
	return table
}()

// unpackNibbles takes 32 numbers: 16 low halves, 16 high ones, and the fifth bits
// of all.
func unpackNibbles(dst *[32]byte, src *[16]byte, fifth uint32, up uint64) {
	a, b := load8(src[:8]), load8(src[8:])
	store8(dst[:8], (a&eightHalves|fifths[byte(fifth)])+up)
	store8(dst[8:16], (b&eightHalves|fifths[byte(fifth>>8)])+up)
	store8(dst[16:24], (a>>4&eightHalves|fifths[byte(fifth>>16)])+up)
	store8(dst[24:], (b>>4&eightHalves|fifths[byte(fifth>>24)])+up)
}

// iq4Bytes are the values of the two halves of a byte, 128 more: of the low one
// in the low byte, of the high one in the fifth.
var iq4Bytes = func() (table [256]uint64) {
	for i := range table {
		table[i] = uint64(byte(iq4Values[i&15])^0x80) | uint64(byte(iq4Values[i>>4])^0x80)<<32
	}
	return table
}()

// unpackIQ4 takes 32 numbers as values of the table, 128 more.
func unpackIQ4(dst *[32]byte, src *[16]byte, up uint64) {
	for i := 0; i < 16; i += 4 {
		x := iq4Bytes[src[i]] | iq4Bytes[src[i+1]]<<8 | iq4Bytes[src[i+2]]<<16 | iq4Bytes[src[i+3]]<<24
		x += up
		binary.LittleEndian.PutUint32(dst[i:], uint32(x))
		binary.LittleEndian.PutUint32(dst[i+16:], uint32(x>>32))
	}
}

// noThird are the third bits of numbers of 2.
var noThird [32]byte

// unpackTwoBits takes 256 numbers of 2 bits, and a third one from third.
func unpackTwoBits(dst *[256]byte, src *[64]byte, third *[32]byte, up uint64) {
	for i := 0; i < 32; i += 8 {
		a, b, t := load8(src[i:i+8]), load8(src[32+i:40+i]), load8(third[i:i+8])
		for k := range 4 {
			store8(dst[32*k+i:32*k+i+8], (a>>(2*k)&eightPairs|t>>k&eightBits<<2)+up)
			store8(dst[128+32*k+i:136+32*k+i], (b>>(2*k)&eightPairs|t>>(4+k)&eightBits<<2)+up)
		}
	}
}

// unpackQ5K takes 256 numbers: 32 bytes of fifth bits, 128 of halves.
func unpackQ5K(dst *[256]byte, src *[160]byte, up uint64) {
	for i := 0; i < 32; i += 8 {
		fifth := load8(src[i : i+8])
		for j := range 4 {
			q := load8(src[32+32*j+i : 40+32*j+i])
			store8(dst[64*j+i:64*j+i+8], (q&eightHalves|fifth>>(2*j)&eightBits<<4)+up)
			store8(dst[64*j+32+i:64*j+40+i], (q>>4&eightHalves|fifth>>(2*j+1)&eightBits<<4)+up)
		}
	}
}
