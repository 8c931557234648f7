package cpu

import (
	"strings"
	"testing"

	"windrow/cpu/kernels"
)

// TestAccelerateUnasked: where there is no Accelerate, nobody hears of it, with
// whichever kernels.
func TestAccelerateUnasked(t *testing.T) {
	for _, name := range KernelTables() {
		k, err := kernels.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		c := &blasChooser{faster: measured, open: func() (sgemm, error) { return nil, errNoAccelerate }}
		b, err := newBackend(k, false, 1, c, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		if note := b.Features().Description; strings.Contains(note, "Accelerate") {
			t.Errorf("%s: %s", name, note)
		}
		b.Close()
	}
}
