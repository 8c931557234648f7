package driver

import (
	"fmt"
	"runtime"

	"github.com/ebitengine/purego"
)

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

// Call calls a C function whose arguments are whole numbers and pointers, and
// returns its int. Pointers converted in the call's argument list stay alive
// for its duration. It allocates the argument list: frequent calls keep one
// and use CallBlock.
//
//go:uintptrescapes
func Call(function uintptr, args ...uintptr) int32 {
	r, _, _ := purego.SyscallN(function, args...)
	return int32(r)
}

// CallBlock is Call with an argument list that the caller keeps on the heap
// and alive, and whose pointers it keeps alive; it allocates nothing.
func CallBlock(function uintptr, args []uintptr) int32 {
	r, _, _ := purego.SyscallN(function, args...)
	runtime.KeepAlive(args)
	return int32(r)
}
