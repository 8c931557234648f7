package cuda

import (
	"errors"
	"fmt"

	"windrow/backend"
	"windrow/backend/paging"
	"windrow/cuda/driver"
	"windrow/cuda/launch"
)

// storage is one sequence's keys and values, in pages that are taken when they are
// first written: for each layer with keys K and V, for each KV head a tile of 64
// vectors, in int8 all of their scales behind them.
type storage struct {
	paging.Sequence[driver.Ptr, driver.Ptr]
	b      *Backend
	layout backend.Layout
	keys   backend.Keys
	// Of a group's storage: its states, and which of the GPUs this is.
	group *groupStates
	rank  int
}

// NewStorage makes storage that takes its pages as they are written.
func (b *Backend) NewStorage(l backend.Layout) (backend.Storage, error) {
	return b.newStorage(l, &b.budget)
}

func (b *Backend) newStorage(l backend.Layout, from *backend.Budget) (*storage, error) {
	if err := checkLayout(l); err != nil {
		return nil, err
	}
	var s paging.Sequence[driver.Ptr, driver.Ptr]
	if l.Recurrent() {
		s.States = paging.NewStates(l, statePool{b, stateBytes(l)}, b.marks, from)
	}
	s.Table = paging.New(l, pages{b, int(l.Keys().PageBytes())}, from)
	return b.storageOf(s), nil
}

func (b *Backend) storageOf(s paging.Sequence[driver.Ptr, driver.Ptr]) *storage {
	l := s.Layout()
	return &storage{Sequence: s, b: b, layout: l, keys: l.Keys()}
}

// Budget is what all storage is taken from.
func (b *Backend) Budget() *backend.Budget { return &b.budget }

// CheckKVType refuses the types of keys and values that no kernel of this package
// takes.
func CheckKVType(t backend.KVType) error {
	if t == backend.KVF16 {
		return errors.New("cuda: keys and values in f16: want f32, bf16 or int8")
	}
	return nil
}

func checkLayout(l backend.Layout) error {
	if err := l.Check(); err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	for _, s := range l.States() {
		if err := launch.DeltaTakes(s); err != nil {
			return &backend.UnsupportedError{Backend: "cuda", What: err.Error()}
		}
	}
	if err := CheckKVType(l.DType); err != nil {
		return err
	}
	if n := l.Keys().HeadDim; n > launch.MaxHeadDim {
		return fmt.Errorf("cuda: kv heads of %d: at most %d", n, launch.MaxHeadDim)
	}
	return nil
}

// Fork shares the full pages of the first n indices, and copies the last.
func (c *storage) Fork(n, slots int) (backend.Storage, error) { return c.fork(n, slots) }

func (c *storage) fork(n, slots int) (*storage, error) {
	s, err := c.Sequence.Fork(n, slots)
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	return c.b.storageOf(s), nil
}

// Export copies a page from the device.
func (c *storage) Export(i int, dst []byte) error {
	page, err := c.Page(i, dst)
	if err != nil {
		return fmt.Errorf("cuda: export: %w", err)
	}
	data := make([]byte, len(dst))
	c.b.device.Context.Enter()
	defer c.b.device.Context.Leave()
	if err := c.b.device.Context.Download(data, page); err != nil {
		return err
	}
	carryPage(c.keys, data, dst, false)
	return nil
}

// Import copies a page to the device.
func (c *storage) Import(i int, src []byte) error {
	page, err := c.NewPage(i, src)
	if err != nil {
		return fmt.Errorf("cuda: import: %w", err)
	}
	data := make([]byte, len(src))
	carryPage(c.keys, data, src, true)
	c.b.device.Context.Enter()
	defer c.b.device.Context.Leave()
	return c.b.device.Context.Upload(page, data)
}

// carryPage brings a page in the order of an exported one, or back.
func carryPage(k backend.Keys, page, exported []byte, in bool) {
	move := func(page, exported []byte) {
		if in {
			copy(page, exported)
		} else {
			copy(exported, page)
		}
	}
	row, body := k.RowBytes(), k.RowBytes()
	if k.DType == backend.KVInt8 {
		body = k.HeadDim
	}
	scales := row - body
	for layer := range k.Layers {
		for part := range 2 {
			for head := range k.KVHeads {
				tile := page[((2*layer+part)*k.KVHeads+head)*launch.PageSlots*row:][:launch.PageSlots*row]
				rows := exported[((layer*k.KVHeads+head)*2+part)*launch.PageSlots*row:][:launch.PageSlots*row]
				if scales == 0 {
					move(tile, rows)
					continue
				}
				for i := range launch.PageSlots {
					move(tile[i*body:(i+1)*body], rows[i*row:i*row+body])
					move(tile[launch.PageSlots*body+i*scales:][:scales], rows[i*row+body:(i+1)*row])
				}
			}
		}
	}
}

// pages are those of one size. What is given back serves the next sequence.
type pages struct {
	b    *Backend
	size int
}

// slabBytes bounds how much is taken from the device at once for pages.
const slabBytes = 64 << 20

// Take takes a free page, or a slab of new ones.
func (p pages) Take() (driver.Ptr, error) {
	b, size := p.b, p.size
	switch {
	case b.device == nil:
		return 0, errClosed
	case size == 0: // no layer has keys
		return 0, nil
	}
	free := b.freePages[size]
	if len(free) == 0 {
		n := max(1, min(16, slabBytes/size))
		b.device.Context.Enter()
		defer b.device.Context.Leave()
		slab, err := b.device.Context.Alloc(n * size)
		if err != nil && n > 1 {
			n = 1
			slab, err = b.device.Context.Alloc(size)
		}
		if err != nil {
			return 0, err
		}
		b.owned = append(b.owned, slab)
		for i := n - 1; i >= 0; i-- {
			free = append(free, slab+driver.Ptr(i*size))
		}
	}
	page := free[len(free)-1]
	b.freePages[size] = free[:len(free)-1]
	return page, nil
}

// Give takes a page back; with the device it is gone.
func (p pages) Give(page driver.Ptr) {
	if p.b.device != nil && p.size > 0 {
		p.b.freePages[p.size] = append(p.b.freePages[p.size], page)
	}
}

// Copy waits for the copy: nothing else runs between forwards.
func (p pages) Copy(to, from driver.Ptr) error {
	d := p.b.device
	switch {
	case d == nil:
		return errClosed
	case p.size == 0:
		return nil
	}
	d.Context.Enter()
	defer d.Context.Leave()
	if err := d.Stream.Copy(to, from, p.size); err != nil {
		return err
	}
	return d.Stream.Synchronize()
}
