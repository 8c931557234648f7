// Package driver speaks to Metal through Objective-C messages, without cgo and
// without build tags above the one file that binds the runtime: devices,
// buffers, libraries of kernels, command buffers. It knows nothing of models.
//
// A [Device] and all that it makes belong to one goroutine at a time.
package driver

import (
	"runtime"
	"unsafe"
)

// API is the Objective-C runtime and the two functions of Metal that are no
// messages. Open binds the real one; tests bring their own.
type API interface {
	// Send is objc_msgSend for arguments and results of pointer size or less.
	Send(id, sel uintptr, args ...uintptr) uintptr
	// SendSizes sends a message whose arguments are two MTLSize by value.
	SendSizes(id, sel uintptr, a, b *Size)
	// SendFloat sends a message without arguments that returns a double.
	SendFloat(id, sel uintptr) float64
	// Sel is sel_registerName, Class is objc_getClass.
	Sel(name string) uintptr
	Class(name string) uintptr
	// SystemDefaultDevice is MTLCreateSystemDefaultDevice, CopyAllDevices is
	// MTLCopyAllDevices: the caller owns the result.
	SystemDefaultDevice() uintptr
	CopyAllDevices() uintptr
	// PoolPush and PoolPop are objc_autoreleasePoolPush and -Pop. Pools belong
	// to a thread.
	PoolPush() uintptr
	PoolPop(pool uintptr)
}

// Size is MTLSize: threads or threadgroups in x, y and z.
type Size struct{ Width, Height, Depth uint64 }

// Runtime is an Objective-C runtime with its selectors registered.
type Runtime struct {
	api       API
	selectors [selectorCount]uintptr
	classes   [classCount]uintptr
}

// New makes a Runtime of an API.
func New(api API) *Runtime {
	r := &Runtime{api: api}
	for i, name := range selectorNames {
		r.selectors[i] = api.Sel(name)
	}
	for i, name := range classNames {
		r.classes[i] = api.Class(name)
	}
	return r
}

// send sends a message. Pointers are converted in the argument list of the
// call: the directive keeps what they point at in place and alive for its
// duration.
//
//go:uintptrescapes
func (r *Runtime) send(id uintptr, s selector, args ...uintptr) uintptr {
	return r.api.Send(id, r.selectors[s], args...)
}

// ask sends a message that returns a BOOL, of which only the low byte counts.
func (r *Runtime) ask(id uintptr, s selector, args ...uintptr) bool {
	return r.api.Send(id, r.selectors[s], args...)&0xff != 0
}

// responds reports whether an object understands a message.
func (r *Runtime) responds(id uintptr, s selector) bool {
	return r.ask(id, selRespondsToSelector, r.selectors[s])
}

// Pool runs f on one OS thread in an autorelease pool, which frees what f's
// messages autoreleased. Methods of this package that need a pool make their
// own; one around many of them saves time. Pools nest.
func (r *Runtime) Pool(f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pool := r.api.PoolPush()
	defer r.api.PoolPop(pool)
	f()
}

// pointer makes a pointer of an address that came from outside Go.
func pointer(address uintptr) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&address))
}
