//go:build !windrow_nogpu

package driver

import (
	"runtime"

	"github.com/ebitengine/purego"
)

// built reports whether this build can open libraries.
const built = true

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
