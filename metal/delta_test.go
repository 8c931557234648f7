package metal

import (
	"testing"

	"windrow/backend"
	"windrow/conformance/backendtest"
)

// TestDelta runs the suite's part for hybrids.
func TestDelta(t *testing.T) {
	golden := goldenDir
	if !slow {
		golden = "" // TestGoldenHybrids has the small ones
	}
	backendtest.RunDelta(t, golden, func(t *testing.T) backend.Backend { return openBackend(t, true) })
}

// TestGoldenHybrids compares hybrids with their golden logits, in forwards of several
// lengths.
func TestGoldenHybrids(t *testing.T) {
	t.Run("qwen3-5-text-tiny", func(t *testing.T) { goldenChunks(t, "qwen3-5-text-tiny", 0, 16, 7) })
	t.Run("qwen3-next-tiny", func(t *testing.T) { goldenChunks(t, "qwen3-next-tiny", 0, 16, 7) })
}
