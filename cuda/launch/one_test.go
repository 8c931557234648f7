package launch

import (
	"testing"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/cuda/driver"
	"windrow/cuda/emulator"
)

// TestOne compares projections of one row by kernels/one.cuh with those of the row
// among others, on the emulated device checked, whose launches overlap.
func TestOne(t *testing.T) {
	t.Setenv("WINDROW_EMULATED_CC", "9.0")
	library := emulator.Library(t, true, "one_affine4_hopper", "one_q4_k_hopper", "few_affine4_hopper") // and rows among others
	for _, f := range projectFormats {
		if f.dt != backend.Affine4 && f.dt != backend.Q4_K || f.group == 32 {
			continue
		}
		t.Run(vectors.Name(f.dt, f.group), func(t *testing.T) {
			d := openDevice(t, driver.Options{Library: library}, 0)
			d.brief = true
			for _, check := range []func(*Device, backend.DType, int) error{checkOne, checkNormed, checkRowBits} {
				if err := check(d, f.dt, f.group); err != nil {
					t.Error(err)
				}
			}
			if !d.Loaded("_hopper") {
				t.Error("no kernel of one.cuh ran")
			}
		})
	}
}
