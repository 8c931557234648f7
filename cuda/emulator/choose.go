package emulator

import (
	"os"
	"testing"
)

// OnGPU reports whether tests run on a GPU, whose number WINDROW_CUDA_DEVICE has: the
// emulator takes minutes for what a GPU does at once.
var OnGPU = os.Getenv("WINDROW_CUDA_DEVICE") != ""

// Driver is the driver's library that tests open: on a GPU the machine's own, "";
// else the emulated one, unchecked, with the kernels for compute capability 9.0 alone
// where WINDROW_EMULATED_CC asks for such a device.
func Driver(t testing.TB) string {
	t.Helper()
	switch {
	case OnGPU:
		return ""
	case os.Getenv("WINDROW_EMULATED_CC") == "9.0":
		return Library(t, false, "*_hopper")
	}
	return Library(t, false)
}

// CheckedHopper is the emulated driver, checked, with all kernels, for a device of
// compute capability 9.0, whose launches overlap. A test of it is slow.
func CheckedHopper(t *testing.T) string {
	t.Helper()
	if os.Getenv("WINDROW_SLOW") == "" && os.Getenv("CI") == "" {
		t.Skip("minutes on the emulator: set WINDROW_SLOW=1")
	}
	t.Setenv("WINDROW_EMULATED_CC", "9.0")
	return Library(t, true, "*_hopper")
}
