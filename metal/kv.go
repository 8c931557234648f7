package metal

import (
	"fmt"

	"windrow/backend"
)

// kv is one sequence's keys and values in one buffer, which grows with the
// sequence: for each layer K, V, and for int8 their scales.
type kv struct {
	b        *Backend
	layout   backend.KVLayout
	data     view
	capacity int // slots
	open     bool
}

const (
	kvSlots = 64   // capacity starts at, and is a multiple of this unless the layout ends before
	kvStep  = 4096 // slots that capacity grows by at most
)

func (c *kv) Layout() backend.KVLayout { return c.layout }
func (c *kv) Bytes() int64             { return int64(c.capacity) * c.layout.BytesPerToken() }

// Close frees the storage.
func (c *kv) Close() {
	if c.open {
		c.open = false
		c.release()
		delete(c.b.kvs, c)
	}
}

func (c *kv) release() {
	if c.capacity > 0 {
		c.b.memory.free(c.data)
		c.capacity = 0
	}
}

// NewKV makes storage that takes its memory as it is written.
func (b *Backend) NewKV(l backend.KVLayout) (backend.KV, error) {
	if b.memory == nil {
		return nil, errClosed
	}
	if err := l.Check(); err != nil {
		return nil, fmt.Errorf("metal: %w", err)
	}
	c := &kv{b: b, layout: l, open: true}
	b.kvs[c] = true
	return c, nil
}

// kvPlan is where the parts of a layer lie, in bytes.
type kvPlan struct {
	values, scales int // of all heads, K's or V's; scales 0 but for int8
	layer          int
}

func planKV(l backend.KVLayout, capacity int) (p kvPlan) {
	heads := l.KVHeads * capacity
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
	return p
}

// reserve makes room for the slots of indices up to to. Nothing that was
// submitted may still run.
func (c *kv) reserve(to int) error {
	slots := min(to, c.layout.Slots)
	if slots <= c.capacity {
		return nil
	}
	capacity := max(c.capacity, kvSlots)
	for capacity < slots {
		capacity += min(capacity, kvStep)
	}
	capacity = min(capacity, c.layout.Slots)
	p := planKV(c.layout, capacity)
	data, err := c.b.memory.alloc(p.layer*c.layout.Layers, elemBytes)
	if err != nil {
		return fmt.Errorf("%w, for keys and values of %d tokens", err, capacity)
	}
	if c.capacity > 0 {
		c.copyTo(data, p, capacity)
		c.b.memory.free(c.data)
	}
	c.data, c.capacity = data, capacity
	return nil
}

// copyTo moves all slots into storage of another capacity, head by head.
func (c *kv) copyTo(data view, p kvPlan, capacity int) {
	was := planKV(c.layout, c.capacity)
	from := c.b.memory.bytes(c.data, was.layer*c.layout.Layers)
	to := c.b.memory.bytes(data, p.layer*c.layout.Layers)
	if from == nil {
		return
	}
	vector := int(c.layout.BytesPerToken()) / (2 * c.layout.Layers * c.layout.KVHeads)
	scales := 0
	if c.layout.DType == backend.KVInt8 {
		scales = 4 * ((c.layout.HeadDim + backend.KVGroup - 1) / backend.KVGroup)
		vector -= scales
	}
	heads := func(to, from []byte, slot int) {
		for h := range c.layout.KVHeads {
			copy(to[h*capacity*slot:], from[h*c.capacity*slot:(h+1)*c.capacity*slot])
		}
	}
	for i := range c.layout.Layers {
		a, b := from[i*was.layer:], to[i*p.layer:]
		heads(b, a, vector)
		heads(b[p.values:], a[was.values:], vector)
		if scales > 0 {
			heads(b[2*p.values:], a[2*was.values:], scales)
			heads(b[2*p.values+p.scales:], a[2*was.values+was.scales:], scales)
		}
	}
}

// layer is the storage of one layer as kernels see it.
func (c *kv) layer(i int) kvView {
	p := planKV(c.layout, c.capacity)
	at := c.data.at(i * p.layer)
	switch c.layout.DType {
	case backend.KVBF16:
		at.elem = elemBF16
	case backend.KVF16:
		at.elem = elemF16
	case backend.KVF32:
		at.elem = elemF32
	}
	y := kvView{
		k: at, v: at.at(p.values), dtype: c.layout.DType,
		capacity: c.capacity, slots: c.layout.Slots, window: c.layout.Window, keep: c.layout.Keep,
	}
	if p.scales > 0 {
		y.kScales, y.vScales = at.at(2*p.values), at.at(2*p.values+p.scales)
		y.kScales.elem, y.vScales.elem = elemF32, elemF32
	}
	return y
}
