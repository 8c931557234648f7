package measure

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"windrow/cuda/driver"
)

// Slab is memory that weights are cut from, large against every L2.
type Slab struct {
	Data  driver.Ptr
	Bytes int
	at    int // the next weight
}

// Noise is so many bytes at random, under 2 as bf16 numbers: 16 MiB at most, which
// memory repeats.
func Noise(r *rand.Rand, bytes int) []byte {
	data := make([]byte, min(bytes, 16<<20))
	for i := 0; i < len(data); i += 8 {
		binary.LittleEndian.PutUint64(data[i:], r.Uint64()&0x3fff3fff3fff3fff)
	}
	return data
}

// NormalsBF16 fills data with normal numbers of that deviation, cut to bf16.
func NormalsBF16(data []byte, r *rand.Rand, deviation float64) {
	for i := 0; i+1 < len(data); i += 2 {
		binary.LittleEndian.PutUint16(data[i:], uint16(math.Float32bits(float32(deviation*r.NormFloat64()))>>16))
	}
}

// Slab is one of that many bytes, which repeat data.
func (m Meter[D]) Slab(bytes int, data []byte) *Slab {
	m.Helper()
	return &Slab{Data: m.Filled(bytes, data), Bytes: bytes}
}

// Cut is the next n bytes, from the beginning again where the slab ends.
func (s *Slab) Cut(n int) driver.Ptr {
	if s.at+n > s.Bytes {
		s.at = 0
	}
	at := s.Data + driver.Ptr(s.at)
	s.at += (n + 255) &^ 255
	return at
}
