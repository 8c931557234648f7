package cpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"windrow/backend"
	"windrow/quant"
)

// pageSlots is the number of keys in an attention tile too: a tile of a storage that
// does not rotate is one page.
const pageSlots = backend.PageTokens

// maxF16 is the largest number of f16: larger keys and values are stored as it,
// so that one of them cannot make a sequence infinite.
const maxF16 = 65504

// storage is one sequence's keys and values, in pages that are made when first
// written: memory follows the tokens held, not the capacity.
//
// A page holds, for each layer with keys and each KV head, pageSlots keys and then
// pageSlots values, so that attention reads runs of pageSlots · head bytes.
type storage struct {
	b      *Backend
	layout backend.Layout
	keys   backend.Keys
	row    int // bytes of one head's vector
	pages  []*page

	// turned: values are kept [head dim, pageSlots] in each tile, for attendPages,
	// and those past the last row of a forward are 0. written is how many indices
	// of each layer with keys may not be.
	turned  bool
	written []int
}

// page is some tokens' keys and values, of one storage or of several.
type page struct {
	data   []byte
	owners int
}

// NewStorage takes nothing yet but the page table.
func (b *Backend) NewStorage(l backend.Layout) (backend.Storage, error) {
	if err := l.Check(); err != nil {
		return nil, fmt.Errorf("cpu: %w", err)
	}
	for _, s := range l.Layers {
		if s.Kind == backend.StoreState {
			return nil, &backend.UnsupportedError{Backend: "cpu", What: "storage of a recurrent layer's state"}
		}
	}
	c := &storage{b: b, layout: l, keys: l.Keys(), pages: make([]*page, (l.Slots+pageSlots-1)/pageSlots)}
	c.row = c.keys.RowBytes()
	if b.turns(&l) {
		c.turned, c.written = true, make([]int, c.keys.Layers)
	}
	return c, nil
}

// Budget is what all storage is taken from.
func (b *Backend) Budget() *backend.Budget { return &b.budget }

func (c *storage) Layout() backend.Layout { return c.layout }

// Bytes counts the pages made so far.
func (c *storage) Bytes() (n int64) {
	for _, p := range c.pages {
		if p != nil {
			n += int64(len(p.data))
		}
	}
	return n
}

// Close drops the pages.
func (c *storage) Close() {
	for i := range c.pages {
		c.drop(i)
	}
	c.pages = nil
}

// drop forgets a page; the last of its owners gives its memory back.
func (c *storage) drop(i int) {
	p := c.pages[i]
	if p == nil {
		return
	}
	c.pages[i] = nil
	if p.owners--; p.owners == 0 {
		c.b.budget.Give(int64(len(p.data)))
	}
}

// newPage makes a page of zeros.
func (c *storage) newPage() (*page, error) {
	n := c.keys.PageBytes()
	if err := c.b.budget.Take(n); err != nil {
		return nil, err
	}
	p := &page{data: make([]byte, n), owners: 1}
	adviseHugePages(p.data)
	return p, nil
}

// Reserve makes the pages of the first indices.
func (c *storage) Reserve(tokens int) error {
	if c.pages == nil {
		return errClosedStorage
	}
	var made []int
	for i := range (min(tokens, c.layout.Slots) + pageSlots - 1) / pageSlots {
		if c.pages[i] != nil {
			continue
		}
		p, err := c.newPage()
		if err != nil {
			for _, i := range made {
				c.drop(i)
			}
			return err
		}
		c.pages[i], made = p, append(made, i)
	}
	return nil
}

// writable makes pages of its own for indices [from, to).
func (c *storage) writable(from, to int) error {
	for i := from; i < to; i++ {
		at := c.layout.Slot(i) / pageSlots
		was := c.pages[at]
		if was != nil && was.owners == 1 {
			continue
		}
		p, err := c.newPage()
		if err != nil {
			return err
		}
		if was != nil { // another storage reads it
			copy(p.data, was.data)
			c.drop(at)
		}
		c.pages[at] = p
	}
	return nil
}

var errClosedStorage = errors.New("cpu: the storage is closed")

// Fork shares the full pages of the first n indices, and copies the last.
func (c *storage) Fork(n, slots int) (backend.Storage, error) {
	switch {
	case c.pages == nil:
		return nil, errClosedStorage
	case c.layout.Window != 0:
		return nil, errors.New("cpu: a storage that rotates cannot be forked")
	case n < 0 || n > c.layout.Slots || n > slots:
		return nil, fmt.Errorf("cpu: a fork of %d tokens with %d slots, of a storage of %d", n, slots, c.layout.Slots)
	}
	l := c.layout
	l.Slots = slots
	made, err := c.b.NewStorage(l)
	if err != nil {
		return nil, err
	}
	y := made.(*storage)
	full := n / pageSlots
	for i, p := range c.pages[:full] {
		if p == nil {
			y.Close()
			return nil, fmt.Errorf("cpu: a fork of %d tokens, of which some were never written", n)
		}
		p.owners++
		y.pages[i] = p
	}
	if n%pageSlots != 0 {
		if c.pages[full] == nil {
			y.Close()
			return nil, fmt.Errorf("cpu: a fork of %d tokens, of which some were never written", n)
		}
		p, err := y.newPage()
		if err != nil {
			y.Close()
			return nil, err
		}
		copy(p.data, c.pages[full].data)
		y.pages[full] = p
	}
	for i := range y.written {
		y.written[i] = min(c.written[i], (n+pageSlots-1)/pageSlots*pageSlots)
	}
	return y, nil
}

// Reach is n, but for a rotating storage that has dropped what n would see.
func (c *storage) Reach(n, base int) int { return c.layout.Reach(n, base) }

// Export copies a page; values that are kept by dimension are brought in order.
func (c *storage) Export(i int, dst []byte) error { return c.carry(i, dst, false) }

// Import writes a page.
func (c *storage) Import(i int, src []byte) error {
	if c.pages == nil {
		return errClosedStorage
	}
	if i >= 0 && i < len(c.pages) {
		if err := c.writable(i*pageSlots, min((i+1)*pageSlots, c.layout.Slots)); err != nil {
			return err
		}
	}
	return c.carry(i, src, true)
}

// carry copies a page to or from its exported form.
func (c *storage) carry(i int, exported []byte, in bool) error {
	switch {
	case c.pages == nil:
		return errClosedStorage
	case c.layout.Window != 0:
		return errors.New("cpu: pages of a storage that rotates are not exported")
	case i < 0 || i >= len(c.pages) || c.pages[i] == nil:
		return fmt.Errorf("cpu: page %d of %d was never written", i, len(c.pages))
	case len(exported) != c.keys.ExportedPage():
		return fmt.Errorf("cpu: a page of %d bytes, want %d", len(exported), c.keys.ExportedPage())
	}
	data := c.pages[i].data
	if !c.turned {
		if in {
			copy(data, exported)
		} else {
			copy(exported, data)
		}
		return nil
	}
	half, d := pageSlots*c.row, c.keys.HeadDim
	for at := 0; at < len(data); at += 2 * half {
		values, plain := data[at+half:at+2*half], exported[at+half:at+2*half]
		if in {
			copy(data[at:at+half], exported[at:at+half])
		} else {
			copy(exported[at:at+half], data[at:at+half])
		}
		for slot := range pageSlots {
			for k := range d {
				a, b := values[2*(k*pageSlots+slot):], plain[2*(slot*d+k):]
				if in {
					a[0], a[1] = b[0], b[1]
				} else {
					b[0], b[1] = a[0], a[1]
				}
			}
		}
	}
	if in {
		for layer := range c.written {
			c.written[layer] = max(c.written[layer], min((i+1)*pageSlots, c.layout.Slots))
		}
	}
	return nil
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
	return c.pages[slot/pageSlots].data[at : at+n*c.row]
}

// tile is the page's keys and values of a head around an index.
func (c *storage) tile(layer, head, index int) []byte {
	slot := c.layout.Slot(index)
	n := 2 * pageSlots * c.row
	at := (layer*c.keys.KVHeads + head) * n
	return c.pages[slot/pageSlots].data[at : at+n]
}

// store encodes one head's vector.
func (c *storage) store(k *kernels, layer, head int, values bool, index int, x []float32) {
	dst := c.run(layer, head, values, index, 1)
	switch c.layout.DType {
	case backend.KVF32:
		for i, v := range x {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
		}
	case backend.KVBF16:
		k.narrowBF16(dst, x)
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
func (c *storage) load(k *kernels, dst []float32, layer, head int, values bool, index, n int) {
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
			widenF32(dst[:m*d], src)
		case backend.KVBF16:
			k.widenBF16(dst[:m*d], src)
		case backend.KVF16:
			k.widenF16(dst[:m*d], src)
		case backend.KVInt8:
			for i := range m {
				row, out := src[i*c.row:(i+1)*c.row], dst[i*d:(i+1)*d]
				for g := 0; g*backend.KVGroup < d; g++ {
					a, b := g*backend.KVGroup, min((g+1)*backend.KVGroup, d)
					s := math.Float32frombits(binary.LittleEndian.Uint32(row[d+4*g:]))
					k.widenInt8(out[a:b], row[a:b], s)
				}
			}
		}
		dst, index, n = dst[m*d:], index+m, n-m
	}
}
