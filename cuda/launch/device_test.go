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
	for _, capability := range []string{"8.0", "9.0"} {
		t.Run(capability, func(t *testing.T) {
			switch {
			case emulator.OnGPU:
			case capability == "9.0" && os.Getenv("WINDROW_SLOW") == "" && os.Getenv("CI") == "":
				t.Skip("all kernels for compute capability 9.0 are compiled for the emulator: set WINDROW_SLOW=1")
			default:
				t.Setenv("WINDROW_EMULATED_CC", capability)
			}
			d := testDevice(t)
			for _, k := range []kernel{{file: "attend", name: "attend_merge"}, {file: "rows", name: "embed"}, {file: "rows", name: "rms_norm_1"}, {file: "attend_prefill", name: "flash_bf16_128"}} {
				want := -1
				if d.Info.Major == 9 && k.roomy() {
					want = 100
				}
				f, err := d.function(k)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := f.SharedCarveout(); err != nil || got != want {
					t.Errorf("%s has %d %%, want %d; error %v", k.name, got, want, err)
				}
			}
		})
	}
	for name, want := range map[string]bool{
		"attend_merge": true, "embed": true, "held_affine4_1_2_normed": true, "delta_few_c8": true, "experts_few_whole_q4_0": true, "route_bf16_2": true,
		"rms_norm_1": false, "flash_hopper": false, "gated_wide": false, "delta_norm": false, "experts_gated_affine4": false, "route_prompt_bf16": false,
	} {
		if got := (kernel{name: name}).roomy(); got != want {
			t.Errorf("%s: roomy is %v", name, got)
		}
	}
	var names []string
	for _, file := range kernels.Files(9, 0) {
		more, err := kernels.Names(file, 9, 0)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, more...)
	}
	for _, prefix := range roomyKernels {
		if !slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, prefix) }) {
			t.Errorf("no kernel is named %s", prefix)
		}
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
	d.common, d.flash.prefill.tried, d.flash.decode.tried = true, true, true
	d.findBLAS()
}
