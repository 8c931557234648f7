package cuda

import (
	"errors"
	"fmt"

	"windrow/backend"
	"windrow/cuda/driver"
)

// pageSlots is how many slots of all layers one page holds.
const pageSlots = 64

// kv is one sequence's keys and values, in pages that are taken when they are
// first written.
type kv struct {
	b      *Backend
	layout backend.KVLayout
	pages  []driver.Ptr
	open   bool
}

func (c *kv) Layout() backend.KVLayout { return c.layout }
func (c *kv) Bytes() int64 {
	return int64(len(c.pages)) * pageSlots * c.layout.BytesPerToken()
}

// Close gives the pages back to the backend.
func (c *kv) Close() {
	if c.open {
		c.open = false
		if c.b.device != nil { // else the pages are gone
			size := pageBytes(c.layout)
			c.b.freePages[size] = append(c.b.freePages[size], c.pages...)
		}
		c.pages = nil
	}
}

// pageBytes: for each layer K and V, for each KV head a tile of 64 vectors.
func pageBytes(l backend.KVLayout) int {
	return pageSlots * int(l.BytesPerToken())
}

// NewKV makes storage that takes its pages as they are written.
func (b *Backend) NewKV(l backend.KVLayout) (backend.KV, error) {
	if err := checkKV(l); err != nil {
		return nil, err
	}
	return &kv{b: b, layout: l, open: true}, nil
}

// CheckKVType refuses the types of keys and values that no kernel of this package
// takes.
func CheckKVType(t backend.KVType) error {
	if t == backend.KVF16 {
		return errors.New("cuda: keys and values in f16: want f32, bf16 or int8")
	}
	return nil
}

func checkKV(l backend.KVLayout) error {
	if err := l.Check(); err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	if err := CheckKVType(l.DType); err != nil {
		return err
	}
	if l.HeadDim > maxHeadDim {
		return fmt.Errorf("cuda: kv heads of %d: at most %d", l.HeadDim, maxHeadDim)
	}
	return nil
}

// maxHeadDim is what the exact attention kernel holds in registers.
const maxHeadDim = 256

// reserve takes the pages up to the slots of indices [from, to).
func (c *kv) reserve(from, to int) error {
	last := c.layout.Slot(to - 1)
	if c.layout.Window != 0 && to > c.layout.Slots {
		last = c.layout.Slots - 1
	}
	for len(c.pages) <= last/pageSlots {
		p, err := c.b.page(pageBytes(c.layout))
		if err != nil {
			return err
		}
		c.pages = append(c.pages, p)
	}
	return nil
}

// slabBytes bounds how much is taken from the device at once for pages.
const slabBytes = 64 << 20

// page takes a free page, or a slab of new ones.
func (b *Backend) page(size int) (driver.Ptr, error) {
	free := b.freePages[size]
	if len(free) == 0 {
		n := max(1, min(16, slabBytes/size))
		b.device.ctx.Enter()
		defer b.device.ctx.Leave()
		slab, err := b.device.ctx.Alloc(n * size)
		if err != nil && n > 1 {
			n = 1
			slab, err = b.device.ctx.Alloc(size)
		}
		if err != nil {
			return 0, fmt.Errorf("cuda: no memory for 64 more tokens: %w", err)
		}
		b.owned = append(b.owned, slab)
		for i := n - 1; i >= 0; i-- {
			free = append(free, slab+driver.Ptr(i*size))
		}
	}
	p := free[len(free)-1]
	b.freePages[size] = free[:len(free)-1]
	return p, nil
}
