package cuda

import (
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"windrow/backend/vectors"
	"windrow/cuda/driver"
	"windrow/cuda/emulator"
	"windrow/cuda/kernels"
)

// emulatedLibrary is the emulated driver, unchecked, with the kernels for compute
// capability 9.0 alone where WINDROW_EMULATED_CC asks for such a device.
func emulatedLibrary(t testing.TB) string {
	t.Helper()
	if os.Getenv("WINDROW_EMULATED_CC") == "9.0" {
		return emulator.Library(t, false, "*_hopper")
	}
	return emulator.Library(t, false)
}

// hopperFiles are patterns of the files of kernels that are tested: of tiled.cuh,
// whose files take the most seconds to compile and to run, without WINDROW_SLOW
// one for each number of weights that share a scale, 64, 32 and 16.
func hopperFiles() []string {
	if os.Getenv("WINDROW_SLOW") != "" {
		return []string{"*_hopper"}
	}
	return []string{"gemm_hopper", "attend_hopper", "wide_*_hopper", "tiled_affine4_hopper", "tiled_q4_k_hopper", "tiled_q6_k_hopper"}
}

// hopperKernels are those of the files that match.
func hopperKernels(t *testing.T, patterns []string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, file := range kernels.Files(9, 0) {
		if !strings.HasSuffix(file, "_hopper") || !matches(patterns, file) {
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

func matches(patterns []string, file string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { ok, _ := path.Match(p, file); return ok })
}

// hopperSelfTests are those of kernels for compute capability 9.0 alone, each with
// the file of its kernels.
func hopperSelfTests() map[string]string {
	tests := map[string]string{
		"prefill attention by wgmma":           "attend_hopper",
		"gemm: every tile, odd rows and tails": "gemm_hopper",
		"gemm: gated":                          "gemm_hopper",
		"gemm: more tiles than blocks":         "gemm_hopper",
	}
	for _, p := range projectFormats {
		f, _ := formatOf(p.dt, p.group)
		for _, kind := range []string{"tiled", "wide"} {
			tests[kind+"/"+vectors.Name(p.dt, p.group)] = strings.Replace(f.file, "stream", kind, 1) + "_hopper"
		}
	}
	return tests
}

// TestSelfTestsHopper runs the self-tests of the kernels that are for compute
// capability 9.0 alone, in small shapes, checked like those of the others: each of
// these kernels runs.
func TestSelfTestsHopper(t *testing.T) {
	if os.Getenv("WINDROW_SLOW") == "" && os.Getenv("CI") == "" {
		t.Skip("slow: set WINDROW_SLOW")
	}
	files, tests := hopperFiles(), hopperSelfTests()
	library := emulator.Library(t, true, files...)
	t.Setenv("WINDROW_EMULATED_CC", "9.0")
	t.Setenv("WINDROW_EMULATED_SMS", "8") // room for all parts of a product by wide.cuh
	left := hopperKernels(t, files)
	for i, s := range selfTests {
		file, ok := tests[s.name]
		if !ok {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			if !matches(files, file) {
				t.Skip("slow: set WINDROW_SLOW")
			}
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
	}
	if len(left) > 0 && !t.Failed() {
		t.Errorf("not run: %v", slices.Sorted(maps.Keys(left)))
	}
}
