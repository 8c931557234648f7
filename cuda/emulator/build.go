package emulator

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"windrow/emulation"
)

// builder makes one build of the library: the driver's sources and those of the
// executor in one, and a library for each file of kernels.
type builder struct {
	cache   emulation.Cache
	runtime string // folder of the driver's sources
	include string // folder of gpu.cuh
	kernels string // folder of the *.cu
	checked bool
	hopper  []string // patterns of the files *_hopper.cu that are built, without .cu

	executor string // folder of the executor's sources
}

// kernelFlags: contraction as for PTX (../kernels/build.sh).
var kernelFlags = append([]string{"-x", "c++", "-ffp-contract=on", "-nostdinc++"}, emulation.KernelFlags...)

// build returns the path of the library.
func (b builder) build() (string, error) {
	executor, _, err := b.cache.Runtime()
	if err != nil {
		return "", err
	}
	b.executor = executor
	common, err := emulation.SourceOf(filepath.Join(b.runtime, "emulated.h"), b.include, b.executor)
	if err != nil {
		return "", err
	}
	flags := fmt.Sprint(emulation.CommonFlags, kernelFlags, emulation.CheckedFlags, emulation.LinkFlags, b.checked)
	version := emulation.Hash(common, flags) // of what kernels and driver have in common
	// A process may hold several builds, each with its kernels: they find their driver by its name.
	name := "windrow-emulator-" + emulation.Hash(version, filepath.Base(b.kernels), fmt.Sprint(b.hopper))
	driver, err := b.library(version, name)
	if err != nil {
		return "", err
	}
	files, leftOut, err := b.files()
	if err != nil {
		return "", err
	}
	objects, err := each(files, func(f string) (string, error) { return b.object(f, driver, version, name) })
	if err != nil {
		return "", err
	}
	b.cache.Prune()
	return b.assemble(driver, objects, leftOut)
}

// files lists the sources of kernels that are built, and the names of the others:
// each file for compute capability 9.0 alone takes seconds to compile, and most tests run none.
func (b builder) files() (files, leftOut []string, err error) {
	all, err := filepath.Glob(filepath.Join(b.kernels, "*.cu"))
	if err != nil {
		return nil, nil, err
	}
	used := make([]bool, len(b.hopper))
	for _, f := range all {
		name := strings.TrimSuffix(filepath.Base(f), ".cu")
		wanted := !strings.HasSuffix(name, "_hopper")
		for i, pattern := range b.hopper {
			matches, err := filepath.Match(pattern, name)
			if err != nil {
				return nil, nil, err
			}
			wanted, used[i] = wanted || matches, used[i] || matches
		}
		if wanted {
			files = append(files, f)
		} else {
			leftOut = append(leftOut, name)
		}
	}
	if i := slices.Index(used, false); i >= 0 {
		return nil, nil, fmt.Errorf("no file of kernels %s.cu in %s", b.hopper[i], b.kernels)
	}
	return files, leftOut, nil
}

// library builds the driver without kernels.
func (b builder) library(version, name string) (string, error) {
	files, err := emulation.Sources(b.runtime, ".cpp")
	if err != nil {
		return "", err
	}
	shared, err := emulation.Sources(b.executor, ".cpp")
	if err != nil {
		return "", err
	}
	var headers []string
	for _, folder := range []string{b.runtime, b.executor} {
		h, err := hashFiles(folder, ".h")
		if err != nil {
			return "", err
		}
		headers = append(headers, h)
	}
	objects, err := each(append(files, shared...), func(f string) (string, error) {
		source, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		object := strings.TrimSuffix(filepath.Base(f), ".cpp") + "-" + emulation.Hash(version, fmt.Sprint(headers), string(source)) + ".o"
		return b.cache.Make(object, func(out string) error {
			args := append(slices.Clone(emulation.CommonFlags), "-I", b.executor, "-c", "-o", out, f)
			if b.checked {
				args = append(args, "-DCHECKED")
			}
			return emulation.Compile(args...)
		})
	})
	if err != nil {
		return "", err
	}
	return b.cache.Make("driver-"+emulation.Hash(name, fmt.Sprint(objects))+".so", func(out string) error {
		args := append(slices.Clone(emulation.LinkFlags), "-Wl,-soname,"+name, "-o", out)
		return emulation.Compile(append(append(args, objects...), "-lstdc++", "-lm", "-ldl")...)
	})
}

// each returns what compile makes of each of the files, some at a time.
func each(files []string, compile func(file string) (string, error)) ([]string, error) {
	made := make([]string, len(files))
	errs := make([]error, len(files))
	slots := make(chan struct{}, min(runtime.NumCPU(), 4))
	var wg sync.WaitGroup
	for i, f := range files {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			made[i], errs[i] = compile(f)
		})
	}
	wg.Wait()
	return made, errors.Join(errs...)
}

// object compiles one file of kernels for a driver. Where it does not compile, it
// returns a text file of the errors.
func (b builder) object(file, driver, version, name string) (string, error) {
	source, err := emulation.SourceOf(file, b.include, b.executor)
	if err != nil {
		return "", err
	}
	base := strings.TrimSuffix(filepath.Base(file), ".cu") + "-"
	compiled := base + emulation.Hash(source, version)
	broken := filepath.Join(string(b.cache), compiled+".error")
	if _, err := os.Stat(broken); err == nil {
		return broken, nil
	}
	var failure error
	object, err := b.cache.Make(compiled+".o", func(out string) error {
		flags := slices.Concat(emulation.CommonFlags, kernelFlags)
		if b.checked {
			flags = append(flags, emulation.CheckedFlags...)
		}
		failure = emulation.Compile(append(flags, "-I", b.include, "-I", b.executor, "-c", "-o", out, file)...)
		return failure
	})
	if failure != nil {
		return b.cache.Make(compiled+".error", func(out string) error { return os.WriteFile(out, []byte(failure.Error()+"\n"), 0o644) })
	}
	if err != nil {
		return "", err
	}
	return b.cache.Make(base+emulation.Hash(compiled, name)+".so", func(out string) error {
		return emulation.Compile(append(slices.Clone(emulation.LinkFlags), "-o", out, object, driver, "-lm")...)
	})
}

// assemble puts a driver and its kernels into one folder, and the names of the
// files that were not built, for messages.
func (b builder) assemble(driver string, objects, leftOut []string) (string, error) {
	var names []string
	for _, o := range objects {
		names = append(names, filepath.Base(o))
	}
	folder, err := b.cache.Make("set-"+emulation.Hash(filepath.Base(driver), fmt.Sprint(names, leftOut)), func(out string) error {
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
		return os.WriteFile(filepath.Join(out, "kernels", "left-out"), []byte(strings.Join(leftOut, " ")), 0o644)
	})
	return filepath.Join(folder, "libcuda.so.1"), err
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
	return emulation.Hash(parts...), nil
}
