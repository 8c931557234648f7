package metal

import (
	"cmp"
	"context"

	"windrow/metal/driver"
)

// memory is where a backend keeps what kernels work on, and how it submits
// them: a GPU, or a count of what one would do.
type memory interface {
	// alloc makes memory that host and device share.
	alloc(bytes int, e elem) (view, error)
	// wrap shares the host's memory, whole pages, which must stay until they are
	// freed.
	wrap(pages []byte) (view, error)
	// region is memory that grows, empty as yet.
	region() (region, error)
	free(v view)
	// bytes is the host's side of n bytes of v; nil where only costs are counted.
	bytes(v view, n int) []byte
	// submit hands what f dispatches to the GPU, in order; after an error none of it
	// runs. wait, which must be called, waits for it.
	submit(ctx context.Context, f func(e encoder)) (wait func() error, err error)
	// maxBuffer is the largest number of bytes of one buffer.
	maxBuffer() int
}

// gpuMemory is the memory of a GPU: each call is a job of its goroutine.
type gpuMemory struct{ gpu *gpu }

func (m gpuMemory) alloc(bytes int, e elem) (v view, err error) {
	closed := m.gpu.do(func() { v, err = m.gpu.device.alloc(bytes, e) })
	return v, cmp.Or(closed, err)
}

func (m gpuMemory) wrap(pages []byte) (v view, err error) {
	closed := m.gpu.do(func() { v, err = m.gpu.device.wrap(pages, elemBytes) })
	return v, cmp.Or(closed, err)
}

// free does nothing once the gpu is closed.
func (m gpuMemory) free(v view) { _ = m.gpu.do(func() { m.gpu.device.free(v) }) }

func (m gpuMemory) bytes(v view, n int) []byte { return v.bytes()[:n] }

func (m gpuMemory) submit(ctx context.Context, f func(e encoder)) (wait func() error, err error) {
	var commands *driver.CommandBuffer
	closed := m.gpu.doContext(ctx, func() { commands, err = m.gpu.device.submit(f) })
	if err = cmp.Or(closed, err); err != nil {
		return nil, err
	}
	return func() (err error) {
		closed := m.gpu.do(func() { err = m.gpu.device.wait(commands) })
		return cmp.Or(closed, err)
	}, nil
}

func (m gpuMemory) maxBuffer() int { return m.gpu.device.info.MaxBufferLength }

// arena gives the activations of a forward their places, in memory that is kept
// for the next.
type arena struct {
	chunks []arenaChunk
	at     int // chunk in use
	offset int
	least  int // bytes of a chunk
}

type arenaChunk struct {
	view view
	size int
}

const (
	arenaAlign      = 256
	arenaChunkBytes = 16 << 20
)

// reset forgets what was given.
func (a *arena) reset() { a.at, a.offset = 0, 0 }

// take gives n bytes; what was given before stays where it is.
func (a *arena) take(m memory, n int, e elem) (view, error) {
	n = aligned(n, arenaAlign)
	for ; a.at < len(a.chunks); a.at, a.offset = a.at+1, 0 {
		if c := a.chunks[a.at]; a.offset+n <= c.size {
			v := c.view.at(a.offset)
			v.elem = e
			a.offset += n
			return v, nil
		}
	}
	size := max(n, a.least)
	v, err := m.alloc(size, elemBytes)
	if err != nil {
		return view{}, err
	}
	a.chunks = append(a.chunks, arenaChunk{v, size})
	a.offset = n
	v.elem = e
	return v, nil
}

func (a *arena) free(m memory) {
	for _, c := range a.chunks {
		m.free(c.view)
	}
	*a = arena{least: a.least}
}

// aligned rounds n up to a multiple of a, a power of two.
func aligned(n, a int) int { return (n + a - 1) &^ (a - 1) }
