package metal

import "windrow/backend"

// rotation is what queries and keys are normed with and rotated by.
type rotation struct {
	qNorm, kNorm view // f32 [headDim]; without a buffer: no norm
	eps          float32
	angles       view // f32 [positions, 2·pairs]: cosines, then sines
	positions    view // u32 [rows], at the span's first row
	// Query heads lie headDim apart, or twice that where each is followed by a gate.
	gated bool
	// Elements i and i + pairs of a head are rotated together; those from 2·pairs on
	// stay as they are. headDim is even.
	pairs, heads, kvHeads, headDim int
}

// kvView is one sequence's keys and values at one layer: those of page 0, [kv heads]
// [pageSlots][head dim] elements each; int8 has f32 scales [kv heads][pageSlots][groups].
// Page i lies i · page bytes further.
type kvView struct {
	k, v, kScales, vScales view
	dtype                  backend.KVType
	table                  view // u32: which page has the slots from pageSlots · i on
	page                   int  // bytes
	slots, window, keep    int  // the layout's
}

// pageElements is how many elements, and scales, there are from page to page.
func (kv kvView) pageElements() (elements, scales uint32) {
	return uint32(kv.page / kv.k.elem.size()), uint32(kv.page / 4)
}

// name is how the host names of kernels have the type of the elements.
func (kv kvView) name() string {
	return kv.dtype.String()
}

// lineBytes is what the vector of one head at one slot takes, scales included.
func (kv kvView) lineBytes(headDim int) int {
	return backend.Keys{HeadDim: headDim, DType: kv.dtype}.RowBytes()
}

// rotateParams is rotate.metal's RotateParams.
type rotateParams struct {
	rows, heads, kvHeads, dim, pairs uint32
	qStride                          uint32
	base, slots, window, keep        uint32
	page, scalePage                  uint32
	qNorm, kNorm                     uint32
	eps                              float32
}

// qStride is how far apart query heads lie.
func qStride(headDim int, gated bool) int { return headDim * int(1+flag(gated)) }

// rotateStore norms and rotates rows of q, f32 [rows, heads·qStride], into
// dst, f32 or bf16 of that shape, which may be q; and stores the rows of k
// (normed and rotated) and of v, f32 [rows, kvHeads·headDim], at the indices
// from base on. Views are at the span's first row.
func rotateStore(e encoder, dst, q, k, v view, r rotation, kv kvView, base, rows int) {
	const simdgroups = 8 // of a threadgroup; each takes a head of a row
	p := rotateParams{
		rows: uint32(rows), heads: uint32(r.heads), kvHeads: uint32(r.kvHeads), dim: uint32(r.headDim), pairs: uint32(r.pairs),
		qStride: uint32(qStride(r.headDim, r.gated)), base: uint32(base), slots: uint32(kv.slots), window: uint32(kv.window), keep: uint32(kv.keep),
		qNorm: flag(r.qNorm.buffer != nil), kNorm: flag(r.kNorm.buffer != nil), eps: r.eps,
	}
	p.page, p.scalePage = kv.pageElements()
	items := rows * (r.heads + 2*r.kvHeads)
	n, queries := int64(items)*int64(r.headDim), int64(rows*r.heads)*int64(p.qStride)
	e.dispatch(dispatch{
		file: "rotate", kernel: "rotate_store_" + dst.elem.name() + "_" + kv.name(),
		args: []arg{
			bind(dst), bind(q), bind(k), bind(v), bind(r.qNorm), bind(r.kNorm), bind(r.angles), bind(r.positions),
			bind(kv.k), bind(kv.v), bind(kv.kScales), bind(kv.vScales), bind(kv.table), params(&p),
		},
		groups: size3{(items + simdgroups - 1) / simdgroups, 1, 1}, threads: size3{32 * simdgroups, 1, 1},
		cost: cost{
			read:    4*n + 8*int64(rows*r.pairs) + 4*int64(r.headDim)*int64(p.qNorm+p.kNorm),
			written: queries*int64(dst.elem.size()) + int64(2*rows*r.kvHeads)*int64(kv.lineBytes(r.headDim)),
			flops:   7 * n, // 3 of a rotation, 4 of a norm
		},
	})
}
