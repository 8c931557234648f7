// Package emulation is what the emulated GPUs of tests share: the executor of
// GPU threads and its checker (runtime/), and the cache of what clang built.
// The emulators themselves are cuda/emulator and metal/emulator.
package emulation

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/cpuid/v2"
)

// Compiler is the only one that is known to make the same of the kernels'
// dialects for a GPU and for the CPU.
const Compiler = "clang-22"

// Flags of clang.
var (
	CommonFlags = []string{"-std=gnu++20", "-O2", "-g1", "-fPIC", "-fno-plt", "-march=x86-64-v3", "-fvisibility=hidden", "-Wall"}
	// KernelFlags: 16-bit floats are rounded after each operation as a GPU does.
	KernelFlags = []string{
		"-fno-exceptions", "-fno-rtti", "-fno-strict-aliasing",
		"-Xclang", "-ffloat16-excess-precision=none", "-Xclang", "-fbfloat16-excess-precision=none", "-Wno-unused-function",
	}
	// CheckedFlags: the compiler's instrumentation for race detection and undefined
	// behaviour, with callbacks of our own (sanitizer.cpp) instead of its runtimes.
	CheckedFlags = []string{
		"-O1", "-DCHECKED", "-fsanitize=thread,alignment,bounds,shift-exponent,integer-divide-by-zero", "-fno-sanitize-recover=all",
		"-mllvm", "-tsan-instrument-func-entry-exit=0", "-mllvm", "-tsan-instrument-read-before-write=1",
	}
	LinkFlags = []string{"-shared", "-rtlib=compiler-rt", "-nostdlib++"}
)

//go:embed runtime
var sources embed.FS

// Runtime returns a folder with the sources of the executor and the checker,
// and a hash of them.
func (c Cache) Runtime() (folder, hash string, err error) {
	sub, err := fs.Sub(sources, "runtime")
	if err != nil {
		return "", "", err
	}
	return c.Extract("executor", sub)
}

// Extract writes the files of fsys into a folder of the cache.
func (c Cache) Extract(name string, fsys fs.FS) (folder, hash string, err error) {
	var parts []string
	files, err := fs.Glob(fsys, "*")
	if err != nil {
		return "", "", err
	}
	slices.Sort(files)
	for _, f := range files {
		data, err := fs.ReadFile(fsys, f)
		if err != nil {
			return "", "", err
		}
		parts = append(parts, f, string(data))
	}
	hash = Hash(parts...)
	folder, err = c.Make(name+"-"+hash, func(out string) error {
		if err := os.Mkdir(out, 0o755); err != nil {
			return err
		}
		for i := 0; i < len(parts); i += 2 {
			if err := os.WriteFile(filepath.Join(out, parts[i]), []byte(parts[i+1]), 0o644); err != nil {
				return err
			}
		}
		return nil
	})
	return folder, hash, err
}

// Sources returns the files of a folder with a suffix.
func Sources(folder, suffix string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), suffix) {
			files = append(files, filepath.Join(folder, e.Name()))
		}
	}
	return files, nil
}

// SourceOf returns a source file with the text of the files that it includes, each once. They lie beside the
// file that includes them, or in one of the folders; others are the compiler's, and left out.
func SourceOf(file string, folders ...string) (string, error) {
	return sourceOf(file, folders, map[string]bool{})
}

func sourceOf(file string, folders []string, seen map[string]bool) (string, error) {
	if seen[file] {
		return "", nil
	}
	seen[file] = true
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	text.Write(data)
	for line := range strings.Lines(string(data)) {
		var name string
		if n, _ := fmt.Sscanf(strings.TrimSpace(line), "#include %q", &name); n == 0 {
			continue
		}
		part, err := sourceOf(filepath.Join(filepath.Dir(file), name), folders, seen)
		for _, folder := range folders {
			if errors.Is(err, fs.ErrNotExist) {
				part, err = sourceOf(filepath.Join(folder, name), folders, seen)
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue // of the compiler
		}
		if err != nil {
			return "", err
		}
		text.WriteString(part)
	}
	return text.String(), nil
}

// Available skips a test where what (an emulated GPU) cannot be built, or fails it
// where CI is set.
func Available(t testing.TB, what string) {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skipf("%s runs on linux/amd64 only", what)
	}
	if level := cpuid.CPU.X64Level(); level < 3 {
		t.Skipf("%s is compiled for x86-64-v3 (AVX2, FMA, F16C, BMI2); this processor is of level %d", what, level)
	}
	if _, err := exec.LookPath(Compiler); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%s needs %s", what, Compiler)
		}
		t.Skipf("left out: %s needs %s", what, Compiler)
	}
}
