package cuda

import (
	"testing"

	"windrow/backend"
	"windrow/conformance/backendtest"
	"windrow/cuda/emulator"
)

// TestDraftHead: a head for drafts gives the golden logits, and stands beside the model
// without a trace, in both arithmetics.
func TestDraftHead(t *testing.T) {
	names := []string{"qwen3-5-moe-tiny", "qwen3-5-drafts"}
	if !emulator.OnGPU && testing.Short() {
		names = names[1:]
	}
	draftHead(t, func(t *testing.T, exact bool) backend.Backend {
		b := openBackend(t, exact)
		t.Cleanup(func() { b.Close() })
		return b
	}, names...)
}

// TestGroupDraftHead: likewise on several GPUs.
func TestGroupDraftHead(t *testing.T) {
	if testing.Short() && !slowTier() {
		t.Skip("two emulated GPUs: leave -short out")
	}
	draftHead(t, func(t *testing.T, exact bool) backend.Backend { return openGroup(t, exact) }, "qwen3-5-moe-tiny")
}

func draftHead(t *testing.T, open func(t *testing.T, exact bool) backend.Backend, names ...string) {
	for name, exact := range map[string]bool{"exact": true, "default": false} {
		t.Run(name, func(t *testing.T) {
			if exact && testing.Short() && !emulator.OnGPU {
				t.Skip("in exact arithmetic on the emulator: leave -short out")
			}
			b := open(t, exact)
			if _, grouped := b.(*Group); exact && grouped && !slowTier() {
				t.Skip("two GPUs in exact arithmetic, minutes on the emulator: set WINDROW_SLOW=1")
			}
			backendtest.RunHead(t, goldenDir, b, names...)
			backendtest.RunHeadBeside(t, b, backendtest.Source(t, goldenDir, names[0]), 60)
		})
	}
}
