package cpu

import "unsafe"

// wideCall is 32 outputs by 32 rows: two blocks of decoded weights, and two
// tiles of packed rows, of which the second may be shorter. Addresses are of
// memory that does not move; offsets are named in quant_wide_amd64.s.
type wideCall struct {
	cfg            *tileConfig
	a0, a1         uintptr // bytes of the blocks
	astride, gstep int     // between rows and between groups of them
	b0, b1         uintptr // packed activations
	b0row, b1row   int
	b0step, b1step int     // a tile of them
	sx0, xs0       uintptr // their scales and sums
	sx1, xs1       uintptr
	w0, w1         uintptr // scales and biases of the blocks
	bias0, bias1   uintptr
	d              uintptr // sums of two batches
	c0, c1         uintptr // the result of each block, [16, 32], to be zero before
	crow           int
	batches, kind  int
}

//go:noescape
func quantWide(t *wideCall)

// wideRows is the row length of a result of quantWide.
const wideRows = 2 * tileSpan

// wide multiplies all rows with the blocks that prepare has left, 32 by 32. An
// odd block or tile meets its neighbour twice; what comes of it is not used.
func (q quantTiles) wide(y []float32, ldy int, p *packed, t *quantCall, m *quantMemory, blocks, phases int) {
	k := min(q.group, 64)
	address := func(x []float32, at int) uintptr { return uintptr(unsafe.Pointer(&x[at])) }
	outs := blocks * tileSpan
	var b0, b1 quantCall
	for r := 0; r < p.rows; r += wideRows {
		n0, n1 := min(tileSpan, p.rows-r), p.rows-r-tileSpan
		q.activations(&b0, p, r, n0)
		b1 = b0
		if n1 > 0 {
			n1 = min(n1, tileSpan)
			q.activations(&b1, p, r+tileSpan, n1)
		}
		var cfg tileConfig
		cfg.quant(tileSpan, n0, k)
		for _, c := range []int{1, 3, 7} {
			cfg.bytes[c] = uint16(b1.bstride)
		}
		clear(m.c[:outs*wideRows])
		for i := 0; i < blocks; i += 2 {
			j := min(i+1, blocks-1)
			at := func(i int) int { return (i/phases*phases*tileSpan + i%phases) * wideRows }
			call := wideCall{
				cfg: &cfg, a0: m.blocks[i].a, a1: m.blocks[j].a, astride: t.tstride, gstep: t.gstep,
				b0: uintptr(b0.b), b1: uintptr(b1.b), b0row: b0.bstride, b1row: b1.bstride, b0step: b0.bgroup, b1step: b1.bgroup,
				sx0: uintptr(b0.sx), xs0: uintptr(b0.xs), sx1: uintptr(b1.sx), xs1: uintptr(b1.xs),
				w0: address(m.w, i*m.table), w1: address(m.w, j*m.table),
				bias0: address(m.bias, i*m.table), bias1: address(m.bias, j*m.table),
				d: address(m.d, 0), c0: address(m.c, at(i)), c1: address(m.c, at(j)), crow: 4 * wideRows * phases,
				batches: max(t.steps*t.groups/2, t.steps), kind: q.kind,
			}
			if i == j {
				call.c1 = address(m.c, outs*wideRows)
			}
			quantWide(&call)
		}
		tileTranspose(&y[r*ldy], 4*ldy, &m.c[0], 4*wideRows, outs, n0)
		if n1 > 0 {
			tileTranspose(&y[(r+tileSpan)*ldy], 4*ldy, &m.c[tileSpan], 4*wideRows, outs, n1)
		}
	}
}
