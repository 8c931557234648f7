package metal

import (
	"fmt"
	"math"

	"windrow/backend"
)

// kv is one sequence's keys and values, in pages that are taken when they are first
// written.
type kv struct {
	b      *Backend
	layout backend.KVLayout
	plan   kvPlan
	pool   *pool   // nil before the first page
	pages  []int32 // those of the slots from pageSlots · i on
	open   bool
}

func (c *kv) Layout() backend.KVLayout { return c.layout }
func (c *kv) Bytes() int64             { return int64(len(c.pages)) * int64(c.plan.page) }

// Close gives the pages back.
func (c *kv) Close() {
	if c.open {
		c.open = false
		if c.pool != nil {
			c.pool.give(c.pages)
		}
		c.pages = nil
		delete(c.b.kvs, c)
	}
}

// NewKV makes storage that takes its pages as they are written.
func (b *Backend) NewKV(l backend.KVLayout) (backend.KV, error) {
	if b.memory == nil {
		return nil, errClosed
	}
	if err := l.Check(); err != nil {
		return nil, fmt.Errorf("metal: %w", err)
	}
	c := &kv{b: b, layout: l, plan: planKV(l), open: true}
	if c.plan.page > math.MaxUint32 {
		return nil, fmt.Errorf("metal: kv layout %+v: %d tokens take %d bytes, want at most %d", l, pageSlots, c.plan.page, math.MaxUint32)
	}
	b.kvs[c] = true
	return c, nil
}

// kvPlan is where the parts of a layer lie in a page, in bytes.
type kvPlan struct {
	values, scales int // of all heads, K's or V's; scales 0 but for int8
	layer, page    int
}

func planKV(l backend.KVLayout) (p kvPlan) {
	heads := l.KVHeads * pageSlots
	switch l.DType {
	case backend.KVInt8:
		p.values = heads * l.HeadDim
		p.scales = aligned(4*heads*((l.HeadDim+backend.KVGroup-1)/backend.KVGroup), arenaAlign)
	case backend.KVBF16, backend.KVF16:
		p.values = 2 * heads * l.HeadDim
	default:
		p.values = 4 * heads * l.HeadDim
	}
	p.values = aligned(p.values, arenaAlign)
	p.layer = 2 * (p.values + p.scales)
	p.page = l.Layers * p.layer
	return p
}

// reserve takes the pages of the slots of indices up to to.
func (c *kv) reserve(to int) error {
	n := (min(to, c.layout.Slots)+pageSlots-1)/pageSlots - len(c.pages)
	if n <= 0 {
		return nil
	}
	if c.pool == nil {
		c.pool = c.b.poolOf(c.plan.page)
	}
	pages, err := c.pool.take(n)
	if err != nil {
		return fmt.Errorf("%w, for keys and values of %d more tokens", err, n*pageSlots)
	}
	c.pages = append(c.pages, pages...)
	return nil
}

// layer is the storage of one layer as kernels see it. The table is what c.pages says,
// in memory of the device.
func (c *kv) layer(i int, table view) kvView {
	return c.plan.view(c.layout, c.pool.data, table, i)
}

// view is one layer of pages, the first of which is at data.
func (p kvPlan) view(l backend.KVLayout, data, table view, layer int) kvView {
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
