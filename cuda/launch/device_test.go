package launch

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"windrow/cuda/driver"
	"windrow/cuda/emulator"
	"windrow/cuda/kernels"
)

// testDevice opens the device that tests run on: the emulated one, or the GPU
// whose number WINDROW_CUDA_DEVICE holds. It is entered, and closed at the end
// of the test, which fails if device memory is still allocated then.
func testDevice(t testing.TB) *Device {
	t.Helper()
	if number, err := strconv.Atoi(os.Getenv("WINDROW_CUDA_DEVICE")); err == nil {
		return openDevice(t, driver.Options{}, number)
	}
	d := openDevice(t, driver.Options{Library: emulator.Driver(t)}, 0)
	if d.brief = os.Getenv("WINDROW_SLOW") == ""; d.brief {
		t.Log("left out: the larger shapes of self-tests, minutes on the emulator: set WINDROW_SLOW=1")
	}
	return d
}

func openDevice(t testing.TB, o driver.Options, number int) *Device {
	t.Helper()
	lib, err := driver.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewDevice(lib, number)
	if err != nil {
		t.Fatal(err)
	}
	d.Context.Enter()
	before := d.Context.Allocated()
	t.Cleanup(func() {
		if err := d.Take(); err != nil {
			t.Error(err)
		}
		if err := d.Stream.Synchronize(); err != nil {
			t.Error(err)
		}
		if n := d.Context.Allocated() - before; n != 0 && !t.Failed() {
			t.Errorf("%d bytes of device memory were not freed", n)
		}
		d.Context.Leave()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// try runs a self-test; kernels that fail end it by a panic.
func (s SelfTest) try(d *Device) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	return s.Run(d)
}

// TestSelfTests runs what `windrow doctor` runs on a user's GPU.
func TestSelfTests(t *testing.T) {
	for _, s := range SelfTests {
		t.Run(s.Name, func(t *testing.T) {
			if testing.Short() && !emulator.OnGPU && strings.Contains(s.Name, "experts") && !strings.Contains(s.Name, "affine4") && !strings.Contains(s.Name, "bf16") {
				t.Skip("experts in all formats on the emulator: leave -short out")
			}
			if err := s.try(testDevice(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRoomy: where launches overlap, kernels of steps of few rows ask for all of a multiprocessor's memory as shared
// memory, norms and those of prompts for what the driver likes; elsewhere all do.
func TestRoomy(t *testing.T) {
	if emulator.OnGPU {
		testRoomy(t)
		return
	}
	for _, capability := range []string{"8.0", "9.0"} {
		t.Run(capability, func(t *testing.T) {
			t.Setenv("WINDROW_EMULATED_CC", capability)
			testRoomy(t)
		})
	}
}

func testRoomy(t *testing.T) {
	d := testDevice(t)
	left := slices.Clone(roomyKernels)
	for _, c := range []struct {
		file, name string
		roomy      bool
	}{
		{"attend", "attend_fresh_128", true}, {"attend", "attend_merge_units_128", true}, {"attend_unit", "attend_unit_128_1", true},
		{"rows", "embed", true}, {"route", "route_bf16_2", true}, {"route", "route_choose_few_4", true}, {"results", "row_chunks", true},
		{"rows", "rms_norm_1", false}, {"rotate", "rotate_store", false}, {"delta", "delta_norm", false}, {"stream_bf16", "stream_bf16_1_2", false},
		{"attend_prefill", "flash_bf16_128", false}, {"route", "route_prompt_bf16", false}, {"gemm", "gated_wide", false},
		{"experts_affine4", "experts_gated_affine4", false},

		{"one_affine4_hopper", "one_affine4", true}, {"one_q4_0_hopper", "one_q4_0", false}, {"held_affine4_hopper", "held_affine4_1_2_normed", true}, {"few_affine4_hopper", "few_affine4_1", true},
		{"delta_few_hopper", "delta_few_c8", true}, {"experts_few_affine4_hopper", "experts_few_whole_affine4", true},
		{"experts_few_affine4_hopper", "experts_one_gated_affine4", true},
		{"attend_hopper", "flash_hopper", false}, {"tiled_affine4_hopper", "tiled_affine4_4_1", false}, {"wide_affine4_hopper", "wide_affine4_8", false},
	} {
		left = slices.DeleteFunc(left, func(prefix string) bool { return c.roomy && strings.HasPrefix(c.name, prefix) })
		if !slices.Contains(kernels.Files(d.Info.Major, d.Info.Minor), c.file) {
			continue
		}
		want := -1
		if c.roomy && d.Info.Major == 9 {
			want = 100
		}
		f, err := d.function(kernel{file: c.file, name: c.name})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := f.SharedCarveout(); err != nil || got != want {
			t.Errorf("%s has %d %%, want %d; error %v", c.name, got, want, err)
		}
	}
	if len(left) > 0 {
		t.Errorf("no kernel here is named %v", left)
	}
}

// TestSelfTestsChecked runs the self-tests with races between threads, bounds
// and uninitialised reads checked, in a random order of threads, on a device
// whose launches overlap.
func TestSelfTestsChecked(t *testing.T) {
	library := emulator.CheckedHopper(t)
	t.Setenv("WINDROW_EMULATED_SEED", "1") // another order than that of the plain runs
	for _, s := range SelfTests {
		t.Run(s.Name, func(t *testing.T) {
			if strings.Contains(s.Name, "experts") && os.Getenv("WINDROW_SLOW") == "" {
				t.Skip("experts in all formats, minutes on the emulator (TestExpertsChecked has one): set WINDROW_SLOW=1")
			}
			d := openDevice(t, driver.Options{Library: library}, 0)
			d.withoutHopper()
			if err := s.try(d); err != nil {
				t.Error(err)
			}
		})
	}
}

// withoutHopper keeps the device from kernels that are for compute capability 9.0
// alone.
func (d *Device) withoutHopper() {
	d.common, d.flash.prefill.tried, d.flash.long.tried, d.flash.decode.tried = true, true, true, true
	d.findBLAS()
}
