package launch

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"windrow/cuda/driver"
	"windrow/cuda/emulator"
)

// blasDevice is the emulated device with the emulated cuBLASLt, which is part
// of the same library.
func blasDevice(t *testing.T) *Device {
	t.Helper()
	t.Setenv("WINDROW_EMULATED_CC", "8.0")
	library := emulator.Library(t, false)
	t.Setenv(blasVariable, library)
	d := openDevice(t, driver.Options{Library: library}, 0)
	b, err := newBLAS(d.Context)
	if err != nil {
		t.Fatal(err)
	}
	d.blas = b
	t.Cleanup(func() {
		d.blas = nil
		if err := b.close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestBLAS(t *testing.T) {
	d := blasDevice(t)
	if err := checkBLAS(d); err != nil {
		t.Fatal(err)
	}
	if n := len(d.blas.plans); n != 12 {
		t.Errorf("%d plans, want one for each of 12 shapes and forms", n)
	}
	if d.blas.versionText() != "13.0.0" {
		t.Errorf("version %s", d.blas.versionText())
	}
}

// Products are captured into graphs like kernels, and a known shape allocates
// nothing.
func TestBLASCapture(t *testing.T) {
	d := blasDevice(t)
	b := &bed{d: d}
	defer b.free()
	const rows, out, in = 3, 8, 16
	ones := slices.Repeat([]float32{1}, max(rows, out)*in)
	x, w, dst := b.halves(ones[:rows*in]), b.halves(ones[:out*in]), b.floats(make([]float32, rows*out))
	product := func() error { return d.blas.matmul(d.Stream, dst, true, w, x, rows, out, in, true) }
	if err := d.Stream.BeginCapture(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(product(), product()); err != nil {
		t.Fatal(err)
	}
	g, err := d.Stream.EndCapture()
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if g.Nodes() != 2 {
		t.Errorf("%d nodes, want 2", g.Nodes())
	}
	for range 3 {
		if err := g.Launch(d.Stream); err != nil {
			t.Fatal(err)
		}
	}
	for i, v := range b.readFloats(dst, rows*out) {
		if v != 6*in {
			t.Fatalf("element %d is %v after 6 products, want %d", i, v, 6*in)
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		if err := product(); err != nil {
			t.Fatal(err)
		}
	}); n >= 1 {
		t.Errorf("%v allocations a product", n)
	}
}

func TestBLASRefusals(t *testing.T) {
	d := blasDevice(t)
	if err := d.blas.matmul(d.Stream, 0, true, 0, 0, 4, 8, 16, false); err == nil || !strings.Contains(err.Error(), "invalid value") {
		t.Errorf("a product outside of all memory: %v", err)
	}
	if err := d.blas.matmul(d.Stream, 0, true, 0, 0, 0, 8, 16, false); err == nil || !strings.Contains(err.Error(), "0 rows by [8, 16]") {
		t.Errorf("a product of no rows: %v", err)
	}
	for _, value := range []string{"off", filepath.Join(t.TempDir(), "none.so")} {
		t.Setenv(blasVariable, value)
		if _, err := newBLAS(d.Context); !errors.Is(err, ErrNoBLAS) || !strings.Contains(err.Error(), blasVariable) {
			t.Errorf("%s=%s: %v", blasVariable, value, err)
		}
	}
	before := d.Context.Allocated()
	t.Setenv(blasVariable, "libc.so.6")
	if b, err := newBLAS(d.Context); err == nil || errors.Is(err, ErrNoBLAS) || b != nil {
		t.Errorf("the C library as cuBLASLt: %v", err)
	}
	if d.Context.Allocated() != before {
		t.Errorf("%d bytes left by a library that was refused", d.Context.Allocated()-before)
	}
}

// A library that is newer than the driver's CUDA is left out, and no relative
// folder is searched.
func TestBLASPaths(t *testing.T) {
	env := t.TempDir()
	folder := filepath.Join(env, "lib", "python3.12", "site-packages", "nvidia", "cublas", "lib")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"libcublasLt.so.13", "libcublasLt.so.12"} {
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("VIRTUAL_ENV", env)
	t.Setenv("PYTHONPATH", "relative")
	old, current := blasPaths("12.4"), blasPaths("13.0")
	if slices.Contains(old, filepath.Join(folder, "libcublasLt.so.13")) || !slices.Contains(old, filepath.Join(folder, "libcublasLt.so.12")) {
		t.Errorf("paths for a driver of CUDA 12.4: %q", old)
	}
	if !slices.Contains(current, filepath.Join(folder, "libcublasLt.so.13")) || current[0] != "libcublasLt.so.13" {
		t.Errorf("paths for a driver of CUDA 13.0: %q", current)
	}
	for _, f := range libraryFolders() {
		if !filepath.IsAbs(f) {
			t.Errorf("folder %q is relative", f)
		}
	}
}

// The search goes on behind a file that is no library and a library that is
// something else.
func TestBLASSearch(t *testing.T) {
	d := blasDevice(t)
	env := t.TempDir()
	var paths []string
	for _, part := range []string{"a", "b", "c"} {
		folder := filepath.Join(env, "lib", "python3.12", "site-packages", "nvidia", part, "lib")
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, filepath.Join(folder, "libcublasLt.so.12"))
	}
	if err := os.WriteFile(paths[0], []byte("no library"), 0o644); err != nil {
		t.Fatal(err)
	}
	other, _ := filepath.Glob("/lib/*/libc.so.6")
	if more, _ := filepath.Glob("/lib64/libc.so.6"); len(other)+len(more) == 0 {
		t.Skip("no C library where Linux has it")
	} else {
		other = append(other, more...)
	}
	if err := errors.Join(os.Symlink(other[0], paths[1]), os.Symlink(d.blas.library.Path, paths[2])); err != nil {
		t.Fatal(err)
	}
	t.Setenv("VIRTUAL_ENV", env)
	t.Setenv(blasVariable, "")
	b, err := newBLAS(d.Context)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	if b.library.Path != paths[2] {
		t.Errorf("took %s, want %s", b.library.Path, paths[2])
	}
}

// The size of cublasLtMatmulHeuristicResult_t.
func TestBLASLayout(t *testing.T) {
	if n := unsafe.Sizeof(blasChoice{}); n != 96 {
		t.Errorf("a choice has %d bytes, want 96", n)
	}
}
