package fakeobjc

import (
	"bytes"
	"fmt"
	"unsafe"

	"windrow/metal/driver"
)

// encoder is an MTLComputeCommandEncoder. Bindings stay from one dispatch to the
// next, but one that was not set anew is taken for a mistake.
type encoder struct {
	command     *command
	ended       bool
	kernel      Kernel
	name        string
	bound       [driver.MaxBindings]binding
	threadgroup [driver.MaxBindings]struct {
		length int
		fresh  bool
	}
}

// binding is a buffer from an offset, or bytes.
type binding struct {
	buffer *buffer
	offset int
	bytes  []byte
	fresh  bool // set since the last dispatch
}

// launch is a dispatch with what is bound to it.
type launch struct {
	kernel Kernel
	name   string
	bound  []binding // those of the kernel
	launch Launch
}

func init() {
	open := func(m func(f *Fake, e *encoder, a []uintptr)) method {
		return func(f *Fake, o *object, a []uintptr) uintptr {
			if e := o.data.(*encoder); e.ended {
				f.bad("an encoder is used after endEncoding")
			} else {
				m(f, e, a)
			}
			return 0
		}
	}
	methods["MTLComputeCommandEncoder"] = map[string]method{
		"setComputePipelineState:": open(func(f *Fake, e *encoder, a []uintptr) {
			if p := f.find(a[0], "MTLComputePipelineState"); p != nil {
				e.kernel, e.name = p.data.(Kernel), p.text
			}
		}),
		"setBuffer:offset:atIndex:": open(func(f *Fake, e *encoder, a []uintptr) {
			b := f.find(a[0], "MTLBuffer")
			if b == nil || !f.index(a[2]) {
				return
			}
			if n := len(b.data.(*buffer).memory); int(a[1]) >= n {
				f.bad("setBuffer: offset %d of a buffer of %d bytes", a[1], n)
				return
			}
			e.bound[a[2]] = binding{buffer: b.data.(*buffer), offset: int(a[1]), fresh: true}
		}),
		"setBytes:length:atIndex:": open(func(f *Fake, e *encoder, a []uintptr) {
			if a[1] == 0 || a[1] > driver.MaxBytes {
				f.bad("setBytes of %d bytes", a[1])
				return
			}
			if f.index(a[2]) {
				e.bound[a[2]] = binding{bytes: bytes.Clone(unsafe.Slice((*byte)(pointer(a[0])), int(a[1]))), fresh: true}
			}
		}),
		"setThreadgroupMemoryLength:atIndex:": open(func(f *Fake, e *encoder, a []uintptr) {
			if a[0]%driver.ThreadgroupGranule != 0 || a[0] > threadgroupMemory {
				f.bad("threadgroup memory of %d bytes", a[0])
				return
			}
			if f.index(a[1]) {
				e.threadgroup[a[1]].length, e.threadgroup[a[1]].fresh = int(a[0]), true
			}
		}),
		"endEncoding": open(func(_ *Fake, e *encoder, _ []uintptr) {
			e.ended = true
			e.command.encoder = nil
		}),
		"dispatchThreadgroups:threadsPerThreadgroup:": elsewhere, // SendSizes
	}
}

func (e *encoder) dealloc(f *Fake) {
	if !e.ended {
		f.bad("an encoder is released before endEncoding")
	}
}

func (f *Fake) index(i uintptr) bool {
	if i >= driver.MaxBindings {
		f.bad("index %d; the last is %d", i, driver.MaxBindings-1)
		return false
	}
	return true
}

// dispatch checks and lists one.
func (f *Fake) dispatch(o *object, groups, threads driver.Size) {
	e := o.data.(*encoder)
	switch {
	case e.ended:
		f.bad("dispatch after endEncoding")
		return
	case e.kernel == nil:
		f.bad("dispatch without a pipeline")
		return
	case groups.Width*groups.Height*groups.Depth == 0:
		f.bad("%s: dispatch of %v threadgroups", e.name, groups)
		return
	}
	if n := threads.Width * threads.Height * threads.Depth; n == 0 || n > uint64(f.maxThreads(e.kernel)) {
		f.bad("%s: %d threads a threadgroup; it takes %d", e.name, n, f.maxThreads(e.kernel))
		return
	}
	l := launch{kernel: e.kernel, name: e.name, launch: Launch{
		Groups:      [3]int{int(groups.Width), int(groups.Height), int(groups.Depth)},
		Threads:     [3]int{int(threads.Width), int(threads.Height), int(threads.Depth)},
		Threadgroup: map[int]int{},
	}}
	if f.bindings(e, &l) {
		e.command.work = append(e.command.work, l)
	}
}

// bindings collects what is bound to a kernel, and uses it up.
func (f *Fake) bindings(e *encoder, l *launch) bool {
	before := len(f.problems)
	for _, b := range e.kernel.Bindings() {
		if b.Threadgroup {
			t := &e.threadgroup[b.Index]
			if !t.fresh {
				f.bad("%s: no length of threadgroup memory %d", e.name, b.Index)
			}
			l.launch.Threadgroup[b.Index] = t.length
			t.fresh = false
			continue
		}
		x := &e.bound[b.Index]
		have := len(x.bytes)
		if x.buffer != nil {
			have = len(x.buffer.memory) - x.offset
		}
		switch {
		case !x.fresh && have > 0:
			f.bad("%s: buffer %d is that of the dispatch before", e.name, b.Index)
		case !x.fresh:
			f.bad("%s: nothing is bound to buffer %d", e.name, b.Index)
		case have < b.Size:
			f.bad("%s: %d bytes are bound to buffer %d, which has %d", e.name, have, b.Index, b.Size)
		}
		l.bound = append(l.bound, *x)
		l.launch.Args = append(l.launch.Args, Arg{Index: b.Index})
		x.fresh = false
	}
	for i := range e.bound {
		if e.bound[i].fresh {
			f.bad("%s has no buffer %d", e.name, i)
		}
		if e.threadgroup[i].fresh {
			f.bad("%s has no threadgroup memory %d", e.name, i)
		}
		e.bound[i].fresh, e.threadgroup[i].fresh = false, false
	}
	return len(f.problems) == before
}

// run does the work of a dispatch.
func (l *launch) run(f *Fake) error {
	for i, b := range l.bound {
		arg := &l.launch.Args[i]
		if b.buffer == nil {
			arg.Memory = b.bytes
			continue
		}
		if b.buffer.freed {
			f.bad("%s: the buffer at %d was freed before the GPU was done", l.name, arg.Index)
			return fmt.Errorf("%s: freed buffer", l.name)
		}
		arg.Memory, arg.Allocation = b.buffer.memory[b.offset:], b.buffer.memory
	}
	if err := l.kernel.Run(l.launch); err != nil {
		return err
	}
	for i, b := range l.bound {
		if b.buffer != nil && !b.buffer.intact() {
			b.buffer.mend()
			return fmt.Errorf("%s: writes beside buffer %d", l.name, l.launch.Args[i].Index)
		}
	}
	return nil
}
