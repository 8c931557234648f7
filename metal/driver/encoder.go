package driver

import "unsafe"

const (
	// MaxBytes is the most that one SetBytes takes.
	MaxBytes = 4 << 10
	// MaxBindings is the number of buffers and bytes that a kernel can have.
	MaxBindings = 31
	// ThreadgroupGranule is what lengths of threadgroup memory are multiples of.
	ThreadgroupGranule = 16
)

// Encoder lists dispatches. Pipeline and bindings stay set from one dispatch to
// the next.
type Encoder struct {
	commands        *CommandBuffer
	rt              *Runtime
	id              uintptr
	groups, threads Size
}

// SetPipeline chooses the kernel of the next dispatches.
func (e *Encoder) SetPipeline(p *Pipeline) {
	e.commands.keep(&p.resource)
	e.rt.send(e.id, selSetPipeline, p.id)
}

// SetBuffer binds a buffer from an offset in bytes to [[buffer(index)]].
func (e *Encoder) SetBuffer(index int, b *Buffer, offset int) {
	e.commands.keep(&b.resource)
	e.rt.send(e.id, selSetBuffer, b.id, uintptr(offset), uintptr(index))
}

// SetBytes copies n bytes, [MaxBytes] at most, and binds the copy to
// [[buffer(index)]].
func (e *Encoder) SetBytes(index int, p unsafe.Pointer, n int) {
	e.rt.send(e.id, selSetBytes, uintptr(p), uintptr(n), uintptr(index))
}

// SetThreadgroupMemory sets the length of [[threadgroup(index)]] in bytes, a
// multiple of [ThreadgroupGranule].
func (e *Encoder) SetThreadgroupMemory(index, n int) {
	e.rt.send(e.id, selSetThreadgroupMemory, uintptr(n), uintptr(index))
}

// Dispatch runs the kernel in threadgroups of so many threads.
func (e *Encoder) Dispatch(groups, threads Size) {
	e.groups, e.threads = groups, threads
	e.rt.api.SendSizes(e.id, e.rt.selectors[selDispatch], &e.groups, &e.threads)
}

// End closes the list. Ending twice has no effect.
func (e *Encoder) End() {
	if e.id != 0 {
		e.rt.send(e.id, selEndEncoding)
		e.rt.send(e.id, selRelease)
		e.id = 0
	}
}
