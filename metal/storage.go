package metal

import (
	"fmt"
	"math"

	"windrow/backend"
	"windrow/backend/paging"
)

// storage is one sequence's keys and values.
type storage struct {
	paging.Sequence[int32, *states] // pages by their numbers in the pool
	b                               *Backend
	layout                          backend.Layout
	keys                            backend.Keys
	plan                            kvPlan
	pool                            *pool
	numbers                         []int32 // table's, kept between forwards
}

// NewStorage makes storage that takes its pages as they are reserved or written.
func (b *Backend) NewStorage(l backend.Layout) (backend.Storage, error) {
	if b.memory == nil {
		return nil, errClosed
	}
	if err := l.Check(); err != nil {
		return nil, fmt.Errorf("metal: %w", err)
	}
	page := planKV(l.Keys()).page
	if page > math.MaxUint32 {
		return nil, fmt.Errorf("metal: storage of %+v: %d tokens take %d bytes, want at most %d", l.Keys(), pageSlots, page, math.MaxUint32)
	}
	var s paging.Sequence[int32, *states]
	if l.Recurrent() {
		s.States = paging.NewStates(l, &statePool{b, l}, b.marks, &b.budget)
	}
	s.Table = paging.New(l, b.poolOf(page), &b.budget)
	return b.storageOf(s), nil
}

func (b *Backend) storageOf(s paging.Sequence[int32, *states]) *storage {
	c := &storage{Sequence: s, b: b, layout: s.Layout()}
	c.keys = c.layout.Keys()
	c.plan = planKV(c.keys)
	c.pool = b.poolOf(c.plan.page)
	b.stored[c] = true
	return c
}

// Budget is what all storage is taken from.
func (b *Backend) Budget() *backend.Budget { return &b.budget }

// Close gives pages and states up.
func (c *storage) Close() {
	c.Sequence.Close()
	delete(c.b.stored, c)
}

// Reserve takes the states, and the pages of the first indices, or nothing.
func (c *storage) Reserve(tokens int) error {
	err := c.ReserveBy(tokens, func(tokens int) error {
		if err := c.ahead(0, tokens); err != nil {
			return err
		}
		return c.Table.Reserve(tokens)
	})
	if err != nil {
		return fmt.Errorf("metal: %w", err)
	}
	return nil
}

// Writable sees to pages for indices [from, to).
func (c *storage) Writable(from, to int) error {
	if err := c.ahead(from, to); err != nil {
		return err
	}
	return c.Table.Writable(from, to)
}

// ahead sees to free pages in the pool for indices [from, to): the table takes one
// after the other, but what the pool cannot have in one piece it is not to grow to in
// many, nor is it to grow for what the budget refuses.
func (c *storage) ahead(from, to int) error {
	if !c.Open() {
		return paging.ErrClosed
	}
	missing := 0
	for i := from / pageSlots; i < kvPages(min(to, c.layout.Slots)); i++ {
		if !c.Has(i) {
			missing++
		}
	}
	bytes := int64(missing) * int64(c.plan.page)
	if used, limit := c.b.budget.Used(); limit > 0 && bytes > limit-used {
		return nil // the table says so
	}
	if err := c.pool.need(missing); err != nil {
		return &backend.MemoryError{Span: -1, Bytes: bytes, Err: err}
	}
	return nil
}

// kvPages is how many pages that many slots have.
func kvPages(slots int) int { return (slots + pageSlots - 1) / pageSlots }

// table is which pages the first indices are in. It is valid until the next call.
func (c *storage) table(tokens int) []int32 {
	c.numbers = c.numbers[:0]
	for i := range kvPages(min(tokens, c.layout.Slots)) {
		c.numbers = append(c.numbers, c.At(i))
	}
	return c.numbers
}

// Fork shares the states and the full pages of the first n indices, and copies the last.
func (c *storage) Fork(n, slots int) (backend.Storage, error) {
	s, err := c.Sequence.Fork(n, slots)
	if err != nil {
		return nil, fmt.Errorf("metal: %w", err)
	}
	return c.b.storageOf(s), nil
}

// Export copies a page; heads' parts are brought together, and int8 rows with their
// scales.
func (c *storage) Export(i int, dst []byte) error {
	page, err := c.Page(i, dst)
	if err != nil {
		return fmt.Errorf("metal: export: %w", err)
	}
	c.carry(c.pool.bytes(page), dst, false)
	return nil
}

// Import writes a page.
func (c *storage) Import(i int, src []byte) error {
	page, err := c.NewPage(i, src)
	if err != nil {
		return fmt.Errorf("metal: import: %w", err)
	}
	c.carry(c.pool.bytes(page), src, true)
	return nil
}

// carry copies a page to or from its exported form.
func (c *storage) carry(page, exported []byte, in bool) {
	if page == nil {
		return // costs are counted, nothing is stored
	}
	p := c.plan
	// move copies the next n bytes of the exported page.
	move := func(at, n int) {
		if in {
			copy(page[at:at+n], exported)
		} else {
			copy(exported[:n], page[at:])
		}
		exported = exported[n:]
	}
	for layer := range c.keys.Layers {
		for head := range c.keys.KVHeads {
			for part := range 2 { // keys, values
				lines := layer*p.layer + part*p.values + head*pageSlots*p.line
				scales := layer*p.layer + 2*p.values + part*p.scales + head*pageSlots*p.scale
				if p.scale == 0 {
					move(lines, pageSlots*p.line)
					continue
				}
				for slot := range pageSlots {
					move(lines+slot*p.line, p.line)
					move(scales+slot*p.scale, p.scale)
				}
			}
		}
	}
}

// kvPlan is where the parts of a layer lie in a page, in bytes. A part has 64 vectors of
// an even number of elements: each begins at a multiple of 128, and a page is exactly
// backend.Keys.PageBytes, which the budget counts.
type kvPlan struct {
	line, scale    int // of a head's vector at a slot: elements, scales; 0 but for int8
	values, scales int // of all heads, K's or V's
	layer, page    int
}

func planKV(k backend.Keys) (p kvPlan) {
	p.line = k.RowBytes()
	if k.DType == backend.KVInt8 {
		p.line, p.scale = k.HeadDim, p.line-k.HeadDim
	}
	p.values, p.scales = k.KVHeads*pageSlots*p.line, k.KVHeads*pageSlots*p.scale
	p.layer = 2 * (p.values + p.scales)
	p.page = k.Layers * p.layer
	return p
}

// layer is the storage of one layer of those with keys, as kernels see it. The table is
// what c.table says, in memory of the device.
func (c *storage) layer(i int, table view) kvView {
	return c.plan.view(c.layout, c.pool.data, table, i)
}

// view is one layer of pages, the first of which is at data.
func (p kvPlan) view(l backend.Layout, data, table view, layer int) kvView {
	at := data.at(layer * p.layer)
	switch l.DType {
	case backend.KVBF16:
		at.elem = elemBF16
	case backend.KVF16:
		at.elem = elemF16
	case backend.KVF32:
		at.elem = elemF32
	default:
		at.elem = elemBytes
	}
	y := kvView{k: at, v: at.at(p.values), dtype: l.DType, table: table, page: p.page, slots: l.Slots, window: l.Window, keep: l.Keep}
	if p.scales > 0 {
		y.kScales, y.vScales = at.at(2*p.values), at.at(2*p.values+p.scales)
		y.kScales.elem, y.vScales.elem = elemF32, elemF32
	}
	return y
}
