package metal

import (
	"fmt"
	"runtime"
	"testing"

	"windrow/metal/driver"
	"windrow/metal/emulator"
	"windrow/metal/fakeobjc"
	"windrow/metal/kernels"
)

// testDevice opens the device that tests run on: the emulated one in a build
// and with a seed for the order of its threads, or, on a Mac, its GPU. It is
// closed at the end of the test, which fails for what is left then.
func testDevice(t testing.TB, b emulator.Build, seed uint64) *device {
	t.Helper()
	var d *device
	var err error
	if runtime.GOOS == "darwin" {
		if d, err = openDevice(); err != nil {
			t.Skip(err)
		}
	} else {
		emulator.Available(t)
		d, err = newDevice(driver.New(fakeobjc.Start(t, fakeobjc.Options{Compile: fakeobjc.Emulated(b, seed)})))
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := d.close(); err != nil && !t.Failed() {
			t.Error(err)
		}
	})
	return d
}

// try runs a self-test; what it finds impossible ends it by a panic.
func (s selfTest) try(d *device) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	return s.run(d)
}

// TestSelfTests runs what `windrow doctor` runs on a user's Mac, in the
// emulator's builds. The order of threads changes values where something is
// wrong; what the checked build finds hardly depends on it.
func TestSelfTests(t *testing.T) {
	for _, v := range []struct {
		name  string
		build emulator.Build
		seed  uint64
	}{
		{"plain", emulator.Plain, 0},
		{"plain-reordered", emulator.Plain, 1},
		{"fast", emulator.Fast, 0},
		{"fast-reordered", emulator.Fast, 1},
		{"checked", emulator.Checked, 0},
		{"checked-reordered", emulator.Checked, 1},
	} {
		t.Run(v.name, func(t *testing.T) {
			if runtime.GOOS == "darwin" && v.name != "plain" {
				t.Skip("a GPU has one build and its own order")
			}
			if testing.Short() && v.name != "plain" && v.name != "checked-reordered" {
				t.Skip("four of six builds and orders: leave -short out")
			}
			for _, s := range selfTests {
				t.Run(s.name, func(t *testing.T) {
					t.Parallel()
					if err := s.try(testDevice(t, v.build, v.seed)); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
}

// TestLint checks every source against what Apple's compiler is known to refuse.
func TestLint(t *testing.T) {
	emulator.Available(t)
	for _, name := range kernels.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source, err := kernels.Source(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := emulator.Lint(source); err != nil {
				t.Error(err)
			}
		})
	}
}
