package cuda

import (
	"os"
	"testing"

	"windrow/backend"
	"windrow/conformance/backendtest"
	"windrow/cuda/emulator"
)

// TestHybrids runs the suite of gated DeltaNet and gated attention in both arithmetics.
// On the emulator, without WINDROW_SLOW, no golden models but a small dense one
// (TestHybridGolden).
func TestHybrids(t *testing.T) {
	golden := goldenDir
	if testing.Short() || !emulator.OnGPU && os.Getenv("WINDROW_SLOW") == "" {
		golden = ""
	}
	for _, exact := range []bool{true, false} {
		name := "default"
		if exact {
			name = "exact"
		}
		t.Run(name, func(t *testing.T) {
			backendtest.RunDelta(t, golden, func(t *testing.T) backend.Backend { return openBackend(t, exact) })
		})
	}
}
