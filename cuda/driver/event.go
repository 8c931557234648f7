package driver

import (
	"math"
	"time"
	"unsafe"
)

// Event is a mark in a stream.
type Event struct {
	ctx    *Context
	handle uintptr
	record [2]uintptr
	wait   [1]uintptr
}

// NewEvent makes an event that has not been recorded.
func (c *Context) NewEvent() (*Event, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	e := &Event{ctx: c}
	if err := c.api.call(&c.api.eventCreate, uintptr(unsafe.Pointer(&e.handle)), 0); err != nil {
		return nil, c.wrap(err)
	}
	e.record[0], e.wait[0] = e.handle, e.handle
	keep(c, c.events, e)
	return e, nil
}

// Record queues the event behind the stream's work so far.
func (e *Event) Record(s *Stream) error {
	if e.handle == 0 || s.handle == 0 {
		return errClosed
	}
	e.record[1] = s.handle
	return s.queued(&e.ctx.api.eventRecord, e.record[:])
}

// Synchronize waits until the stream has come to the event.
func (e *Event) Synchronize() error {
	if e.handle == 0 {
		return errClosed
	}
	return e.ctx.wrap(e.ctx.api.callBlock(&e.ctx.api.eventSynchronize, e.wait[:]))
}

// Elapsed is the time between two events that have been reached, to about half
// a microsecond.
func Elapsed(a, b *Event) (time.Duration, error) {
	if a.handle == 0 || b.handle == 0 {
		return 0, errClosed
	}
	var bits uint32 // of a float of milliseconds
	if err := a.ctx.api.call(&a.ctx.api.eventElapsed, uintptr(unsafe.Pointer(&bits)), a.handle, b.handle); err != nil {
		return 0, a.ctx.wrap(err)
	}
	return time.Duration(float64(math.Float32frombits(bits)) * float64(time.Millisecond)), nil
}

// Close destroys the event.
func (e *Event) Close() error {
	if !drop(e.ctx, e.ctx.events, e) {
		return nil
	}
	handle := e.handle
	e.handle = 0
	return e.ctx.wrap(e.ctx.api.call(&e.ctx.api.eventDestroy, handle))
}
