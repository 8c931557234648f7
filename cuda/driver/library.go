package driver

import "fmt"

// Library is a shared library that was opened at run time. It stays open
// until the program ends.
type Library struct {
	Path   string
	handle uintptr
}

// OpenLibrary opens the first of the paths that the system's loader accepts.
// A name without a folder is looked for where the loader looks. The error is
// the one of the last path that names a folder, else of the first.
func OpenLibrary(paths ...string) (*Library, error) {
	var kept error
	for i, path := range paths {
		handle, err := openLibrary(path)
		if err == nil {
			return &Library{Path: path, handle: handle}, nil
		}
		if i == 0 || !isBareName(path) && fileExists(path) {
			kept = err
		}
	}
	if kept == nil {
		kept = fmt.Errorf("no library named")
	}
	return nil, kept
}

// Symbol finds the address of a function; an error names the function.
func (l *Library) Symbol(name string) (uintptr, error) {
	address, err := findSymbol(l.handle, name)
	if err == nil && address == 0 {
		err = fmt.Errorf("null address")
	}
	if err != nil {
		return 0, fmt.Errorf("%s: no function %s: %w", l.Path, name, err)
	}
	return address, nil
}
