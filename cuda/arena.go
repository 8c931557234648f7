package cuda

import (
	"windrow/cuda/driver"
)

// arena gives the activations of a pass their addresses. Passes of the same
// operations get the same addresses, which is what lets graphs be replayed.
type arena struct {
	chunks []arenaChunk
	arenaMark
}

// arenaMark is how far an arena has been given out.
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

// reset forgets what was given.
func (a *arena) reset() { a.at, a.offset = 0, 0 }

// take gives n bytes. It allocates where no chunk has room: addresses given
// before stay, and those given in later passes of other operations may change.
func (a *arena) take(ctx *driver.Context, n int) (driver.Ptr, error) {
	n = (n + arenaAlign - 1) &^ (arenaAlign - 1)
	for ; a.at < len(a.chunks); a.at, a.offset = a.at+1, 0 {
		if c := a.chunks[a.at]; a.offset+n <= c.size {
			p := c.base + driver.Ptr(a.offset)
			a.offset += n
			return p, nil
		}
	}
	size := max(n, arenaChunkBytes)
	p, err := ctx.Alloc(size)
	if err != nil {
		return 0, err
	}
	a.chunks = append(a.chunks, arenaChunk{p, size})
	a.offset = n
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
