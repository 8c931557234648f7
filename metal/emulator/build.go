package emulator

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

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
	Quick:   {"-O0", "-g0", "-ffp-contract=off"},
	Plain:   {"-O1", "-g0", "-mllvm", "-unroll-threshold=100", "-ffp-contract=off"},
	Fast:    {"-O1", "-g0", "-mllvm", "-unroll-threshold=100", "-ffast-math", "-ffp-contract=on"}, // across statements, roundings to 16 bits would go
	Checked: append([]string{"-ffp-contract=off"}, emulation.CheckedFlags...),
}

// maxLines is how much of what the compiler says an error holds.
const maxLines = 24

// Compile makes a library of source, one text as Metal's newLibraryWithSource
// takes it; with host names, a library of these kernels alone. Equal sources are
// compiled once a machine. The error holds what the compiler says, with lines of
// the source, or of the files that its #line directives name.
func Compile(source string, b Build, only ...string) (*Library, error) {
	run, err := bases[b]()
	if err != nil {
		return nil, err
	}
	var failure error
	path, err := run.cache.Make("metal-"+emulation.Hash(append([]string{source, run.hash}, only...)...)+".so", func(out string) error {
		code, err := translate(source, false, only...)
		if err != nil {
			failure = err
			return err
		}
		kernels := out + ".o"
		defer os.Remove(kernels)
		args := slices.Concat(run.flags, []string{"-include-pch", run.header, "-c", "-o", kernels, "-"})
		if failure = clang(code, args...); failure != nil {
			return failure
		}
		return emulation.Compile(slices.Concat(emulation.LinkFlags, []string{"-Wl,-Bsymbolic", "-o", out, kernels, run.object, "-lstdc++", "-lm", "-ldl"})...)
	})
	if failure != nil {
		return nil, fmt.Errorf("metal emulator: %w", failure)
	}
	if err != nil {
		return nil, err
	}
	return open(path)
}

// base is what all libraries of a build contain.
type base struct {
	cache   emulation.Cache
	object  string   // the executor and the dispatches
	header  string   // msl.h, compiled
	flags   []string // of kernels
	include []string // of these flags those for the shim's headers
	hash    string   // names all
}

// bases makes each build's, once a process.
var bases = map[Build]func() (base, error){
	Quick:   sync.OnceValues(func() (base, error) { return makeBase(Quick) }),
	Plain:   sync.OnceValues(func() (base, error) { return makeBase(Plain) }),
	Fast:    sync.OnceValues(func() (base, error) { return makeBase(Fast) }),
	Checked: sync.OnceValues(func() (base, error) { return makeBase(Checked) }),
}

func makeBase(b Build) (base, error) {
	cache := emulation.OpenCache()
	cache.Prune()
	executor, executorHash, err := cache.Runtime()
	if err != nil {
		return base{}, err
	}
	own, err := fs.Sub(sources, "runtime")
	if err != nil {
		return base{}, err
	}
	shim, shimHash, err := cache.Extract("metal", own)
	if err != nil {
		return base{}, err
	}
	flags := slices.Concat(emulation.CommonFlags, []string{"-isystem", shim, "-isystem", executor, "-DEMULATOR_API=", "-Wno-unused"})
	if b == Checked {
		flags = append(flags, "-DCHECKED")
	}
	run := base{cache: cache, include: []string{"-isystem", shim, "-isystem", executor}}
	run.flags = slices.Concat(emulation.CommonFlags, kernelFlags, buildFlags[b], run.include)
	run.hash = emulation.Hash(executorHash, shimHash, fmt.Sprint(flags, kernelFlags, buildFlags[b]))
	run.header, err = cache.Make("metal-header-"+run.hash+".pch", func(out string) error {
		return emulation.Compile(slices.Concat(run.flags, []string{"-Xclang", "-fno-pch-timestamp", "-x", "c++-header", "-o", out, filepath.Join(shim, "msl.h")})...)
	})
	if err != nil {
		return base{}, err
	}
	run.object, err = cache.Make("metal-runtime-"+emulation.Hash(executorHash, shimHash, fmt.Sprint(flags))+".o", func(out string) error {
		first, err := emulation.Sources(executor, ".cpp")
		if err != nil {
			return err
		}
		second, err := emulation.Sources(shim, ".cpp")
		if err != nil {
			return err
		}
		return emulation.Compile(slices.Concat(flags, []string{"-r", "-nostdlib", "-o", out}, first, second)...)
	})
	return run, err
}

var (
	systemInclude = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*include[ \t]*<(metal_\w+)>.*$`)
	otherInclude  = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*include.*$`)
)

// translate makes C++ of a source.
func translate(source string, lint bool, only ...string) (string, error) {
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
	return rewrite(out.String(), lint, only...)
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
	run, err := bases[Plain]()
	if err != nil {
		return err
	}
	code, err := translate(source, true)
	if err == nil {
		err = clang(code, slices.Concat(emulation.CommonFlags, lintFlags, run.include, []string{"-include", "msl.h", "-"})...)
	}
	if err != nil {
		return fmt.Errorf("lint: %w", err)
	}
	return nil
}
