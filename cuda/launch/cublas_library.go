package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"windrow/cuda/driver"
)

// blasVariable names cuBLASLt's library by its path, or turns it off.
const blasVariable = "WINDROW_CUBLASLT"

// ErrNoBLAS says that cuBLASLt is not on this machine, or not wanted.
var ErrNoBLAS = errors.New("cuda: no cuBLASLt")

// blasVersions are the major versions whose interface the binding knows.
var blasVersions = []int{13, 12, 11}

// blasPaths lists where cuBLASLt may be: the loader's own path, then toolkits,
// then what Python packages carry. A version newer than the driver's CUDA is
// left out: it would load and then fail.
func blasPaths(driverVersion string) []string {
	newest, _, _ := strings.Cut(driverVersion, ".")
	limit, err := strconv.Atoi(newest)
	if err != nil {
		limit = blasVersions[0]
	}
	var paths []string
	folders := libraryFolders()
	for _, v := range blasVersions {
		if v > limit {
			continue
		}
		name := fmt.Sprintf("libcublasLt.so.%d", v)
		if runtime.GOOS == "windows" {
			name = fmt.Sprintf("cublasLt64_%d.dll", v)
		} else {
			paths = append(paths, name)
		}
		for _, f := range folders {
			path := filepath.Join(f, name)
			if _, err := os.Stat(path); err == nil {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// blasLibraries opens, one after the other, what may be cuBLASLt, until use
// takes one. It returns ErrNoBLAS where there is none, and else why none was
// taken.
func blasLibraries(driverVersion string, use func(*driver.Library) error) error {
	var paths []string
	switch path := os.Getenv(blasVariable); path {
	case "off":
		return fmt.Errorf("%w: %s is off", ErrNoBLAS, blasVariable)
	case "":
		paths = blasPaths(driverVersion)
	default:
		l, err := driver.OpenLibrary(path)
		if err != nil {
			return fmt.Errorf("%w: %s: %v", ErrNoBLAS, blasVariable, err)
		}
		return use(l)
	}
	var refused error
	for _, path := range paths {
		l, err := driver.OpenLibrary(path)
		if err != nil {
			continue
		}
		if err = use(l); err == nil {
			return nil
		}
		refused = errors.Join(refused, err)
	}
	if refused == nil {
		return fmt.Errorf("%w: no library found", ErrNoBLAS)
	}
	return refused
}
