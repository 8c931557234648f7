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
