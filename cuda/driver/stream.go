package driver

import (
	"fmt"
	"unsafe"
)

// Stream is a queue of work that the device does in order. Its methods but
// Synchronize return once the work is queued. They allocate nothing: the
// argument lists of the driver's calls are part of the stream.
type Stream struct {
	ctx       *Context
	handle    uintptr
	wait      [1]uintptr
	copy      [4]uintptr
	launch    launchBlock
	capturing bool
	captured  int // operations queued since BeginCapture
}

// streamNonBlocking: the stream does not wait for the default stream.
const streamNonBlocking = 1

// NewStream makes a stream.
func (c *Context) NewStream() (*Stream, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	s := &Stream{ctx: c}
	if err := c.api.call(&c.api.streamCreate, uintptr(unsafe.Pointer(&s.handle)), streamNonBlocking); err != nil {
		return nil, c.wrap(err)
	}
	s.wait[0] = s.handle
	s.launch.init(s.handle)
	keep(c, c.streams, s)
	return s, nil
}

// Handle is the driver's CUstream, for libraries that queue work of their own.
func (s *Stream) Handle() uintptr { return s.handle }

// CopyIn queues a copy of n bytes from offset of pinned memory. The memory
// must stay as it is until the copy is done.
func (s *Stream) CopyIn(dst Ptr, src *Pinned, offset, n int) error {
	address, err := src.within(offset, n)
	if err != nil {
		return err
	}
	return s.queueCopy(&s.ctx.api.uploadAsync, uintptr(dst), address, n)
}

// CopyOut queues a copy of n bytes to offset of pinned memory.
func (s *Stream) CopyOut(dst *Pinned, offset int, src Ptr, n int) error {
	address, err := dst.within(offset, n)
	if err != nil {
		return err
	}
	return s.queueCopy(&s.ctx.api.downloadAsync, address, uintptr(src), n)
}

// Copy queues a copy within the device of n bytes, which may not overlap.
func (s *Stream) Copy(dst, src Ptr, n int) error {
	return s.queueCopy(&s.ctx.api.copyAsync, uintptr(dst), uintptr(src), n)
}

// Zero queues the clearing of n bytes.
func (s *Stream) Zero(dst Ptr, n int) error {
	if n < 0 {
		return fmt.Errorf("cuda: clearing of %d bytes", n)
	}
	if n == 0 {
		return nil
	}
	if s.handle == 0 {
		return errClosed
	}
	s.copy = [4]uintptr{uintptr(dst), 0, uintptr(n), s.handle}
	return s.queued(&s.ctx.api.zeroAsync, s.copy[:])
}

func (s *Stream) queueCopy(p *proc, dst, src uintptr, n int) error {
	if n < 0 {
		return fmt.Errorf("cuda: copy of %d bytes", n)
	}
	if n == 0 {
		return nil
	}
	if s.handle == 0 {
		return errClosed
	}
	s.copy = [4]uintptr{dst, src, uintptr(n), s.handle}
	return s.queued(p, s.copy[:])
}

// queued calls a function that queues one operation, and counts it.
func (s *Stream) queued(p *proc, args []uintptr) error {
	if err := s.ctx.api.callBlock(p, args); err != nil {
		return s.ctx.wrap(err)
	}
	if s.capturing {
		s.captured++
	}
	return nil
}

// Synchronize waits until all queued work is done. An error may come from any
// of it.
func (s *Stream) Synchronize() error {
	if s.handle == 0 {
		return errClosed
	}
	return s.ctx.wrap(s.ctx.api.callBlock(&s.ctx.api.streamSynchronize, s.wait[:]))
}

// Close waits for the stream's work and destroys the stream.
func (s *Stream) Close() error {
	if !drop(s.ctx, s.ctx.streams, s) {
		return nil
	}
	handle := s.handle
	s.handle = 0
	return s.ctx.wrap(s.ctx.api.call(&s.ctx.api.streamDestroy, handle))
}
