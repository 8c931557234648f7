package cuda

import (
	"math/rand/v2"
	"os"
	"testing"

	"windrow/backend"
	"windrow/conformance/backendtest"
	"windrow/conformance/decodertest"
	"windrow/cuda/emulator"
)

// hybridModels are the golden models whose operations are all here, and small.
var hybridModels = []string{"qwen3-5-text-tiny"}

// TestHybrids runs the suite of gated DeltaNet and gated attention in both arithmetics. On
// the emulator, without WINDROW_SLOW, of the golden models only a small dense one.
func TestHybrids(t *testing.T) {
	golden := goldenDir
	if testing.Short() {
		golden = ""
	}
	models := hybridModels
	if emulator.OnGPU || os.Getenv("WINDROW_SLOW") != "" {
		models = nil
	} else {
		t.Log("left out: the golden models with experts, minutes on the emulator: set WINDROW_SLOW=1")
	}
	for _, exact := range []bool{true, false} {
		name := "default"
		if exact {
			name = "exact"
		}
		t.Run(name, func(t *testing.T) {
			if exact && testing.Short() && !emulator.OnGPU {
				t.Skip("the suite in exact arithmetic on the emulator: leave -short out")
			}
			backendtest.RunDelta(t, golden, func(t *testing.T) backend.Backend { return openBackend(t, exact) }, models...)
		})
	}
}

// TestHybridWalks: whatever was drafted and rejected, gone back from, marked, forked, or
// run of other text, a row of a decode pass has the same bits, and a pass that shares its
// graph reads its own states.
func TestHybridWalks(t *testing.T) {
	for _, c := range []struct {
		exact bool
		kv    backend.KVType
	}{{true, backend.KVF32}, {false, backend.KVBF16}} {
		b := openBackend(t, c.exact)
		defer b.Close()
		steps := 120
		if testing.Short() {
			steps = 30
		}
		backendtest.RunWalk(t, b, backendtest.Source(t, goldenDir, hybridModels[0]), c.kv, rand.New(rand.NewPCG(3, 9)), steps)
	}
}

// TestHybridAnswers: a trained hybrid gives the reference's answers, and verified's are ar's
// whatever the window.
func TestHybridAnswers(t *testing.T) {
	if testing.Short() || !emulator.OnGPU && os.Getenv("WINDROW_SLOW") == "" {
		t.Skip("minutes on the emulator: set WINDROW_SLOW=1")
	}
	for _, exact := range []bool{true, false} {
		b := openBackend(t, exact)
		defer b.Close()
		decodertest.RunHybrid(t, goldenDir, b, 2)
	}
}
