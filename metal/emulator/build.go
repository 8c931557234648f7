package emulator

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"windrow/emulation"
)

//go:embed runtime
var sources embed.FS

var kernelFlags = append([]string{
	"-x", "c++", "-fno-lax-vector-conversions", "-fno-threadsafe-statics", "-DEMULATOR_API=", "-D__METAL_VERSION__=310",
	"-Wno-unknown-attributes", "-Wno-duplicate-decl-specifier", "-Wno-unused", "-Wno-undefined-internal", "-Wno-pass-failed",
}, emulation.KernelFlags...)

// buildFlags: to compile takes longer than to run, and most of that time is
// switches between threads, which more optimization does not change.
var buildFlags = map[Build][]string{
	Plain:   {"-O1", "-g0", "-mllvm", "-unroll-threshold=0", "-ffp-contract=off"},
	Fast:    {"-O1", "-g0", "-mllvm", "-unroll-threshold=0", "-ffast-math", "-ffp-contract=on"}, // across statements, roundings to 16 bits would go
	Checked: append([]string{"-ffp-contract=off"}, emulation.CheckedFlags...),
}

// maxLines is how much of what the compiler says an error holds.
const maxLines = 24

// Compile makes a library of source, one text as Metal's newLibraryWithSource
// takes it. Equal sources are compiled once a machine. The error holds what the
// compiler says, with lines of the source, or of the files that its #line
// directives name.
func Compile(source string, b Build) (*Library, error) {
	cache := emulation.OpenCache()
	object, include, hash, err := runtimeOf(cache, b)
	if err != nil {
		return nil, err
	}
	var failure error
	path, err := cache.Make("metal-"+emulation.Hash(source, hash, fmt.Sprint(kernelFlags))+".so", func(out string) error {
		code, err := translate(source, false)
		if err != nil {
			failure = err
			return err
		}
		kernels := out + ".o"
		defer os.Remove(kernels)
		args := slices.Concat(emulation.CommonFlags, kernelFlags, buildFlags[b], include, []string{"-include", "msl.h", "-c", "-o", kernels, "-"})
		if failure = clang(code, args...); failure != nil {
			return failure
		}
		return emulation.Compile(slices.Concat(emulation.LinkFlags, []string{"-Wl,-Bsymbolic", "-o", out, kernels, object, "-lstdc++", "-lm", "-ldl"})...)
	})
	if failure != nil {
		return nil, fmt.Errorf("metal emulator: %w", failure)
	}
	if err != nil {
		return nil, err
	}
	return open(path)
}

// runtimeOf builds what all libraries contain; hash names it.
func runtimeOf(cache emulation.Cache, b Build) (object string, include []string, hash string, err error) {
	executor, executorHash, err := cache.Runtime()
	if err != nil {
		return "", nil, "", err
	}
	own, err := fs.Sub(sources, "runtime")
	if err != nil {
		return "", nil, "", err
	}
	shim, shimHash, err := cache.Extract("metal", own)
	if err != nil {
		return "", nil, "", err
	}
	include = []string{"-isystem", shim, "-isystem", executor}
	checked := b == Checked
	hash = emulation.Hash(executorHash, shimHash, fmt.Sprint(emulation.CommonFlags, buildFlags[b], checked))
	object, err = cache.Make(fmt.Sprintf("metal-runtime-%s.o", emulation.Hash(executorHash, shimHash, fmt.Sprint(emulation.CommonFlags, checked))), func(out string) error {
		first, err := emulation.Sources(executor, ".cpp")
		if err != nil {
			return err
		}
		second, err := emulation.Sources(shim, ".cpp")
		if err != nil {
			return err
		}
		args := slices.Concat(emulation.CommonFlags, include, []string{"-DEMULATOR_API=", "-Wno-unused", "-r", "-nostdlib", "-o", out})
		if checked {
			args = append(args, "-DCHECKED")
		}
		return emulation.Compile(slices.Concat(args, first, second)...)
	})
	cache.Prune()
	return object, include, hash, err
}

var (
	systemInclude = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*include[ \t]*<(metal_\w+)>.*$`)
	otherInclude  = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*include.*$`)
)

// translate makes C++ of a source.
func translate(source string, lint bool) (string, error) {
	source = systemInclude.ReplaceAllString(source, "")
	if line := otherInclude.FindString(source); line != "" {
		return "", fmt.Errorf("%s: Metal's run-time compiler has no such file", strings.TrimSpace(line))
	}
	if !strings.HasPrefix(source, "#line") {
		source = "#line 1 \"source\"\n" + source
	}
	cmd := exec.Command(emulation.Compiler, "-E", "-x", "c++", "-nostdinc", "-D__METAL_VERSION__=310", "-D__HAVE_BFLOAT__=1", "-")
	cmd.Stdin = strings.NewReader(source)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return "", complaint(err, said.String())
	}
	return rewrite(out.String(), lint)
}

// clang runs the compiler on code.
func clang(code string, args ...string) error {
	cmd := exec.Command(emulation.Compiler, args...)
	cmd.Stdin = strings.NewReader(code)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return complaint(err, string(out))
	}
	return nil
}

// complaint makes an error of the first lines of what the compiler said.
func complaint(err error, said string) error {
	said = strings.TrimSpace(said)
	if said == "" {
		return err
	}
	lines := strings.Split(said, "\n")
	if len(lines) > maxLines {
		lines = append(lines[:maxLines], "...")
	}
	return errors.New(strings.Join(lines, "\n"))
}

var lintFlags = append([]string{
	"-fsyntax-only", "-DLINT", "-ffast-math",
	"-Werror=implicit-float-conversion", "-Werror=nan-infinity-disabled", "-Werror=conversion-null", "-ferror-limit=10",
}, kernelFlags...)

// Lint compiles a source with real address spaces, to find what Apple's
// compiler refuses and what fast math breaks.
func Lint(source string) error {
	_, include, _, err := runtimeOf(emulation.OpenCache(), Plain)
	if err != nil {
		return err
	}
	code, err := translate(source, true)
	if err == nil {
		err = clang(code, slices.Concat(emulation.CommonFlags, lintFlags, include, []string{"-include", "msl.h", "-"})...)
	}
	if err != nil {
		return fmt.Errorf("lint: %w", err)
	}
	return nil
}
