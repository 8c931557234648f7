package cuda

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/conformance/backendtest"
	"windrow/conformance/decodertest"
	"windrow/cuda/emulator"
	"windrow/model"
	"windrow/synthetic"
)

// groupGolden compares a golden model on several GPUs, in forwards of those lengths, with
// its float32 logits, as closely as on one; in decode passes all lengths give equal bits.
func groupGolden(t *testing.T, devices int, name string, chunks ...int) {
	t.Helper()
	m, err := model.Load(openGroupOf(t, true, devices), backendtest.Source(t, goldenDir, name))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	data, err := os.ReadFile(filepath.Join(goldenDir, name, "golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	file, err := checkpoint.ReadSafetensors(data)
	if err != nil {
		t.Fatal(err)
	}
	var first []model.Deviation // in decode passes
	for _, chunk := range chunks {
		deviations, err := m.Validate(context.Background(), file, model.ValidateOptions{KV: backend.KVF32, Chunk: chunk})
		if err != nil {
			t.Fatal(err)
		}
		if len(deviations) == 0 {
			t.Fatal("the golden file has no entries")
		}
		for i, d := range deviations {
			if !(d.RelativeNorm <= 5e-6) || d.ArgmaxEqual != 0 && d.ArgmaxEqual != d.Rows {
				t.Errorf("%s on %d GPUs, chunk %d: %s: relative norm %.3g, argmax equal in %d of %d rows", name, devices, chunk, d.Entry, d.RelativeNorm, d.ArgmaxEqual, d.Rows)
			}
			if chunk > 0 && chunk <= invariantRows && first != nil && d != first[i] {
				t.Errorf("%s on %d GPUs, chunk %d: %+v, in another %+v", name, devices, chunk, d, first[i])
			}
			t.Logf("%s on %d GPUs, chunk %d: %s: relative norm %.3g", name, devices, chunk, d.Entry, d.RelativeNorm)
		}
		if first == nil && chunk > 0 && chunk <= invariantRows {
			first = deviations
		}
	}
}

// family is a small model of random weights of an architecture, whose first layer is a
// DeltaNet where it has some; its key heads and KV heads are as many.
func family(architecture string, heads int, tiled bool) *checkpoint.Config {
	c := small(false)
	c.Architecture, c.Heads, c.KVHeads, c.IntermediateSize = architecture, 2*heads, heads, heads*64
	if architecture != "qwen3_5_text" {
		c.Experts = &checkpoint.Experts{Count: 8, PerToken: 3, InnerSize: heads * 64, Renormalise: true, Step: 1}
	}
	if architecture != "qwen3_moe" {
		c.AttentionGate, c.Rope.HeadDim = true, 16
		c.Delta = &checkpoint.DeltaNet{KeyHeads: heads, ValueHeads: 2 * heads, KeyDim: 32, ValueDim: 64, Conv: 4, Layers: []bool{true, false}, Tiled: tiled}
		if c.Experts != nil {
			c.Experts.SharedInnerSize = heads * 128
		}
	}
	return c
}

// TestGroupFamilies compares forwards of small models on several GPUs with one, in every
// form in which heads lie.
func TestGroupFamilies(t *testing.T) {
	for _, c := range []struct {
		architecture string
		heads        int
		tiled        bool
		dt           backend.DType
		exact        bool
		devices      int
	}{
		{"qwen3_moe", 2, false, backend.Affine4, false, 2},
		{"qwen3_next", 4, false, backend.BF16, true, 4},
		{"qwen3_5_text", 3, true, backend.Q8_0, false, 3},
		{"qwen3_5_moe_text", 2, true, backend.BF16, true, 2},
		{"qwen3_5_moe_text", 4, false, backend.Affine4, false, 2},
	} {
		t.Run(fmt.Sprintf("%s tiled=%t %v exact=%t on %d", c.architecture, c.tiled, c.dt, c.exact, c.devices), func(t *testing.T) {
			one := openBackend(t, c.exact)
			defer one.Close()
			tol := 2e-2
			if c.exact {
				tol = 1e-2
			}
			groupForwards(t, openGroupOf(t, c.exact, c.devices), one, synthetic.RandomSource(family(c.architecture, c.heads, c.tiled), c.dt, 6), tol)
		})
	}
}

// TestGroupVerified: verified's tokens are ar's, of a hybrid with experts in default
// arithmetic.
func TestGroupVerified(t *testing.T) {
	m, err := model.Load(openGroup(t, false), synthetic.RandomSource(family("qwen3_next", 2, false), backend.Affine4, 5), model.Barring(1200, 5))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	verifiedIsAR(t, m)
}

// slowTier reports whether tests run that take minutes on the emulator.
func slowTier() bool { return emulator.OnGPU || os.Getenv("WINDROW_SLOW") != "" }

// TestGroupHybrids: mixtures and hybrids on two GPUs by their golden logits.
func TestGroupHybrids(t *testing.T) {
	if testing.Short() {
		t.Skip("leave -short out")
	}
	models, chunks := []string{"qwen3-next-tiny"}, []int{0, 16}
	if slowTier() {
		models = []string{"qwen3-moe-tiny", "qwen3-next-tiny", "qwen3-5-text-tiny", "qwen3-next-long", "qwen3-5-moe-tiny", "tiny-gsm-next"}
		chunks = []int{0, 1, 7, 16}
	} else {
		t.Log("left out: golden mixtures and hybrids on two GPUs but one, minutes on the emulator: set WINDROW_SLOW=1")
	}
	for _, name := range models {
		t.Run(name, func(t *testing.T) { groupGolden(t, 2, name, chunks...) })
	}
}

// TestGroupWalks: states by heads on two GPUs are what they are on one, whatever was
// drafted, rejected, gone back from, marked, or forked.
func TestGroupWalks(t *testing.T) {
	if testing.Short() {
		t.Skip("leave -short out")
	}
	steps := 40
	if slowTier() {
		steps = 150
	}
	for _, exact := range []bool{true, false} {
		t.Run(fmt.Sprintf("exact=%t", exact), func(t *testing.T) {
			w := newHybridWalk(t, openGroup(t, exact), backend.KVBF16, 70)
			w.random(rand.New(rand.NewPCG(7, 9)), steps)
		})
		if !slowTier() {
			break
		}
	}
}

// TestGroupHybridAnswers: a trained hybrid gives the reference's answers, and verified's
// are ar's.
func TestGroupHybridAnswers(t *testing.T) {
	if testing.Short() || !slowTier() {
		t.Skip("minutes on the emulator: set WINDROW_SLOW=1")
	}
	for _, exact := range []bool{true, false} {
		decodertest.RunHybrid(t, goldenDir, openGroup(t, exact), 2)
	}
}
