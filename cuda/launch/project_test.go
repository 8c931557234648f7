package launch

import (
	"testing"

	"windrow/backend"
)

// TestProjectionsOfSmallDevices runs the projections as on a device that gives
// a block 99 KiB (compute capability 8.6): eight warps instead of sixteen.
func TestProjectionsOfSmallDevices(t *testing.T) {
	d := testDevice(t)
	d.Info.SharedPerBlock = 99 << 10
	eight := 0
	for _, f := range projectFormats {
		packed, ok := formatOf(f.dt, f.group)
		if !ok || d.streamWarps(packed) != 8 {
			continue // as on larger devices
		}
		eight++
		for _, check := range []func(*Device, backend.DType, int) error{checkProjections, checkRowBits, checkNormed} {
			if err := check(d, f.dt, f.group); err != nil {
				t.Errorf("%v in groups of %d: %v", f.dt, f.group, err)
			}
		}
	}
	if eight != 5 { // affine8 in three groups, q8_0, q6_k
		t.Errorf("%d formats with eight warps, want 5", eight)
	}
}
