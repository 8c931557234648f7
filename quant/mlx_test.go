package quant

import (
	"slices"
	"testing"
)

// The bytes of MLX's quantiser for CPUs (mlx/backend/cpu/quantized.cpp, August
// 2026) on bf16 weights: the hash of its words, scales and biases one after the
// other. The kernel for Apple GPUs differs from it in halves (away from zero)
// and in groups without a positive weight (their largest counts as 0).
func TestAffineIsMLXs(t *testing.T) {
	w := anyWeights(1 << 17)
	for i := range 128 { // groups of one value, and of one sign
		w[i], w[128+i], w[256+i], w[384+i] = 3, -3, float32(-1-i), float32(1+i)
	}
	for i, v := range w {
		w[i] = BF16ToF32(F32ToBF16(v))
	}
	for _, c := range []struct {
		bits, group int
		want        string
	}{
		{4, 32, "5b7325cdad2f0cf853d6195721c837d2f986c689a1ddbd6223544518525f2cbd"},
		{4, 64, "f05d4e23e2a009177aca2d4d487ebf0e5cc9b126fd1be4737af2ea36d5ab59a3"},
		{4, 128, "11c30c8acb84c9d73ff5ab9e4f4a3a1358eb3de7ff7c9d29114dac09db152782"},
		{8, 32, "f670a05adbc9c31c9e26f10224e0287abd27b53f8edae340722285c08e161ff6"},
		{8, 64, "87586ab90eff37a70decf69da29a751fc99544b39b33b887b01f8962e2a08a7f"},
		{8, 128, "b64ea1ff1fbbc77699b1abd6aa5f9c6a5169a1655f58dbbac72fc951726b3263"},
	} {
		data, scales, biases := make([]byte, len(w)*c.bits/8), make([]byte, 2*len(w)/c.group), make([]byte, 2*len(w)/c.group)
		Affine(data, scales, biases, w, c.bits, c.group)
		if got := hashOf(slices.Concat(data, scales, biases)); got != c.want {
			t.Errorf("%d bits in groups of %d: hashes to %s, want MLX's %s", c.bits, c.group, got, c.want)
		}
	}
}
