//go:build !windows && !windrow_nogpu

package driver

import "github.com/ebitengine/purego"

// openLibrary keeps a library's symbols to itself, so that two versions of one
// library do not meet.
func openLibrary(path string) (uintptr, error) {
	return purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

func findSymbol(handle uintptr, name string) (uintptr, error) { return purego.Dlsym(handle, name) }
