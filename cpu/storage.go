package cpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"windrow/backend"
	"windrow/backend/paging"
	"windrow/cpu/kernels"
	"windrow/quant"
)

// pageSlots is the number of keys in an attention tile too: a tile of a storage that
// does not rotate is one page.
const pageSlots = kernels.PageSlots

// A page of the kernels is a page of the backends.
var _ = [1]struct{}{}[pageSlots-backend.PageTokens]

// maxF16 is the largest number of f16: larger keys and values are stored as it,
// so that one of them cannot make a sequence infinite.
const maxF16 = 65504

// storage is one sequence's keys and values.
//
// A page holds, for each layer with keys and each KV head, pageSlots keys and then
// pageSlots values, so that attention reads runs of pageSlots · head bytes.
type storage struct {
	paging.Sequence[page, *states]
	b      *Backend
	layout backend.Layout
	keys   backend.Keys
	row    int // bytes of one head's vector

	// transposed: values are kept [head dim, pageSlots] in each tile, for attendPages,
	// and those past the last row of a forward are 0 in that row's page. written tells,
	// for each layer with keys, where they may not be.
	transposed bool
	written    []written
}

// written is what of a layer's values may not be zero: those of indices below far, but
// for those between near and the end of its page. near is -1 where nobody knows.
type written struct{ near, far int }

// NewStorage takes nothing yet but the page table.
func (b *Backend) NewStorage(l backend.Layout) (backend.Storage, error) {
	if err := l.Check(); err != nil {
		return nil, fmt.Errorf("cpu: %w", err)
	}
	var s paging.Sequence[page, *states]
	if l.Recurrent() {
		s.States = paging.NewStates(l, &statePool{l}, b.marks, &b.budget)
	}
	s.Table = paging.New(l, b.slabsOf(int(l.Keys().PageBytes()), b.transposes(&l)), &b.budget)
	return b.storageOf(s), nil
}

func (b *Backend) storageOf(s paging.Sequence[page, *states]) *storage {
	c := &storage{Sequence: s, b: b, layout: s.Layout()}
	c.keys = c.layout.Keys()
	c.row = c.keys.RowBytes()
	if b.transposes(&c.layout) {
		c.transposed, c.written = true, make([]written, c.keys.Layers)
	}
	return c
}

// Budget is what all storage is taken from.
func (b *Backend) Budget() *backend.Budget { return &b.budget }

// Fork shares the full pages of the first n indices, and copies the last.
func (c *storage) Fork(n, slots int) (backend.Storage, error) {
	s, err := c.Sequence.Fork(n, slots)
	if err != nil {
		return nil, fmt.Errorf("cpu: %w", err)
	}
	y := c.b.storageOf(s)
	for i := range y.written {
		y.written[i] = written{near: -1, far: min(c.written[i].far, pageEnd(n))}
	}
	return y, nil
}

// Export copies a page; values that are kept by dimension are brought in order.
func (c *storage) Export(i int, dst []byte) error {
	page, err := c.Page(i, dst)
	if err != nil {
		return fmt.Errorf("cpu: export: %w", err)
	}
	c.carry(page.memory, dst, false)
	return nil
}

// Import writes a page.
func (c *storage) Import(i int, src []byte) error {
	page, err := c.NewPage(i, src)
	if err != nil {
		return fmt.Errorf("cpu: import: %w", err)
	}
	if len(src) > 0 && &src[0] != &page.memory[0] { // else it is there, as Filled left it
		c.carry(page.memory, src, true)
	}
	for layer := range c.written {
		c.written[layer] = written{near: -1, far: max(c.written[layer].far, min((i+1)*pageSlots, c.layout.Slots))}
	}
	return nil
}

// Room is a page's own memory: Import does not copy what is there.
func (c *storage) Room(i int) ([]byte, error) {
	page, err := c.Sequence.Room(i)
	if err != nil {
		return nil, fmt.Errorf("cpu: import: %w", err)
	}
	return page.memory, nil
}

// Filled turns values that are kept by dimension.
func (c *storage) Filled(room []byte) {
	if !c.transposed {
		return
	}
	half := pageSlots * c.row
	plain := make([]byte, half)
	for at := half; at < len(room); at += 2 * half {
		values := room[at : at+half]
		copy(plain, values)
		transpose16(values, plain, pageSlots, c.keys.HeadDim)
	}
}

// carry copies a page to or from its exported form.
func (c *storage) carry(page, exported []byte, in bool) {
	if !c.transposed {
		if in {
			copy(page, exported)
		} else {
			copy(exported, page)
		}
		return
	}
	half, d := pageSlots*c.row, c.keys.HeadDim
	for at := 0; at < len(page); at += 2 * half {
		keys, plainKeys := page[at:at+half], exported[at:at+half]
		values, plain := page[at+half:at+2*half], exported[at+half:at+2*half]
		if in {
			copy(keys, plainKeys)
			transpose16(values, plain, pageSlots, d)
		} else {
			copy(plainKeys, keys)
			transpose16(plain, values, d, pageSlots)
		}
	}
}

// transpose16 writes the columns of src [rows, cols] to dst [cols, rows], numbers of two
// bytes each. rows and cols are multiples of 4: four by four are turned in registers. With
// slices and their bounds in place of pointers it takes 2.2 times as long.
func transpose16(dst, src []byte, rows, cols int) {
	const even, low = 0x0000ffff0000ffff, 1<<32 - 1
	dst, src = dst[:2*rows*cols], src[:2*rows*cols]
	for k := 0; k < cols; k += 4 {
		for r := 0; r < rows; r += 4 {
			from := unsafe.Pointer(&src[2*(r*cols+k)])
			a0, a1 := *(*uint64)(from), *(*uint64)(unsafe.Add(from, 2*cols))
			a2, a3 := *(*uint64)(unsafe.Add(from, 4*cols)), *(*uint64)(unsafe.Add(from, 6*cols))
			t0, t1 := a0&even|a1&even<<16, a0>>16&even|a1&^even
			t2, t3 := a2&even|a3&even<<16, a2>>16&even|a3&^even
			to := unsafe.Pointer(&dst[2*(k*rows+r)])
			*(*uint64)(to) = t0&low | t2<<32
			*(*uint64)(unsafe.Add(to, 2*rows)) = t1&low | t3<<32
			*(*uint64)(unsafe.Add(to, 4*rows)) = t0>>32 | t2&^low
			*(*uint64)(unsafe.Add(to, 6*rows)) = t1>>32 | t3&^low
		}
	}
}

// run returns the bytes of n keys (or values) of a head from an index on; the
// n indices must lie in one page and not wrap.
func (c *storage) run(layer, head int, values bool, index, n int) []byte {
	slot := c.layout.Slot(index)
	at := (layer*c.keys.KVHeads + head) * 2
	if values {
		at++
	}
	at = (at*pageSlots + slot%pageSlots) * c.row
	return c.At(slot / pageSlots).memory[at : at+n*c.row]
}

// tile is the page's keys and values of a head around an index.
func (c *storage) tile(layer, head, index int) []byte {
	slot := c.layout.Slot(index)
	n := 2 * pageSlots * c.row
	at := (layer*c.keys.KVHeads + head) * n
	return c.At(slot / pageSlots).memory[at : at+n]
}

// store encodes one head's vector.
func (c *storage) store(k *kernels.Table, layer, head int, values bool, index int, x []float32) {
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
func (c *storage) load(k *kernels.Table, dst []float32, layer, head int, values bool, index, n int) {
	d := c.keys.HeadDim
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
