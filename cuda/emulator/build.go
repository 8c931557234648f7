package emulator

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// builder makes one build of the library. Everything is named by a hash of
// what it is made of, made under a lock and renamed, so that processes that
// build at the same time share the work.
type builder struct {
	runtime string // folder of the library's sources
	include string // folder of gpu.cuh
	kernels string // folder of the *.cu
	cache   string
	checked bool
}

// oldest is how long builds are kept that nobody has used.
const oldest = 7 * 24 * time.Hour

var commonFlags = []string{"-std=gnu++20", "-O2", "-g1", "-fPIC", "-fno-plt", "-march=x86-64-v3", "-fvisibility=hidden", "-Wall"}

// kernelFlags: contraction as for PTX (../kernels/build.sh), and 16-bit floats
// rounded after each operation as a GPU does.
var kernelFlags = []string{
	"-x", "c++", "-ffp-contract=on", "-fno-exceptions", "-fno-rtti", "-nostdinc++", "-fno-strict-aliasing",
	"-Xclang", "-ffloat16-excess-precision=none", "-Xclang", "-fbfloat16-excess-precision=none", "-Wno-unused-function",
}

// checkedFlags: the compiler's instrumentation for race detection and undefined
// behaviour, with callbacks of our own (checker.cpp) instead of its runtimes.
var checkedFlags = []string{
	"-O1", "-DCHECKED", "-fsanitize=thread,alignment,bounds,shift-exponent,integer-divide-by-zero", "-fno-sanitize-recover=all",
	"-mllvm", "-tsan-instrument-func-entry-exit=0", "-mllvm", "-tsan-instrument-read-before-write=1",
}

var linkFlags = []string{"-shared", "-rtlib=compiler-rt", "-nostdlib++"}

// build returns the path of the library.
func (b builder) build() (string, error) {
	common, err := b.sourceOf(filepath.Join(b.runtime, "emulated.h"), map[string]bool{})
	if err != nil {
		return "", err
	}
	headers, err := hashFiles(b.runtime, ".h")
	if err != nil {
		return "", err
	}
	sources, err := hashFiles(b.runtime, ".cpp")
	if err != nil {
		return "", err
	}
	flags := fmt.Sprint(commonFlags, kernelFlags, checkedFlags, linkFlags, b.checked)
	version := hash(common, flags) // of what kernels and driver have in common
	driver, err := b.library(version, hash(version, headers, sources))
	if err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(b.kernels, "*.cu"))
	if err != nil {
		return "", err
	}
	files = slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, "_hopper.cu") }) // assembly of one architecture
	objects := make([]string, len(files))
	errs := make([]error, len(files))
	slots := make(chan struct{}, min(runtime.NumCPU(), 4))
	var wg sync.WaitGroup
	for i, f := range files {
		wg.Add(1)
		go func() {
			defer wg.Done()
			slots <- struct{}{}
			defer func() { <-slots }()
			objects[i], errs[i] = b.object(f, driver, version)
		}()
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	b.prune()
	return b.assemble(driver, objects)
}

// library builds the driver without kernels.
func (b builder) library(version, name string) (string, error) {
	return b.make("driver-"+name+".so", func(out string) error {
		files, err := filepath.Glob(filepath.Join(b.runtime, "*.cpp"))
		if err != nil {
			return err
		}
		// The name lets a process hold several builds, each with its kernels.
		args := slices.Concat(commonFlags, linkFlags, []string{"-Wl,-soname,windrow-emulator-" + version})
		if b.checked {
			args = append(args, "-DCHECKED")
		}
		args = append(append(args, "-o", out), files...)
		return compile(append(args, "-lstdc++", "-lm", "-ldl")...)
	})
}

// object compiles one file of kernels. Where it does not compile, it returns a
// text file of the errors.
func (b builder) object(file, driver, version string) (string, error) {
	source, err := b.sourceOf(file, map[string]bool{})
	if err != nil {
		return "", err
	}
	base := strings.TrimSuffix(filepath.Base(file), ".cu")
	name := base + "-" + hash(source, version)
	broken := filepath.Join(b.cache, name+".error")
	if _, err := os.Stat(broken); err == nil {
		return broken, nil
	}
	var failure error
	path, err := b.make(name+".so", func(out string) error {
		flags := slices.Concat(commonFlags, kernelFlags)
		if b.checked {
			flags = append(flags, checkedFlags...)
		}
		object := out + ".o"
		defer os.Remove(object)
		if failure = compile(append(flags, "-I", b.include, "-c", "-o", object, file)...); failure != nil {
			return failure
		}
		return compile(append(slices.Clone(linkFlags), "-o", out, object, driver, "-lm")...)
	})
	if failure == nil {
		return path, err
	}
	return b.make(name+".error", func(out string) error { return os.WriteFile(out, []byte(failure.Error()+"\n"), 0o644) })
}

// assemble puts a driver and its kernels into one folder.
func (b builder) assemble(driver string, objects []string) (string, error) {
	var names []string
	for _, o := range objects {
		names = append(names, filepath.Base(o))
	}
	folder, err := b.make("set-"+hash(filepath.Base(driver), fmt.Sprint(names)), func(out string) error {
		if err := os.MkdirAll(filepath.Join(out, "kernels"), 0o755); err != nil {
			return err
		}
		if err := os.Link(driver, filepath.Join(out, "libcuda.so.1")); err != nil {
			return err
		}
		for i, o := range objects {
			if err := os.Link(o, filepath.Join(out, "kernels", names[i])); err != nil {
				return err
			}
		}
		return nil
	})
	return filepath.Join(folder, "libcuda.so.1"), err
}

// make returns the path of a file or folder of the cache, made if it is not there.
func (b builder) make(name string, f func(out string) error) (string, error) {
	path := filepath.Join(b.cache, name)
	if _, err := os.Stat(path); err == nil {
		now := time.Now()
		return path, os.Chtimes(path, now, now)
	}
	if err := os.MkdirAll(b.cache, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(filepath.Join(b.cache, name+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil { // made by another process meanwhile
		return path, nil
	}
	dir, err := os.MkdirTemp(b.cache, "tmp-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, name)
	if err := f(out); err != nil {
		return "", err
	}
	if err := os.Rename(out, path); err != nil && !errors.Is(err, fs.ErrExist) {
		if _, gone := os.Stat(path); gone != nil {
			return "", err
		}
	}
	return path, nil
}

// prune removes what has not been used for long; errors do not matter.
func (b builder) prune() {
	entries, err := os.ReadDir(b.cache)
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > oldest {
			os.RemoveAll(filepath.Join(b.cache, e.Name()))
		}
	}
}

func compile(args ...string) error {
	out, err := exec.Command(compiler, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", compiler, err, bytes.TrimSpace(out))
	}
	return nil
}

func hash(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d %s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))[:20]
}

// sourceOf returns a source file with the text of the files that it includes.
func (b builder) sourceOf(file string, seen map[string]bool) (string, error) {
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
		part, err := b.sourceOf(filepath.Join(filepath.Dir(file), name), seen)
		if errors.Is(err, fs.ErrNotExist) {
			part, err = b.sourceOf(filepath.Join(b.include, name), seen)
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

// hashFiles hashes the files of a folder with a suffix.
func hashFiles(folder, suffix string) (string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*"+suffix))
	if err != nil {
		return "", err
	}
	parts := []string{}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		parts = append(parts, filepath.Base(f), string(data))
	}
	return hash(parts...), nil
}
