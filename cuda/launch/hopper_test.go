package launch

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"windrow/cuda/driver"
	"windrow/cuda/emulator"
	"windrow/cuda/kernels"
)

// hopperKernels are those for compute capability 9.0 alone.
func hopperKernels(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, file := range kernels.Files(9, 0) {
		if !strings.HasSuffix(file, "_hopper") {
			continue
		}
		names, err := kernels.Names(file, 9, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			all[name] = true
		}
	}
	return all
}

// isHopperSelfTest names those of kernels for compute capability 9.0 alone.
func isHopperSelfTest(name string) bool {
	switch name {
	case "few rows of gated DeltaNet", "prefill attention by wgmma", "prefill attention of heads of 256 by wgmma", "decode attention by wgmma", "gemm: every tile, odd rows and tails", "gemm: gated", "gemm: more tiles than blocks", "sliced":
		return true
	}
	return strings.HasPrefix(name, "tiled/") || strings.HasPrefix(name, "wide/") || strings.HasPrefix(name, "one/") || strings.HasPrefix(name, "few/") || strings.HasPrefix(name, "held/") || strings.HasPrefix(name, "few experts/") || strings.HasPrefix(name, "grouped experts/")
}

// TestSelfTestsHopper runs the self-tests of the kernels that are for compute
// capability 9.0 alone, in small shapes, checked like those of the others: each of
// these kernels runs.
func TestSelfTestsHopper(t *testing.T) {
	library := emulator.CheckedHopper(t)
	t.Setenv("WINDROW_EMULATED_SMS", "8") // room for all parts of a product by wide.cuh
	left, skipped := hopperKernels(t), false
	for i, s := range SelfTests {
		if !isHopperSelfTest(s.Name) {
			continue
		}
		ran := false
		t.Run(s.Name, func(t *testing.T) {
			ran = true
			t.Setenv("WINDROW_EMULATED_SEED", strconv.Itoa(i%2)) // 0: copies arrive as late as they can
			d := openDevice(t, driver.Options{Library: library}, 0)
			d.brief = true
			if err := s.try(d); err != nil {
				t.Error(err)
			}
			for e := range d.functions {
				delete(left, e.name)
			}
		})
		skipped = skipped || !ran // by -run
	}
	if len(left) > 0 && !skipped && !t.Failed() {
		t.Errorf("not run: %v", slices.Sorted(maps.Keys(left)))
	}
}
