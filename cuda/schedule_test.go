package cuda

import (
	"testing"

	"windrow/backend"
	"windrow/conformance/scheduletest"
	"windrow/cuda/emulator"
	"windrow/cuda/launch"
)

// TestSchedule: what a scheduler promises of answers holds on the device, and where rows
// of prompts are alike: on compute capability 9.0, and elsewhere by gemm.cu.
func TestSchedule(t *testing.T) { scheduled(t, scheduletest.Run) }

// TestHybridSessions: conversations with a hybrid are kept on disk, and go on from there.
func TestHybridSessions(t *testing.T) { scheduled(t, scheduletest.RunHybrid) }

func scheduled(t *testing.T, test func(t *testing.T, b backend.Backend)) {
	t.Helper()
	if testing.Short() && !emulator.OnGPU {
		t.Skip("a scheduler on the emulator: leave -short out")
	}
	for _, own := range []bool{false, true} {
		name := map[bool]string{false: "as chosen", true: "prompts alike"}[own]
		t.Run(name, func(t *testing.T) {
			b := openBackend(t, false).(*Backend)
			defer b.Close()
			if own && !hopper(b.device) {
				b.device.UseRoute(launch.RouteOwn)
				b.setPromptRows()
			}
			test(t, b)
		})
	}
}
