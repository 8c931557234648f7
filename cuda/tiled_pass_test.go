package cuda

import (
	"testing"

	"windrow/backend"
	"windrow/backend/vectors"
)

// TestTiledPass runs forwards whose projections tiled.cuh makes, checked: among
// the kernels before and after, which may run at the same time. They have the bits
// of stream.cuh's.
func TestTiledPass(t *testing.T) {
	library := checkedHopper(t)
	forward := func(forced tuning) []float32 {
		c := newVariantCase(t, library, false, backend.Affine4)
		c.b.device.tuning = forced
		return c.logits(12, 0, 2)
	}
	want := forward(tuning{stream: true})
	for _, form := range []tiledForm{{4, 1, 1, 1}, {4, 1, 1, 4}} {
		if err := vectors.Equal(forward(tuning{tiled: form}), want); err != nil {
			t.Errorf("%v: %v", form, err)
		}
	}
}
