package metal

import (
	"fmt"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/conformance/backendtest"
	"windrow/model"
	"windrow/rope"
	"windrow/synthetic"
)

// TestPrompts: rows of prompts have the same bits however prompts are cut, and beside
// others, by windows and by the kernels of many rows.
func TestPrompts(t *testing.T) {
	dense := checkpoint.Config{
		Architecture: "qwen3", HiddenSize: 64, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 64, IntermediateSize: 2560,
		VocabSize: 600, RMSNormEps: 1e-6, MaxPositions: 512, TieEmbeddings: true,
		Rope: rope.Config{Type: rope.Default, HeadDim: 64, Theta: 10000}, MaskTokenID: -1, DType: "bfloat16",
	}
	experts := dense
	experts.Architecture, experts.IntermediateSize = "qwen3_moe", 256
	experts.Experts = &checkpoint.Experts{Count: 6, PerToken: 2, InnerSize: 128, Renormalise: true, Step: 1}
	for name, c := range map[string]*checkpoint.Config{"dense": &dense, "experts": &experts} {
		for i, dt := range []backend.DType{backend.BF16, backend.Affine4} {
			if testing.Short() && (c == &dense) == (dt == backend.BF16) {
				t.Logf("left out: %s, %v on the emulator: leave -short out", name, dt)
				continue
			}
			kv := []backend.KVType{backend.KVBF16, backend.KVInt8}[i]
			t.Run(fmt.Sprintf("%s %v, kv %v", name, dt, kv), func(t *testing.T) {
				b := openBackend(t, false)
				defer b.Close()
				m, err := model.Load(b, synthetic.RandomSource(c, dt, 9))
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				if !backendtest.RunPrompts(t, m, kv, 100) {
					t.Error("cut so, other rows have these bits, too: nothing is shown")
				}
			})
		}
	}
}
