package metal

import (
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
