//go:build !windows

package driver

import (
	"os"
	"strings"

	"github.com/ebitengine/purego"
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

// openLibrary keeps a library's symbols to itself, so that two versions of one
// library do not meet.
func openLibrary(path string) (uintptr, error) {
	return purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

func findSymbol(handle uintptr, name string) (uintptr, error) { return purego.Dlsym(handle, name) }

func isBareName(path string) bool { return !strings.Contains(path, "/") }

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
