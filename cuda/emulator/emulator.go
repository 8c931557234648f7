// Package emulator gives tests a libcuda.so.1 for machines without a GPU: the
// driver API, strict where the real one is, with the kernels of ../kernels
// compiled for the CPU and run one lane at a time. It is built with clang on
// first use and kept in the user's cache folder.
//
// Streams work as late as the API allows, when something waits for them;
// shared memory, new device memory and the targets of asynchronous copies that
// nobody waited for hold NaN, and so do sums of products (wgmma) on their way.
// Blocks run one after another; those of a cluster at once, and of kernels whose
// blocks wait for each other as many as the device has multiprocessors. Copies
// that complete at barriers arrive when no thread can go on without them.
//
// The checked build finds races between threads and between blocks, accesses out
// of bounds, misaligned vectors, shared memory read before it is written, and
// device memory used before dependency_wait() while an earlier kernel may use
// it (a kernel that lets the next one begin only when it has waited itself is the
// only one that may run still); of compute capability 9.0, what copies and products read or write in shared
// memory that nothing orders, or that no proxy_fence() shows them, and warps of a
// warpgroup that start different products. Any build finds divergence at barriers
// and warp operations, waits that never end, barriers used otherwise than they
// were made, copies and products on their way when blocks end, and use of the
// shared memory of a block that has ended.
//
// Neither says anything of speed, of registers, of the instructions that clang
// and ptxas make, of the rounding inside a tensor core, of the scope of an arrival
// or a wait (block or cluster), or of device memory read before anybody wrote it.
// Kernels for compute capability 9.0 alone run from C++ beside their assembly: what
// only the assembly does wrong is not seen.
//
// The library reads the environment at each use:
//
//	WINDROW_EMULATED_CC       compute capability (8.0)
//	WINDROW_EMULATED_MEMORY   bytes of device memory (8 GiB)
//	WINDROW_EMULATED_SMS      multiprocessors (6)
//	WINDROW_EMULATED_DEVICES  number of devices, each with memory of its own (1)
//	WINDROW_EMULATED_DRIVER   version, as cuDriverGetVersion counts (13000)
//	WINDROW_EMULATED_PEERS    0: no device reaches another one's memory (1)
//	WINDROW_EMULATED_NCCL     version, as ncclGetVersion counts (22703)
//	WINDROW_EMULATED_NCCL_FAILS  rank whose exchanges fail, by NCCL or by kernels
//	WINDROW_EMULATED_SEED     not 0: blocks, warps and threads run, and copies arrive, in a random order
package emulator

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"windrow/emulation"
)

var (
	mu    sync.Mutex
	built = map[string]string{}
)

// Library returns the path of the emulated libcuda.so.1 with the kernels of
// cuda/kernels; checked is the slow build that reports races between threads,
// accesses out of bounds and reads of what nobody wrote as launch failures.
//
// Of the files for compute capability 9.0 alone, *_hopper.cu, it has those that
// hopper names: patterns as of filepath.Match, without .cu.
//
// A source file that does not compile is left out, and its error told when one
// of its kernels is asked for. Without the compiler the test is skipped, or
// fails where CI is set.
func Library(t testing.TB, checked bool, hopper ...string) string {
	t.Helper()
	return libraryOf(t, "cuda/kernels", checked, hopper...)
}

// Changed is the checked library of a folder that has some of the sources of
// cuda/kernels, changed, with all of their headers. A process may hold several, of
// folders whose last names differ; in the folder above lies cuda/emulator, or a link to it.
func Changed(t testing.TB, folder string, hopper ...string) string {
	t.Helper()
	return libraryOf(t, folder, true, hopper...)
}

// libraryOf is Library for the *.cu of a folder, of the module or anywhere.
func libraryOf(t testing.TB, folder string, checked bool, hopper ...string) string {
	t.Helper()
	emulation.Available(t, "the emulated CUDA driver")
	mu.Lock()
	defer mu.Unlock()
	key := fmt.Sprint(folder, checked, hopper)
	if path, ok := built[key]; ok {
		return path
	}
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	include := filepath.Join(root, "cuda/kernels")
	if filepath.IsAbs(folder) {
		include = folder
	} else {
		folder = filepath.Join(root, folder)
	}
	b := builder{
		runtime: filepath.Join(root, "cuda/emulator/runtime"),
		include: include,
		kernels: folder,
		cache:   emulation.OpenCache(),
		checked: checked,
		hopper:  hopper,
	}
	path, err := b.build()
	if err != nil {
		t.Fatal(err)
	}
	built[key] = path
	return path
}

// moduleRoot looks for go.mod from the working directory upwards: tests run in
// their package's folder.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", os.ErrNotExist
		}
		dir = parent
	}
}
