package cpu

import (
	"unsafe"

	"windrow/backend"
	"windrow/cpu/kernels"
)

// attendPages does rows [r0, r1) of a span, like attendBlock, over a cache whose
// values are transposed. Queries and weights are rounded to bf16, sums are f32; a
// row's bits depend on its own index only, since pages begin at multiples of 64 and
// a key that is not seen weighs exactly 0. (0 · NaN is NaN: values of a later row
// that are not finite reach earlier rows of its page.)
func (f *forward) attendPages(s *scratch, dst, q *buffer, stride int, span *backend.Span, layer, head, r0, r1 int, scale float32) {
	cache := span.Storage.(*storage)
	l := cache.keys
	d := l.HeadDim
	group := dst.width / (l.KVHeads * d)
	nq := (r1 - r0) * group
	// Query i is row i/group, head i%group of this KV head.
	at := func(i, width, stride int) int { return (span.First+r0+i/group)*width + (head*group+i%group)*stride }

	a := kernels.PageAttention{Dim: d, Queries: nq, Scale: f.b.k.Scale}
	a.Q = kernels.Grown(&s.queries, nq*d)
	for i := range nq {
		copy(a.Q[i*d:(i+1)*d], q.data[at(i, q.width, stride):][:d])
	}
	f.b.k.Scale(a.Q, scale)
	s.seen, s.pages = s.seen[:0], s.pages[:0]
	for i := range nq {
		s.seen = append(s.seen, int32(span.Base+r0+i/group+1))
	}
	for t := 0; t < span.Base+r1; t += pageSlots {
		s.pages = append(s.pages, unsafe.Pointer(&cache.tile(layer, head, t)[0]))
	}
	a.Seen, a.Pages = s.seen, s.pages
	a.Out = func(i int) []float32 { return dst.data[at(i, dst.width, d):][:d] }
	f.b.k.AttendPages(&a, &s.kernels)
	clear(s.pages) // nothing here keeps a closed cache alive
}

// transposes reports whether a cache of this layout keeps its values by dimension, for
// attendPages.
func (b *Backend) transposes(l *backend.Layout) bool {
	return b.k.AttendPages != nil && !b.exact && l.DType == backend.KVBF16 && l.Window == 0 && l.Keys().HeadDim%32 == 0
}

// storeTransposed encodes the values of a head from an index on by dimension:
// [head dim, 64] a page. x holds one a row, stride apart. Page by page, since a
// value alone would touch a line for each of its dimensions.
func (c *storage) storeTransposed(k *kernels.Table, s *scratch, layer, head, index, rows int, x []float32, stride int) {
	d := c.keys.HeadDim
	buf := kernels.Grown(&s.keys, pageSlots*d/2)
	short := unsafe.Slice((*uint16)(unsafe.Pointer(&buf[0])), pageSlots*d)
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&buf[0])), 2*pageSlots*d)
	for rows > 0 {
		slot := index % pageSlots
		n := min(rows, pageSlots-slot)
		for r := range n {
			k.NarrowBF16(bytes[2*r*d:2*(r+1)*d], x[r*stride:r*stride+d])
		}
		tile := c.tile(layer, head, index)
		values := unsafe.Slice((*uint16)(unsafe.Pointer(&tile[len(tile)/2])), pageSlots*d)
		for i := range d {
			to := values[i*pageSlots+slot : i*pageSlots+slot+n]
			for r := range to {
				to[r] = short[r*d+i]
			}
		}
		rows, index = rows-n, index+n
		if rows > 0 {
			x = x[n*stride:]
		}
	}
}

// endTransposed makes the values of indices past end in its page, which an earlier
// forward may have written, zero in a layer: attendPages multiplies them by zero. Pages
// behind it are left as they are: this forward does not read them, and they may be
// shared with other sequences. The forward that writes there comes by here, too.
func (c *storage) endTransposed(layer, end int) {
	w := &c.written[layer]
	stop := min(pageEnd(end), w.far)
	if pageEnd(w.near) == pageEnd(end) {
		stop = w.near
	}
	if n := stop - end; n > 0 {
		for head := range c.keys.KVHeads {
			tile := c.tile(layer, head, end)
			for at := len(tile)/2 + 2*(end%pageSlots); at < len(tile); at += 2 * pageSlots {
				clear(tile[at : at+2*n])
			}
		}
	}
	w.near = end
	if w.far <= pageEnd(end) {
		w.far = end
	}
}

// pageEnd is the end of the page that holds the last of n indices; 0 or less of none.
func pageEnd(n int) int { return (n + pageSlots - 1) / pageSlots * pageSlots }
