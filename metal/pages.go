package metal

import (
	"fmt"

	"github.com/edsrzf/mmap-go"

	"windrow/metal/driver"
)

// pageSlots is how many slots of all layers a page holds (pages.h.metal). The lines
// that a tile of attention takes at once divide it.
const pageSlots = 64

// pool is the pages of one size that sequences take and give back: a paging.Pool. They
// lie one after the other in one buffer, so that a number finds one.
type pool struct {
	b     *Backend
	size  int // bytes of a page
	room  region
	data  view    // of page 0
	pages int     // that there are
	free  []int32 // the next one last
}

// poolOf is the pool of pages of that many bytes.
func (b *Backend) poolOf(size int) *pool {
	size = max(size, 1) // without layers with keys there is nothing in a page but its number
	p := b.pools[size]
	if p == nil {
		p = &pool{b: b, size: size}
		b.pools[size] = p
	}
	return p
}

// Take takes a page.
func (p *pool) Take() (int32, error) {
	if err := p.need(1); err != nil {
		return 0, err
	}
	last := len(p.free) - 1
	page := p.free[last]
	p.free = p.free[:last]
	return page, nil
}

// need sees to n free pages.
func (p *pool) need(n int) error {
	for {
		missing := n - len(p.free)
		if missing <= 0 {
			return nil
		}
		// A quarter more each time: what a longer buffer costs the system grows with it.
		// But no page that the budget refuses.
		more := p.pages / 4
		if _, limit := p.b.budget.Used(); limit > 0 {
			more = int(min(int64(more), limit/int64(p.size)-int64(p.pages)))
		}
		err := p.grow(max(missing, more))
		if err != nil && more > missing {
			err = p.grow(missing)
		}
		if err != nil && !p.b.trim() {
			return err
		}
	}
}

// Give gives a page back, for the next sequence.
func (p *pool) Give(page int32) { p.free = append(p.free, page) }

// Copy makes a page like another.
func (p *pool) Copy(to, from int32) error {
	copy(p.bytes(to), p.bytes(from))
	return nil
}

// bytes is the host's side of a page; nil where only costs are counted.
func (p *pool) bytes(page int32) []byte {
	return p.b.memory.bytes(p.data.at(int(page)*p.size), p.size)
}

// grow adds n pages.
func (p *pool) grow(n int) (err error) {
	if p.room == nil {
		if p.room, err = p.b.memory.region(); err != nil {
			return err
		}
	}
	data, err := p.room.grow((p.pages + n) * p.size)
	if err != nil {
		return err
	}
	p.data = data
	for i := p.pages + n - 1; i >= p.pages; i-- {
		p.free = append(p.free, int32(i))
	}
	p.pages += n
	return nil
}

// trim gives the memory of pools back of which nobody has a page, and reports whether
// there was one.
func (b *Backend) trim() (some bool) {
	for _, p := range b.pools {
		if p.pages > 0 && len(p.free) == p.pages {
			p.close()
			some = true
		}
	}
	return some
}

func (p *pool) close() {
	if p.room != nil {
		p.room.free()
	}
	*p = pool{b: p.b, size: p.size}
}

// region is memory of the device that grows in place: nothing in it moves.
type region interface {
	// grow makes it at least n bytes long. After an error it is as it was. The view
	// before is not used any more.
	grow(n int) (view, error)
	free()
}

// gpuRegion is a range of the host's addresses, of which a buffer without a copy shares
// the beginning. Memory is what the buffer takes, not what the range does.
type gpuRegion struct {
	memory  gpuMemory
	mapping mmap.MMap
	all     []byte // of the mapping from a page of the GPU on
	shared  view
}

// region reserves as many addresses as one buffer may have, or what the host gives.
func (m gpuMemory) region() (region, error) {
	n := m.maxBuffer() &^ (driver.PageSize - 1)
	for {
		// Copy on write: private to the process.
		all, err := mmap.MapRegion(nil, n+driver.PageSize, mmap.COPY, mmap.ANON, 0)
		if err == nil {
			return &gpuRegion{memory: m, mapping: all, all: all[-address(all)&(driver.PageSize-1):][:n]}, nil
		}
		if n = n / 2 &^ (driver.PageSize - 1); n == 0 {
			return nil, fmt.Errorf("metal: no addresses for keys and values: %w", err)
		}
	}
}

func (r *gpuRegion) grow(n int) (view, error) {
	n = aligned(n, driver.PageSize)
	if n > len(r.all) {
		return view{}, fmt.Errorf("metal: keys and values of %d bytes; a buffer takes %d", n, len(r.all))
	}
	v, err := r.memory.wrap(r.all[:n])
	if err != nil {
		return view{}, err
	}
	if r.shared.buffer != nil {
		r.memory.free(r.shared)
	}
	r.shared = v
	return v, nil
}

func (r *gpuRegion) free() {
	if r.shared.buffer != nil {
		r.memory.free(r.shared)
	}
	_ = r.mapping.Unmap() // nobody has a use for its error
}
