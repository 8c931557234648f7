//go:build !windows

package driver

import (
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// driverPaths are the places of the driver's library: the loader's own path,
// then the folders that container runtimes and WSL use without telling the
// loader.
var driverPaths = []string{
	"libcuda.so.1",
	"/usr/local/nvidia/lib64/libcuda.so.1",
	"/usr/lib/x86_64-linux-gnu/libcuda.so.1",
	"/usr/lib/aarch64-linux-gnu/libcuda.so.1",
	"/usr/lib64/libcuda.so.1",
	"/usr/lib/wsl/lib/libcuda.so.1",
	"/run/opengl-driver/lib/libcuda.so.1",
}

func isBareName(path string) bool { return !strings.Contains(path, "/") }

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// prefetch asks for the pages of a mapped file to be read ahead. It is a hint:
// where it is not understood, the first use of the pages reads them.
func prefetch(b []byte) {
	page := uintptr(os.Getpagesize())
	skip := int(-uintptr(unsafe.Pointer(&b[0])) & (page - 1))
	if skip < len(b) {
		_ = unix.Madvise(b[skip:], unix.MADV_WILLNEED)
	}
}

// Populate brings the pages of a mapped file in, in one call and not in a fault
// for each 16 of them. Where the system does not know it, faults do.
func Populate(b []byte) {
	if len(b) == 0 {
		return
	}
	const populateRead = 22 // Linux's MADV_POPULATE_READ, since 5.14
	if page := uintptr(os.Getpagesize()); runtime.GOOS == "linux" {
		if skip := int(-uintptr(unsafe.Pointer(&b[0])) & (page - 1)); skip < len(b) {
			_ = unix.Madvise(b[skip:], populateRead)
		}
	}
}
