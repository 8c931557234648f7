package metal

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"windrow/backend"
	"windrow/conformance/backendtest"
	"windrow/conformance/decodertest"
)

// TestDelta runs the suite's part for hybrids, in both arithmetics.
func TestDelta(t *testing.T) {
	golden := goldenDir
	if !slow {
		golden = "" // TestGoldenHybrids has the small ones
	}
	for name, exact := range map[string]bool{"default": false, "exact": true} {
		t.Run(name, func(t *testing.T) {
			if exact && testing.Short() {
				t.Skip("the suite in exact arithmetic on the emulator: leave -short out")
			}
			backendtest.RunDelta(t, golden, func(t *testing.T) backend.Backend { return openBackend(t, exact) })
		})
	}
}

// TestHybridWalks: whatever was drafted and rejected, gone back from, marked, forked, run of
// other text, or copied out and in, a row of a decode forward has the same bits.
func TestHybridWalks(t *testing.T) {
	steps := 120
	if testing.Short() {
		steps = 30
	}
	for _, c := range []struct {
		exact bool
		kv    backend.KVType
	}{{true, backend.KVF32}, {false, backend.KVBF16}, {false, backend.KVInt8}} {
		t.Run(fmt.Sprintf("exact=%t, kv %v", c.exact, c.kv), func(t *testing.T) {
			if testing.Short() && c.kv != backend.KVBF16 {
				t.Skip("other keys and values than bf16: leave -short out")
			}
			backendtest.RunWalk(t, openBackend(t, c.exact), backendtest.Source(t, goldenDir, "qwen3-5-text-tiny"), c.kv, rand.New(rand.NewPCG(3, 9)), steps)
		})
	}
}

// TestHybridAnswers: verified gives the trained hybrid's answers that ar gives, which are the
// reference's in exact arithmetic.
func TestHybridAnswers(t *testing.T) {
	if testing.Short() {
		t.Skip("many seconds on the emulator: leave -short out")
	}
	decodertest.RunHybrid(t, goldenDir, openBackend(t, true), 1)
	if slow {
		decodertest.RunHybrid(t, goldenDir, openBackend(t, false), 2)
	}
}

// TestGoldenHybrids compares hybrids with their golden logits, in forwards of several
// lengths.
func TestGoldenHybrids(t *testing.T) {
	t.Run("qwen3-5-text-tiny", func(t *testing.T) { goldenChunks(t, "qwen3-5-text-tiny", 0, 16, 7) })
	t.Run("qwen3-next-tiny", func(t *testing.T) { goldenChunks(t, "qwen3-next-tiny", 0, 16, 7) })
}
