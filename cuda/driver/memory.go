package driver

import (
	"errors"
	"fmt"
	"unsafe"
)

// ErrNoMemory says that the device's memory did not suffice.
var ErrNoMemory = errors.New("cuda: out of device memory")

// MemInfo returns the device's free and total memory in bytes.
func (c *Context) MemInfo() (free, total uint64, err error) {
	if err := c.check(); err != nil {
		return 0, 0, err
	}
	err = c.api.call(&c.api.memInfo, uintptr(unsafe.Pointer(&free)), uintptr(unsafe.Pointer(&total)))
	return free, total, c.wrap(err)
}

// Alloc reserves device memory, aligned to 256 bytes, with undefined contents.
// An error is [ErrNoMemory] where there was too little, and names the bytes
// wanted and free.
func (c *Context) Alloc(bytes int) (Ptr, error) {
	if bytes <= 0 {
		return 0, fmt.Errorf("cuda: allocation of %d bytes", bytes)
	}
	if err := c.check(); err != nil {
		return 0, err
	}
	var p Ptr
	err := c.api.call(&c.api.alloc, uintptr(unsafe.Pointer(&p)), uintptr(bytes))
	if hasCode(err, codeOutOfMemory) {
		free, total, _ := c.MemInfo()
		return 0, fmt.Errorf("%w: %s wanted, %s of %s free on %s", ErrNoMemory, size(uint64(bytes)), size(free), size(total), c.info.Name)
	}
	if err != nil {
		return 0, c.wrap(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.memory[p] = bytes
	c.allocated += int64(bytes)
	return p, nil
}

// Free returns memory of Alloc; 0 is ignored.
func (c *Context) Free(p Ptr) error {
	if p == 0 {
		return nil
	}
	c.mu.Lock()
	bytes, ok := c.memory[p]
	if ok {
		delete(c.memory, p)
		c.allocated -= int64(bytes)
	}
	c.mu.Unlock()
	if !ok {
		return fmt.Errorf("cuda: free of %#x, which is no allocation", uint64(p))
	}
	return c.wrap(c.api.call(&c.api.free, uintptr(p)))
}

// Allocated is the number of bytes of device memory that are allocated.
func (c *Context) Allocated() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.allocated
}

// Upload copies to the device and waits until the copy is there.
func (c *Context) Upload(dst Ptr, src []byte) error {
	if err := c.check(); err != nil || len(src) == 0 {
		return err
	}
	if err := c.api.call(&c.api.upload, uintptr(dst), uintptr(unsafe.Pointer(&src[0])), uintptr(len(src))); err != nil {
		return fmt.Errorf("cuda: upload of %d bytes to %#x: %w", len(src), uint64(dst), err)
	}
	// A small copy from pageable memory returns before it has arrived, and the
	// streams here do not wait for the default one.
	return c.wrap(c.api.call(&c.api.streamSynchronize, 0))
}

// Download waits for all work of the context, then copies from the device.
// It is for tests and rare results: [Stream.CopyOut] is the fast way.
func (c *Context) Download(dst []byte, src Ptr) error {
	if err := c.Synchronize(); err != nil || len(dst) == 0 {
		return err
	}
	if err := c.api.call(&c.api.download, uintptr(unsafe.Pointer(&dst[0])), uintptr(src), uintptr(len(dst))); err != nil {
		return fmt.Errorf("cuda: download of %d bytes from %#x: %w", len(dst), uint64(src), err)
	}
	return nil
}

// DownloadFloats copies floats from the device, which has them as the host does, once all
// that was queued has ended.
func (c *Context) DownloadFloats(dst []float32, src Ptr) error {
	if len(dst) == 0 {
		return c.Synchronize()
	}
	return c.Download(unsafe.Slice((*byte)(unsafe.Pointer(&dst[0])), 4*len(dst)), src)
}

// Pinned is page-locked memory of the host, which the device copies from and
// to without the processor.
type Pinned struct {
	ctx   *Context
	bytes []byte
}

// HostAlloc reserves page-locked memory; its contents are undefined.
func (c *Context) HostAlloc(bytes int) (*Pinned, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("cuda: allocation of %d bytes of pinned memory", bytes)
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	var p unsafe.Pointer
	if err := c.api.call(&c.api.hostAlloc, uintptr(unsafe.Pointer(&p)), uintptr(bytes), 0); err != nil {
		return nil, fmt.Errorf("cuda: %s of pinned memory: %w", size(uint64(bytes)), err)
	}
	m := &Pinned{c, unsafe.Slice((*byte)(p), bytes)}
	keep(c, c.pinned, m)
	return m, nil
}

// Bytes is the memory, until Close.
func (p *Pinned) Bytes() []byte { return p.bytes }

// Floats are n floats from a multiple of 4 bytes on, until Close.
func (p *Pinned) Floats(at, n int) []float32 {
	if n == 0 {
		return nil
	}
	b := p.bytes[at : at+4*n]
	return unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), n)
}

// Address is where kernels find the memory: where the host does, as addresses are
// unified on every device that 64-bit programs run on.
func (p *Pinned) Address() Ptr { return Ptr(uintptr(unsafe.Pointer(&p.bytes[0]))) }

// Close frees the memory; nobody may hold its bytes any more.
func (p *Pinned) Close() error {
	if !drop(p.ctx, p.ctx.pinned, p) {
		return nil
	}
	address := uintptr(unsafe.Pointer(&p.bytes[0]))
	p.bytes = nil
	return p.ctx.wrap(p.ctx.api.call(&p.ctx.api.hostFree, address))
}

// within checks that n bytes from offset lie in the memory, and returns their
// address.
func (p *Pinned) within(offset, n int) (uintptr, error) {
	if offset < 0 || n < 0 || n > len(p.bytes) || offset > len(p.bytes)-n {
		if p.bytes == nil {
			return 0, errClosed
		}
		return 0, fmt.Errorf("cuda: copy of %d bytes at %d of %d bytes of pinned memory", n, offset, len(p.bytes))
	}
	if n == 0 {
		return 0, nil
	}
	return uintptr(unsafe.Pointer(&p.bytes[offset])), nil
}

// size is a number of bytes for a person.
func size(bytes uint64) string {
	switch {
	case bytes >= 1<<30:
		return fmt.Sprintf("%.2f GiB", float64(bytes)/(1<<30))
	case bytes >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
	}
	return fmt.Sprintf("%d bytes", bytes)
}
