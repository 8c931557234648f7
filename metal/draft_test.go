package metal

import (
	"testing"

	"windrow/conformance/backendtest"
)

// TestDraftHead: a head for drafts gives the golden logits, and stands beside the model
// without a trace, in both arithmetics.
func TestDraftHead(t *testing.T) {
	names := []string{"qwen3-5-moe-tiny", "qwen3-5-drafts"}
	if !slow {
		t.Log("left out: a golden head with experts, minutes on the emulator: set WINDROW_SLOW=1")
		names = names[1:]
	}
	for name, exact := range map[string]bool{"exact": true, "default": false} {
		t.Run(name, func(t *testing.T) {
			if exact && testing.Short() && !slow {
				t.Skip("in exact arithmetic on the emulator: leave -short out")
			}
			b := openBackend(t, exact)
			backendtest.RunHead(t, goldenDir, b, names...)
			backendtest.RunHeadBeside(t, b, backendtest.Source(t, goldenDir, names[0]), 40)
		})
	}
}
