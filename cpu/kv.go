package cpu

import (
	"encoding/binary"
	"math"

	"windrow/backend"
	"windrow/cpu/kernels"
	"windrow/quant"
)

// pageSlots is the number of slots in a page, and the number of keys in an
// attention tile: a tile of a cache that does not rotate is one page.
const pageSlots = kernels.PageSlots

// maxF16 is the largest number of f16: larger keys and values are stored as it,
// so that one of them cannot make a sequence infinite.
const maxF16 = 65504

// kv is one sequence's keys and values, in pages that are made when first
// written: memory follows the tokens held, not the capacity.
//
// A page holds, for each layer and KV head, pageSlots keys and then pageSlots
// values, so that attention reads runs of pageSlots · head bytes.
type kv struct {
	layout backend.KVLayout
	row    int // bytes of one head's vector
	pages  [][]byte

	// transposed: values are kept [head dim, pageSlots] in each tile, for attendPages,
	// and those past the last row of a forward are 0. written is how many indices
	// of each layer may not be.
	transposed bool
	written    []int
}

// NewKV reserves nothing yet but the page table.
func (b *Backend) NewKV(l backend.KVLayout) (backend.KV, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	per := l.BytesPerToken() / int64(2*l.Layers*l.KVHeads)
	c := &kv{layout: l, row: int(per), pages: make([][]byte, (l.Slots+pageSlots-1)/pageSlots)}
	if b.transposes(l) {
		c.transposed, c.written = true, make([]int, l.Layers)
	}
	return c, nil
}

func (c *kv) Layout() backend.KVLayout { return c.layout }

func (c *kv) pageBytes() int {
	return 2 * c.layout.Layers * c.layout.KVHeads * pageSlots * c.row
}

// Bytes counts the pages made so far.
func (c *kv) Bytes() (n int64) {
	for _, p := range c.pages {
		n += int64(len(p))
	}
	return n
}

func (c *kv) Close() { c.pages = nil }

// reserve makes the pages for indices [from, to).
func (c *kv) reserve(from, to int) {
	for i := from; i < to; i++ {
		if p := c.layout.Slot(i) / pageSlots; c.pages[p] == nil {
			c.pages[p] = make([]byte, c.pageBytes())
			adviseHugePages(c.pages[p])
		}
	}
}

// run returns the bytes of n keys (or values) of a head from an index on; the
// n indices must lie in one page and not wrap.
func (c *kv) run(layer, head int, values bool, index, n int) []byte {
	slot := c.layout.Slot(index)
	at := (layer*c.layout.KVHeads + head) * 2
	if values {
		at++
	}
	at = (at*pageSlots + slot%pageSlots) * c.row
	return c.pages[slot/pageSlots][at : at+n*c.row]
}

// tile is the page's keys and values of a head around an index.
func (c *kv) tile(layer, head, index int) []byte {
	slot := c.layout.Slot(index)
	n := 2 * pageSlots * c.row
	at := (layer*c.layout.KVHeads + head) * n
	return c.pages[slot/pageSlots][at : at+n]
}

// store encodes one head's vector.
func (c *kv) store(k *kernels.Table, layer, head int, values bool, index int, x []float32) {
	dst := c.run(layer, head, values, index, 1)
	switch c.layout.DType {
	case backend.KVF32:
		for i, v := range x {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
		}
	case backend.KVBF16:
		k.NarrowBF16(dst, x)
	case backend.KVF16:
		for i, v := range x {
			binary.LittleEndian.PutUint16(dst[2*i:], quant.F32ToF16(max(min(v, maxF16), -maxF16)))
		}
	case backend.KVInt8:
		var q [backend.KVGroup]int8
		scales := dst[len(x):]
		for g := 0; g*backend.KVGroup < len(x); g++ {
			group := x[g*backend.KVGroup : min((g+1)*backend.KVGroup, len(x))]
			s := quant.Int8Scale(group)
			quant.Int8(q[:], group, s)
			for i := range group {
				dst[g*backend.KVGroup+i] = byte(q[i])
			}
			binary.LittleEndian.PutUint32(scales[4*g:], math.Float32bits(s))
		}
	}
}

// load widens n consecutive indices of a head into dst [n, head dim].
func (c *kv) load(k *kernels.Table, dst []float32, layer, head int, values bool, index, n int) {
	d := c.layout.HeadDim
	for n > 0 {
		// One run ends at the page's end, at the last kept slot, and at the
		// ring's end.
		slot := c.layout.Slot(index)
		m := min(n, pageSlots-slot%pageSlots, c.layout.Slots-slot)
		if c.layout.Window != 0 && index < c.layout.Keep {
			m = min(m, c.layout.Keep-index)
		}
		src := c.run(layer, head, values, index, m)
		switch c.layout.DType {
		case backend.KVF32:
			kernels.WidenF32(dst[:m*d], src)
		case backend.KVBF16:
			k.WidenBF16(dst[:m*d], src)
		case backend.KVF16:
			k.WidenF16(dst[:m*d], src)
		case backend.KVInt8:
			for i := range m {
				row, out := src[i*c.row:(i+1)*c.row], dst[i*d:(i+1)*d]
				for g := 0; g*backend.KVGroup < d; g++ {
					a, b := g*backend.KVGroup, min((g+1)*backend.KVGroup, d)
					s := math.Float32frombits(binary.LittleEndian.Uint32(row[d+4*g:]))
					k.WidenInt8(out[a:b], row[a:b], s)
				}
			}
		}
		dst, index, n = dst[m*d:], index+m, n-m
	}
}
