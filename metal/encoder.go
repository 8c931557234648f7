package metal

import (
	"fmt"

	"windrow/metal/driver"
)

// deviceEncoder is the encoder of a command buffer. After its first error it
// takes no more dispatches.
type deviceEncoder struct {
	device *device
	list   *driver.Encoder
	last   *driver.Pipeline
	err    error
}

func (e *deviceEncoder) dispatch(d dispatch) {
	if e.err != nil {
		return
	}
	p, err := e.device.pipeline(d.file, d.kernel)
	if err == nil {
		err = d.check(p, e.device.info.ThreadgroupMemory)
	}
	if err != nil {
		e.err = err
		return
	}
	if p != e.last {
		e.list.SetPipeline(p)
		e.last = p
	}
	for i, a := range d.args {
		switch {
		case a.params != nil:
			e.list.SetBytes(i, a.params, int(a.size))
		case a.view.buffer != nil:
			e.list.SetBuffer(i, a.view.buffer, a.view.offset)
		default:
			e.list.SetBuffer(i, e.device.nothing, 0)
		}
	}
	if d.threadgroup > 0 {
		e.list.SetThreadgroupMemory(0, roundUp(d.threadgroup, driver.ThreadgroupGranule))
	}
	e.list.Dispatch(d.groups.metal(), d.threads.metal())
}

// check compares a dispatch with the limits of Metal and of its kernel; memory
// is the device's threadgroup memory.
func (d *dispatch) check(p *driver.Pipeline, memory int) error {
	fail := func(format string, a ...any) error {
		return fmt.Errorf("metal: kernel %s of %s: %s", d.kernel, d.file, fmt.Sprintf(format, a...))
	}
	for i := range 3 {
		if d.groups[i] <= 0 || d.threads[i] <= 0 {
			return fail("%v groups of %v threads", d.groups, d.threads)
		}
	}
	if n := d.threads[0] * d.threads[1] * d.threads[2]; n > p.MaxThreads() {
		return fail("%d threads a group; it takes %d", n, p.MaxThreads())
	}
	if n := roundUp(d.threadgroup, driver.ThreadgroupGranule) + p.ThreadgroupMemory(); n > memory {
		return fail("%d bytes of threadgroup memory; the device has %d", n, memory)
	}
	if len(d.args) > driver.MaxBindings {
		return fail("%d bindings; Metal takes %d", len(d.args), driver.MaxBindings)
	}
	for i, a := range d.args {
		switch {
		case a.params != nil:
			if a.size > driver.MaxBytes {
				return fail("%d bytes of parameters at %d; Metal takes %d", a.size, i, driver.MaxBytes)
			}
		case a.view.buffer != nil:
			v := a.view
			if v.offset < 0 || v.offset >= v.buffer.Length() {
				return fail("buffer %d begins at byte %d of %d", i, v.offset, v.buffer.Length())
			}
			if n := v.elem.alignment(); n == 0 || v.offset%n != 0 {
				return fail("buffer %d begins at byte %d, elements are %d bytes", i, v.offset, n)
			}
		}
	}
	return nil
}

// alignment is what the address of an element is a multiple of, in bytes; 0 is
// no element. Packed weights are read by two bytes at least.
func (e elem) alignment() int {
	switch e {
	case elemF32, elemU32:
		return 4
	case elemF16, elemBF16, elemBytes:
		return 2
	}
	return 0
}

// roundUp is the least multiple of granule that is not below n.
func roundUp(n, granule int) int { return (n + granule - 1) / granule * granule }

func (s size3) metal() driver.Size {
	return driver.Size{Width: uint64(s[0]), Height: uint64(s[1]), Depth: uint64(s[2])}
}
