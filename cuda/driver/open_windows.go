package driver

import (
	"os"
	"strings"

	"golang.org/x/sys/windows"
)

var driverPaths = []string{"nvcuda.dll"}

// openLibrary looks for a bare name in the system's folder only: the driver is
// there, and a file of that name beside the program is not to be trusted.
func openLibrary(path string) (uintptr, error) {
	var flags uintptr = windows.LOAD_LIBRARY_SEARCH_DEFAULT_DIRS | windows.LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR
	if isBareName(path) {
		flags = windows.LOAD_LIBRARY_SEARCH_SYSTEM32
	}
	handle, err := windows.LoadLibraryEx(path, 0, flags)
	return uintptr(handle), err
}

func findSymbol(handle uintptr, name string) (uintptr, error) {
	return windows.GetProcAddress(windows.Handle(handle), name)
}

func isBareName(path string) bool { return !strings.ContainsAny(path, `/\`) }

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// prefetch leaves the reading of a mapped file to the first use of its pages.
func prefetch([]byte) {}

// Populate leaves it, too.
func Populate([]byte) {}
