package driver

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Open binds the Objective-C runtime and Metal.
func Open() (*Runtime, error) {
	o := &objc{}
	var metal, foundation uintptr
	for _, library := range []struct {
		path   string
		handle *uintptr
	}{
		{"/usr/lib/libobjc.A.dylib", &o.library},
		{"/System/Library/Frameworks/Foundation.framework/Foundation", &foundation},
		// Without it a command-line tool may be told that there is no device.
		{"/System/Library/Frameworks/CoreGraphics.framework/CoreGraphics", new(uintptr)},
		{"/System/Library/Frameworks/Metal.framework/Metal", &metal},
	} {
		handle, err := purego.Dlopen(library.path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
		if err != nil {
			return nil, fmt.Errorf("metal: %w", err)
		}
		*library.handle = handle
	}
	for _, symbol := range []struct {
		library uintptr
		name    string
		address *uintptr
	}{
		{o.library, "objc_msgSend", &o.msgSend},
		{o.library, "sel_registerName", &o.registerName},
		{o.library, "objc_getClass", &o.getClass},
		{o.library, "objc_autoreleasePoolPush", &o.push},
		{o.library, "objc_autoreleasePoolPop", &o.pop},
		{metal, "MTLCreateSystemDefaultDevice", &o.defaultDevice},
		{metal, "MTLCopyAllDevices", &o.allDevices},
	} {
		address, err := purego.Dlsym(symbol.library, symbol.name)
		if err != nil {
			return nil, fmt.Errorf("metal: %w", err)
		}
		*symbol.address = address
	}
	// The result of a double comes in another register than SyscallN returns.
	purego.RegisterFunc(&o.sendFloat, o.msgSend)
	return New(o), nil
}

// objc is the API of the real runtime: addresses of its functions.
type objc struct {
	library                                    uintptr
	msgSend, registerName, getClass, push, pop uintptr
	defaultDevice, allDevices                  uintptr
	sendFloat                                  func(id, sel uintptr) float64
}

func (o *objc) Send(id, sel uintptr, args ...uintptr) uintptr {
	var all [8]uintptr
	all[0], all[1] = id, sel
	n := 2 + copy(all[2:], args)
	result, _, _ := purego.SyscallN(o.msgSend, all[:n]...)
	return result
}

// SendSizes passes structs of 24 bytes by value: on arm64 that is a pointer to a
// copy, on amd64 the stack, after the four registers that are left.
func (o *objc) SendSizes(id, sel uintptr, a, b *Size) {
	if runtime.GOARCH == "arm64" {
		purego.SyscallN(o.msgSend, id, sel, uintptr(unsafe.Pointer(a)), uintptr(unsafe.Pointer(b)))
		return
	}
	purego.SyscallN(o.msgSend, id, sel, 0, 0, 0, 0,
		uintptr(a.Width), uintptr(a.Height), uintptr(a.Depth), uintptr(b.Width), uintptr(b.Height), uintptr(b.Depth))
}

func (o *objc) SendFloat(id, sel uintptr) float64 { return o.sendFloat(id, sel) }

func (o *objc) Sel(name string) uintptr { return call(o.registerName, name) }

func (o *objc) Class(name string) uintptr { return call(o.getClass, name) }

// call calls a function of one C string.
func call(function uintptr, text string) uintptr {
	b := append([]byte(text), 0)
	result, _, _ := purego.SyscallN(function, uintptr(unsafe.Pointer(&b[0])))
	return result
}

func (o *objc) SystemDefaultDevice() uintptr {
	id, _, _ := purego.SyscallN(o.defaultDevice)
	return id
}

func (o *objc) CopyAllDevices() uintptr {
	id, _, _ := purego.SyscallN(o.allDevices)
	return id
}

func (o *objc) PoolPush() uintptr {
	pool, _, _ := purego.SyscallN(o.push)
	return pool
}

func (o *objc) PoolPop(pool uintptr) { purego.SyscallN(o.pop, pool) }
