package cuda

import (
	"os"
	"testing"

	"windrow/backend"
	"windrow/conformance/backendtest"
	"windrow/cuda/emulator"
)

// TestExperts runs the suite's part for mixtures of experts in both arithmetics.
func TestExperts(t *testing.T) {
	golden := goldenDir
	if testing.Short() && !emulator.OnGPU && os.Getenv("WINDROW_SLOW") == "" {
		golden = ""
	}
	for name, exact := range map[string]bool{"exact": true, "default": false} {
		t.Run(name, func(t *testing.T) {
			backendtest.RunExperts(t, golden, func(t *testing.T) backend.Backend { return openBackend(t, exact) })
		})
	}
}
