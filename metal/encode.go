// Package metal is the backend for Apple GPUs: kernels in Metal Shading
// Language, driven by Objective-C messages without cgo. docs/metal.md is its
// design. It has not yet run on hardware.
package metal

import (
	"unsafe"

	"windrow/metal/driver"
)

// elem is the element type of device memory.
type elem uint8

const (
	elemF32 elem = iota + 1
	elemF16
	elemBF16
	elemU32
	elemBytes // packed weights
)

// view is a place in device memory.
type view struct {
	buffer *driver.Buffer // nil: nothing is there, or only costs are counted
	offset int            // in bytes
	elem   elem
}

// at is v, n bytes further.
func (v view) at(n int) view {
	v.offset += n
	return v
}

// cost is what a dispatch must at least move and compute.
type cost struct {
	read, written int64 // bytes
	flops         int64
}

// arg is one binding: a view, or the bytes of a parameter struct.
type arg struct {
	view   view
	params unsafe.Pointer // to a struct without pointers; nil: view
	size   uintptr
}

// bind makes the binding of a view.
func bind(v view) arg { return arg{view: v} }

// params makes the binding of a parameter struct, which must not change
// before the dispatch is encoded.
func params[T any](p *T) arg { return arg{params: unsafe.Pointer(p), size: unsafe.Sizeof(*p)} }

// size3 counts threads or threadgroups in x, y and z.
type size3 [3]int

// dispatch is one launch of a kernel.
type dispatch struct {
	file, kernel    string // metal/kernels/<file>.metal, host name
	args            []arg  // in the order of [[buffer(i)]], from 0
	threadgroup     int    // bytes of [[threadgroup(0)]]; 0: none
	groups, threads size3  // threadgroups, and threads in each
	cost            cost
}

// encoder takes the dispatches of a forward in order. It holds errors back.
type encoder interface {
	dispatch(d dispatch)
}
