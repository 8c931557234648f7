package quant

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"testing"

	"windrow/backend"
)

// The hashes here are of what ggml (llama.cpp 0.5.0) makes of the same input:
// to_float of ggml_get_type_traits, and ggml_quantize_chunk without weights of
// importance.

// splitMix is a generator of 64-bit numbers (Steele, Lea, Flood: Fast
// Splittable Pseudorandom Number Generators, 2014).
type splitMix uint64

func (s *splitMix) next() uint64 {
	*s += 0x9e3779b97f4a7c15
	z := uint64(*s)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// anyBlocks are n blocks of random bytes; scales are kept finite.
func anyBlocks(d backend.DType, seed splitMix, n int) []byte {
	b := make([]byte, n*d.BlockBytes())
	for i := range b {
		b[i] = byte(seed.next())
	}
	scales := map[backend.DType][]int{backend.Q8_0: {0}, backend.Q4_0: {0}, backend.Q4_K: {0, 2}, backend.Q6_K: {208}}[d]
	for block := b; len(block) > 0; block = block[d.BlockBytes():] {
		for _, at := range scales {
			if block[at+1]&0x7c == 0x7c {
				block[at+1] &^= 0x40
			}
		}
	}
	return b
}

// anyWeights are n weights of magnitudes from 2^−30 to 2^9 by blocks of 32,
// with blocks of zeros, of whole numbers and of halves: ties, and scales that
// half floats round or cannot hold.
func anyWeights(n int) []float32 {
	seed := splitMix(99)
	w := make([]float32, n)
	for i := range w {
		block := i / 32
		u := float32(int32(seed.next()>>40)-1<<23) / (1 << 23)
		w[i] = u * u * u * float32(math.Ldexp(1, block%40-30))
		switch block % 41 {
		case 40:
			w[i] = 0
		case 39:
			w[i] = float32(int32(seed.next()%255) - 127)
		case 38:
			w[i] = float32(int32(seed.next()%31)-15) / 2
		}
	}
	return w
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func TestDecodersAreGGMLs(t *testing.T) {
	const weights = 1 << 16
	for _, c := range []struct {
		dtype backend.DType
		seed  splitMix
		want  string
	}{
		{backend.Q8_0, 6, "98d122ad060bb28221a87aab9517efde00dceafcb720edc70b931eaa29e73fd4"},
		{backend.Q4_0, 7, "394f64aecb999247025c30b81fe25600c84b09aad10094218f3d08223e9e6fad"},
		{backend.Q4_K, 8, "f15e90fd387e9566c5cad9e3da32265825c8649499cf84f69894f076fa4de036"},
		{backend.Q6_K, 9, "fab964c59d321273996d8456f232b152b13a4c1da7e3f0fe59781177dbf746ea"},
	} {
		x := backend.Tensor{Name: "x", DType: c.dtype, Shape: []int{1, weights}, Data: anyBlocks(c.dtype, c.seed, weights/c.dtype.BlockSize())}
		row, bits := make([]float32, weights), make([]byte, 4*weights)
		Row(row, &x, 0)
		Blocks(bits, backend.F32, row)
		if got := hashOf(bits); got != c.want {
			t.Errorf("%v: weights hash to %s, want ggml's %s", c.dtype, got, c.want)
		}
	}
}

func TestEncodersAreGGMLs(t *testing.T) {
	w := anyWeights(1 << 17)
	for dtype, want := range map[backend.DType]string{
		backend.Q8_0: "1488876b15b7d4a480e93dd4f1ea7ab421a5ac532ae60646e1cfd0842e37d5fb",
		backend.Q4_0: "07a4522055552616bbd48a43bbd770e9717bba5ebdf55f6c12a5d3b2163bc874",
	} {
		data := make([]byte, len(w)/dtype.BlockSize()*dtype.BlockBytes())
		Blocks(data, dtype, w)
		if got := hashOf(data); got != want {
			t.Errorf("%v: blocks hash to %s, want ggml's %s", dtype, got, want)
		}
	}
}
