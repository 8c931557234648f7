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
	scales := map[backend.DType][]int{
		backend.Q8_0: {0}, backend.Q4_0: {0}, backend.Q4_K: {0, 2}, backend.Q6_K: {208},
		backend.Q4_1: {0, 2}, backend.Q5_0: {0}, backend.Q5_1: {0, 2}, backend.Q2_K: {80, 82}, backend.Q3_K: {108}, backend.Q5_K: {0, 2},
		backend.IQ4_NL: {0}, backend.IQ4_XS: {0},
	}[d]
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
		{backend.Q4_1, 10, "4b50ba8dd092d455dd13a32c9d7830dbe8d67c0d6da6a1834a0caf612920466b"},
		{backend.Q5_0, 11, "44950e8176fc8689d81719b399186eca8bce7eb5af9f98ff98e8986845aa7ae9"},
		{backend.Q5_1, 12, "ef49a66d909fdb3bd9c3c5252ec50856022690e41a053a096424c5c5415c6d0b"},
		{backend.Q2_K, 13, "dc53a3f3574bfbd3528a471c9aee14e0147a88a29cef605c4bb0786a1c866792"},
		{backend.Q3_K, 14, "52c5dd51bdc16324512a8e616635358edbd1858d8fd88923d7cb61bf883cd0b7"},
		{backend.Q5_K, 15, "32ef6ed62a842c43f85cf969db60012db0a505b215eb7f00d140071c21c02572"},
		{backend.IQ4_NL, 16, "bef4bbcc45a1fb75519bdfe238066507d34f7bf46b1fdc92ec473fbaeb35ab80"},
		{backend.IQ4_XS, 17, "be84af14e9c13976aa3213a4932a2e6f0960b22d2fb963e7e15317bb569d6e71"},
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
		backend.Q4_1: "6b292ad72aa048a8c61e8d7a856700a560f5816ce1cedc912875226cfb2a2a31",
		backend.Q5_0: "190db92d84e3967658acacf08b34a5f4df45d9c47538f260abdae648cda6f44e",
		backend.Q5_1: "77b1384eb34205688ae5fc1d1d2029d6d82015444e7601a7ed64411b0f7b28c0",
	} {
		data := make([]byte, len(w)/dtype.BlockSize()*dtype.BlockBytes())
		Blocks(data, dtype, w)
		if got := hashOf(data); got != want {
			t.Errorf("%v: blocks hash to %s, want ggml's %s", dtype, got, want)
		}
	}
}
