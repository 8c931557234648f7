package launch

import (
	"windrow/cuda/driver"
)

// Arena is the memory of activations. Forwards take turns with it: each begins at its
// start. Its chunks never move, so a graph's addresses stay good.
type Arena struct{ chunks []arenaChunk }

// ArenaMark is how far an arena has been given out to a plan.
type ArenaMark struct {
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

// Take gives n bytes behind a mark, and moves it. It allocates where no chunk has room.
func (a *Arena) Take(ctx *driver.Context, m *ArenaMark, n int) (driver.Ptr, error) {
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

// Free gives all of the arena back; its addresses are good no more.
func (a *Arena) Free(ctx *driver.Context) {
	for _, c := range a.chunks {
		ctx.Free(c.base)
	}
	*a = Arena{}
}

// Exchange is memory on both sides that one copy a step moves: page-locked on
// the host, and as large on the device.
type Exchange struct {
	Host   *driver.Pinned
	Device driver.Ptr
	Size   int
}

// Grow makes room for n bytes and reports whether addresses changed.
func (x *Exchange) Grow(ctx *driver.Context, n int) (changed bool, err error) {
	if n <= x.Size {
		return false, nil
	}
	x.Free(ctx)
	n = max(PowerOfTwo(n), 1<<20)
	if x.Host, err = ctx.HostAlloc(n); err != nil {
		return true, err
	}
	if x.Device, err = ctx.Alloc(n); err != nil {
		x.Host.Close()
		x.Host = nil
		return true, err
	}
	x.Size = n
	return true, nil
}

// Free gives both sides back.
func (x *Exchange) Free(ctx *driver.Context) {
	if x.Host != nil {
		x.Host.Close()
		ctx.Free(x.Device)
	}
	*x = Exchange{}
}

// Outbox is page-locked memory of the host that kernels write results to: a copy
// behind them costs 7 µs of a step more.
type Outbox struct {
	Host *driver.Pinned
	size int
}

// Grow makes room for n bytes and reports whether the address changed.
func (x *Outbox) Grow(ctx *driver.Context, n int) (changed bool, err error) {
	if n <= x.size {
		return false, nil
	}
	x.Free()
	n = max(PowerOfTwo(n), 1<<20)
	if x.Host, err = ctx.HostAlloc(n); err != nil {
		return true, err
	}
	x.size = n
	return true, nil
}

// Free gives the memory back.
func (x *Outbox) Free() {
	if x.Host != nil {
		x.Host.Close()
	}
	*x = Outbox{}
}
