package fakeobjc

import (
	"bytes"
	"unsafe"

	"windrow/metal/driver"
)

const (
	wantedOptions = 0   // shared, hazards tracked
	guard         = 256 // bytes beside a buffer that nobody may write
	alignment     = 64
)

// buffer is device memory. Its own allocation has guards on both sides.
type buffer struct {
	memory      []byte
	allocation  []byte // of a buffer with memory of its own
	before, end int    // where the memory lies in the allocation
	freed       bool
}

func init() {
	methods["MTLBuffer"] = map[string]method{
		"contents": func(_ *Fake, o *object, _ []uintptr) uintptr {
			return uintptr(unsafe.Pointer(&o.data.(*buffer).memory[0]))
		},
		"length": func(_ *Fake, o *object, _ []uintptr) uintptr { return uintptr(len(o.data.(*buffer).memory)) },
	}
}

// fits reports whether a buffer of n bytes can be had.
func (f *Fake) fits(n int, options uintptr) bool {
	if options != wantedOptions {
		f.bad("buffer options %#x; want shared storage, tracked hazards", options)
	}
	if n <= 0 || n > f.options.MaxBufferLength {
		f.bad("buffer of %d bytes", n)
		return false
	}
	return f.options.Memory == 0 || f.memory+n <= f.options.Memory
}

func (f *Fake) newBuffer(n int, options uintptr) uintptr {
	if !f.fits(n, options) {
		return 0
	}
	all := make([]byte, n+2*guard+alignment)
	start := guard + int(-(uintptr(unsafe.Pointer(&all[0]))+guard)&(alignment-1))
	for i := range all {
		all[i] = 0xff
	}
	b := &buffer{memory: all[start : start+n : start+n], allocation: all, before: start, end: start + n}
	return f.keepBuffer(b)
}

func (f *Fake) newBufferNoCopy(address uintptr, n int, options, deallocator uintptr) uintptr {
	if !f.fits(n, options) {
		return 0
	}
	if deallocator != 0 {
		f.bad("a deallocator, which would be called on another thread")
	}
	if address%driver.PageSize != 0 || n%driver.PageSize != 0 {
		f.bad("newBufferWithBytesNoCopy: %d bytes at %#x are not whole pages", n, address)
		return 0
	}
	return f.keepBuffer(&buffer{memory: unsafe.Slice((*byte)(pointer(address)), n)})
}

func (f *Fake) keepBuffer(b *buffer) uintptr {
	o := f.make("MTLBuffer")
	o.data = b
	f.memory += len(b.memory)
	return o.id
}

var untouched = bytes.Repeat([]byte{0xff}, guard+alignment)

// intact reports whether nobody wrote beside the buffer.
func (b *buffer) intact() bool {
	return b.allocation == nil ||
		bytes.HasPrefix(untouched, b.allocation[:b.before]) && bytes.HasPrefix(untouched, b.allocation[b.end:])
}

// mend makes the buffer intact, once that it was not has been told.
func (b *buffer) mend() {
	copy(b.allocation[:b.before], untouched)
	copy(b.allocation[b.end:], untouched)
}

func (b *buffer) dealloc(f *Fake) {
	if !b.intact() {
		f.bad("somebody wrote beside a buffer of %d bytes", len(b.memory))
	}
	b.freed = true
	f.memory -= len(b.memory)
	if b.allocation != nil { // who still looks at it sees NaN
		for i := range b.memory {
			b.memory[i] = 0xff
		}
	}
}
