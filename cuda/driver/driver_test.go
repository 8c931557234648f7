package driver

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"windrow/cuda/emulator"
	"windrow/cuda/kernels"
	"windrow/internal/testhelp"
)

// TestKeepCode: the driver's variable names our folder, unless it names another or there cannot
// be one.
func TestKeepCode(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(folder, "windrow", "kernels")
	for _, c := range []struct{ before, folder, want string }{
		{"", own, own}, {"", "", ""}, {"elsewhere", own, "elsewhere"}, {"", filepath.Join(file, "kernels"), ""},
	} {
		t.Setenv(cachePath, c.before)
		if keepCode(c.folder); os.Getenv(cachePath) != c.want {
			t.Errorf("%+v: %s is %q", c, cachePath, os.Getenv(cachePath))
		}
	}
	if info, err := os.Stat(own); err != nil || !info.IsDir() {
		t.Errorf("no folder: %v", err)
	}
}

// testContext is a context of the emulated device, entered; at the test's end
// nothing may be left in it.
func testContext(t *testing.T) *Context {
	t.Helper()
	d, err := Open(Options{Library: emulator.Library(t, false)})
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.NewContext(0)
	if err != nil {
		t.Fatal(err)
	}
	c.Enter()
	t.Cleanup(func() {
		if left := len(c.remaining()); left > 0 && !t.Failed() {
			t.Errorf("%d objects and %d bytes left in the context", left, c.Allocated())
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		c.Leave()
	})
	return c
}

// emulated runs the rest of a test in a process of its own, whose driver is
// set up by environment variables: the library reads them, and a variable set
// in this process would not reach it. It returns true in that process.
func emulated(t *testing.T, env ...string) bool {
	t.Helper()
	emulator.Library(t, false)
	return testhelp.Alone(t, env...)
}

func TestNoDriver(t *testing.T) {
	_, err := Open(Options{Library: filepath.Join(t.TempDir(), "libcuda.so.1")})
	testhelp.OneLineFrom(t, "cuda: ", err, "no NVIDIA driver on this machine", "libcuda.so.1")
	if !errors.Is(err, ErrNoDriver) {
		t.Errorf("%v is not ErrNoDriver", err)
	}
	text := filepath.Join(t.TempDir(), "libcuda.so.1")
	if err := os.WriteFile(text, []byte("not a library"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err = Open(Options{Library: text}); !errors.Is(err, ErrNoDriver) {
		t.Errorf("a text file as driver: %v", err)
	}
	if _, err := os.Stat("/proc/driver/nvidia"); err != nil && runtime.GOOS == "linux" {
		if _, err := Open(Options{}); !errors.Is(err, ErrNoDriver) {
			t.Errorf("the search on a machine without a driver: %v", err)
		}
	}
}

func TestLibraryWithoutFunctions(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("opens the C library by its Linux name")
	}
	_, err := Open(Options{Library: "libc.so.6"})
	testhelp.OneLineFrom(t, "cuda: ", err, "driver too old", "cuCtxSetCurrent", "more", "CUDA 12.0 (driver 525)")
	if !errors.Is(err, ErrOldDriver) {
		t.Errorf("%v is not ErrOldDriver", err)
	}
}

func TestOldDriver(t *testing.T) {
	if !emulated(t, "WINDROW_EMULATED_DRIVER=11080") {
		return
	}
	_, err := Open(Options{Library: emulator.Library(t, false)})
	testhelp.OneLineFrom(t, "cuda: ", err, "driver too old", "CUDA 11.8", "need CUDA 12.0 (driver 525) or later")
	if !errors.Is(err, ErrOldDriver) {
		t.Errorf("%v is not ErrOldDriver", err)
	}
}

func TestNoDevice(t *testing.T) {
	if !emulated(t, "WINDROW_EMULATED_DEVICES=0") {
		return
	}
	d, err := Open(Options{Library: emulator.Library(t, false)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Devices(); !errors.Is(err, ErrNoDevice) {
		t.Errorf("no device: %v", err)
	}
	if _, err := d.NewContext(0); !errors.Is(err, ErrNoDevice) {
		t.Errorf("a context on no device: %v", err)
	}
}

func TestOldDevice(t *testing.T) {
	if !emulated(t, "WINDROW_EMULATED_CC=7.5") {
		return
	}
	d, err := Open(Options{Library: emulator.Library(t, false)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.NewContext(0)
	testhelp.OneLineFrom(t, "cuda: ", err, "compute capability 7.5", "need 8.0 or later")
}

func TestDevices(t *testing.T) {
	d, err := Open(Options{Library: emulator.Library(t, false)})
	if err != nil {
		t.Fatal(err)
	}
	list, err := d.Devices()
	if err != nil {
		t.Fatal(err)
	}
	i := list[0]
	if i.Name == "" || i.Major != 8 || i.Minor != 0 || i.SMs < 1 || i.Memory == 0 || i.SharedPerBlock < defaultShared || i.DriverVersion != d.Version() {
		t.Errorf("device: %+v", i)
	}
	for _, n := range []int{-1, len(list)} {
		_, err := d.NewContext(n)
		testhelp.OneLineFrom(t, "cuda: ", err, "no GPU of number")
		if !errors.Is(err, ErrNoDevice) {
			t.Errorf("%v is not ErrNoDevice", err)
		}
	}
}

func TestOutOfMemory(t *testing.T) {
	if !emulated(t, "WINDROW_EMULATED_MEMORY=16777216") {
		return
	}
	c := testContext(t)
	p, err := c.Alloc(12 << 20)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Alloc(5 << 20)
	testhelp.OneLineFrom(t, "cuda: ", err, "5.0 MiB wanted", "4.0 MiB of 16.0 MiB free")
	if !errors.Is(err, ErrNoMemory) {
		t.Errorf("%v is not ErrNoMemory", err)
	}
	if err := c.Free(p); err != nil {
		t.Fatal(err)
	}
	if p, err = c.Alloc(5 << 20); err != nil {
		t.Fatal(err)
	}
	if free, total, err := c.MemInfo(); err != nil || total != 16<<20 || free != 11<<20 {
		t.Errorf("memory: %d of %d free, %v", free, total, err)
	}
	if err := c.Free(p); err != nil {
		t.Fatal(err)
	}
}

// floats is the bytes of float32 values.
func floats(v ...float32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// function loads a kernel of intrinsics.cu.
func function(t *testing.T, c *Context, name string) (*Module, *Function) {
	t.Helper()
	image, err := kernels.PTX("intrinsics", name, c.Info().Major, c.Info().Minor)
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Load(image)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	f, err := m.Function(name)
	if err != nil {
		t.Fatal(err)
	}
	return m, f
}
