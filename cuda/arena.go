package cuda

import (
	"windrow/cuda/driver"
)

// arena is the memory of activations. Forwards take turns with it: each begins at its
// start. Its chunks never move, so a graph's addresses stay good.
type arena struct{ chunks []arenaChunk }

// arenaMark is how far an arena has been given out to a plan.
type arenaMark struct {
	at     int // chunk in use
	offset int
}

type arenaChunk struct {
	base driver.Ptr
	size int
}

const (
	arenaAlign      = 256
	arenaChunkBytes = 32 << 20
)

// take gives n bytes behind a mark, and moves it. It allocates where no chunk has room.
func (a *arena) take(ctx *driver.Context, m *arenaMark, n int) (driver.Ptr, error) {
	n = (n + arenaAlign - 1) &^ (arenaAlign - 1)
	for ; m.at < len(a.chunks); m.at, m.offset = m.at+1, 0 {
		if c := a.chunks[m.at]; m.offset+n <= c.size {
			p := c.base + driver.Ptr(m.offset)
			m.offset += n
			return p, nil
		}
	}
	size := max(n, arenaChunkBytes)
	p, err := ctx.Alloc(size)
	if err != nil {
		return 0, err
	}
	a.chunks = append(a.chunks, arenaChunk{p, size})
	m.offset = n
	return p, nil
}

func (a *arena) free(ctx *driver.Context) {
	for _, c := range a.chunks {
		ctx.Free(c.base)
	}
	*a = arena{}
}

// exchange is memory on both sides that one copy a step moves: page-locked on
// the host, and as large on the device.
type exchange struct {
	host   *driver.Pinned
	device driver.Ptr
	size   int
}

// grow makes room for n bytes and tells whether addresses changed.
func (x *exchange) grow(ctx *driver.Context, n int) (changed bool, err error) {
	if n <= x.size {
		return false, nil
	}
	x.free(ctx)
	n = max(powerOfTwo(n), 1<<20)
	if x.host, err = ctx.HostAlloc(n); err != nil {
		return true, err
	}
	if x.device, err = ctx.Alloc(n); err != nil {
		x.host.Close()
		x.host = nil
		return true, err
	}
	x.size = n
	return true, nil
}

func (x *exchange) free(ctx *driver.Context) {
	if x.host != nil {
		x.host.Close()
		ctx.Free(x.device)
	}
	*x = exchange{}
}

// outbox is page-locked memory of the host that kernels write results to: a copy
// behind them costs 7 µs of a step more.
type outbox struct {
	host *driver.Pinned
	size int
}

// grow makes room for n bytes and tells whether the address changed.
func (x *outbox) grow(ctx *driver.Context, n int) (changed bool, err error) {
	if n <= x.size {
		return false, nil
	}
	x.free()
	n = max(powerOfTwo(n), 1<<20)
	if x.host, err = ctx.HostAlloc(n); err != nil {
		return true, err
	}
	x.size = n
	return true, nil
}

func (x *outbox) free() {
	if x.host != nil {
		x.host.Close()
	}
	*x = outbox{}
}
