package cuda

import (
	"testing"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/cuda/emulator"
	"windrow/cuda/launch"
)

// TestTiledPass runs forwards whose projections tiled.cuh makes, checked: among
// the kernels before and after, which may run at the same time. They have the bits
// of stream.cuh's.
func TestTiledPass(t *testing.T) {
	library := emulator.CheckedHopper(t)
	forward := func(forced launch.Tuning) []float32 {
		c := newVariantCase(t, library, false, backend.Affine4, 64)
		c.b.device.Tuning = forced
		return c.logits(12, 0, 2)
	}
	want := forward(launch.Tuning{Stream: true})
	for _, form := range []launch.TiledForm{{Tiles: 4, Teams: 1, Wide: 1, Cluster: 1}, {Tiles: 4, Teams: 1, Wide: 1, Cluster: 4}} {
		if err := vectors.Equal(forward(launch.Tuning{Tiled: form}), want); err != nil {
			t.Errorf("%v: %v", form, err)
		}
	}
}
