package cuda

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"windrow/cuda/driver"
)

// testDevice opens the device that tests run on: the emulated one, or the GPU
// whose number WINDROW_CUDA_DEVICE holds. It is entered, and closed at the end
// of the test, which fails if device memory is still allocated then.
func testDevice(t testing.TB) *device {
	t.Helper()
	if number, err := strconv.Atoi(os.Getenv("WINDROW_CUDA_DEVICE")); err == nil {
		return openDevice(t, driver.Options{}, number)
	}
	d := openDevice(t, driver.Options{Library: emulatedLibrary(t)}, 0)
	if d.brief = os.Getenv("WINDROW_SLOW") == ""; d.brief {
		t.Log("left out: the larger shapes of self-tests, minutes on the emulator: set WINDROW_SLOW=1")
	}
	return d
}

func openDevice(t testing.TB, o driver.Options, number int) *device {
	t.Helper()
	lib, err := driver.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	d, err := newDevice(lib, number)
	if err != nil {
		t.Fatal(err)
	}
	d.ctx.Enter()
	before := d.ctx.Allocated()
	t.Cleanup(func() {
		if err := d.take(); err != nil {
			t.Error(err)
		}
		if err := d.stream.Synchronize(); err != nil {
			t.Error(err)
		}
		if n := d.ctx.Allocated() - before; n != 0 && !t.Failed() {
			t.Errorf("%d bytes of device memory were not freed", n)
		}
		d.ctx.Leave()
		if err := d.close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// try runs a self-test; kernels that fail end it by a panic.
func (s selfTest) try(d *device) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	return s.run(d)
}

// TestSelfTests runs what `windrow doctor` runs on a user's GPU.
func TestSelfTests(t *testing.T) {
	for _, s := range selfTests {
		t.Run(s.name, func(t *testing.T) {
			if err := s.try(testDevice(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSelfTestsChecked runs the self-tests with races between threads, bounds
// and uninitialised reads checked, in a random order of threads, on a device
// whose launches overlap.
func TestSelfTestsChecked(t *testing.T) {
	library := checkedHopper(t)
	t.Setenv("WINDROW_EMULATED_SEED", "1") // another order than that of the plain runs
	for _, s := range selfTests {
		t.Run(s.name, func(t *testing.T) {
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
func (d *device) withoutHopper() {
	d.prefill.tried, d.flash.tried = true, true
	d.findBLAS()
}
