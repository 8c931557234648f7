package kernels

import (
	"encoding/binary"
	"math"
	"unsafe"

	"windrow/backend"
)

// tileArgs is what a tile's assembly reads: it computes groups of a fixed
// number of outs, for a fixed number of rows, over steps of k.
type tileArgs struct {
	y   unsafe.Pointer // [rows][groups·outs] f32, or nil: keep the accumulators
	ldy int            // bytes from row to row of y
	acc unsafe.Pointer // [groups][rows][outs] vectors, used if y is nil or resume is set
	w   unsafe.Pointer // [groups·outs] rows of bf16, or of f32 in split order
	ldw int            // bytes from out to out of w
	x   unsafe.Pointer // [rows] of f32 in split order
	ldx int            // bytes from row to row of x

	rows, f32     int // which tile: 1..maxTileRows rows; f32 not 0: split f32 weights
	steps, groups int
	resume        int // not 0: start from acc
	// ahead is what to prefetch: a cache line for each out of a group, ldw
	// apart, then aheadStep bytes on with each step, and aheadJump more where
	// aheadLeft steps are left (pairs of steps in 8 lanes). It may point past the
	// weights.
	ahead, aheadStep     uintptr
	aheadLeft, aheadJump int
}

// tileProjector is the exact projector of one instruction set: activations and
// accumulators in f32, weights widened on the fly.
//
// Its order, the same for every row count, tile and chunk: each (row, out) has
// one accumulator of `lanes` lanes; k ascends in steps of 2·lanes, in each the
// even elements are added first and then the odd ones, by fused multiply-add;
// then lanes i and i + lanes/2 are added, and so on down to one. What in lacks
// to a whole step counts as zeros.
//
// Even and odd are separate because a bf16 pair in 32 bits becomes two f32
// with one shift and one mask, without shuffles; activations are split to
// match, once, when they are packed.
//
// What was tried, one thread of a shared 2.1 GHz Sapphire Rapids with an FMA
// peak of 135 GFLOP/s in 16 lanes, where a plain read loop gets 12.7 GB/s:
//
//	1 row, in = 1,024 / 3,072: no prefetch          12.0 / 15.0 GB/s
//	  the next 4 outs prefetched as one stream      13.0 / 12.6
//	  the same into L2 only (PREFETCHT1)            12.5 / 12.5
//	  each out's stream 256 or 512 bytes ahead      13.4 / 17.0
//	  each out's stream 2 KiB ahead (kept)          16.5 / 17.9
//	8 lanes, the same                               16.9 / 18.5
//	16 rows: no prefetch                            72 / 90 GFLOP/s
//	  shared prefetch of the next 4 outs (kept)     97 / 102
//	512 rows: chunks of 128 KiB of weights          102 / 86
//	  chunks of 64 outs (kept)                      102 / 97
//	  blocks of k of 256, 512, 3,072 (kept: 1,024)  90 / 86, 96 / 89, 102 / 84 (in 128 KiB chunks)
//	8 lanes, 16 rows: group by group                62 / 49
//	  tile by tile where rows are long (kept)       62 / 59
type tileProjector struct {
	label string
	lanes int
	// outs is the outs of a group for a tile of 1..maxTileRows rows.
	outs [maxTileRows + 1]int
	// nearIn is the longest row for which all rows pass over a group of outs
	// before the next group. Longer ones would stream a tile's activations from
	// L2 for each group; where groups are 2 outs that is 32 bytes a cycle, and
	// 49 GFLOP/s instead of 62.
	nearIn int
	// nearRows is the most rows of which that is so. In more, calls of a group each cost
	// more than activations from L1 save: 24 and 64 rows of tiny-gsm took 1.1 and 1.2 times
	// as long on a Zen 3.
	nearRows int
	// block is the elements of k that one call covers where there are many rows: those of
	// maxTileRows rows should fill no more than half of L1.
	block int
	// together is the most rows that pass over a block of a panel one tile after the other,
	// before the next block. More go tile by tile over the whole panel, which then comes
	// from L2, or from beyond it where rows are long.
	together int
	// groupsAhead is how many groups ahead weights are prefetched there; 0: not at all. The
	// first tile waits for memory otherwise, and the hardware's prefetcher starts anew with
	// each of so short a piece of a row.
	groupsAhead int
	// apart is the elements that lie between packed rows. Rows of 2,048 would share sets of
	// the L1 cache, which has no ways left for weights beside those of a tile: 16 rows took
	// 1.06 to 1.09 times as long, 64 rows 1.12 times.
	apart int
	// shortIn is the longest row of which several meet blocks of four outs, see near; 0: none.
	shortIn int
	// split reorders steps·2·lanes f32s of any alignment.
	split  func(dst *float32, src *byte, steps int)
	vector *vectorCode
}

const (
	maxTileRows = 6
	// maxTileOuts is the most outs of a group.
	maxTileOuts = 4
	// panelOuts is how many outs are worked on before the next rows: with 4 KiB
	// rows 128 KiB of bf16, in L2 beside a tile of activations.
	panelOuts = 64
	// nearBytes is the size of activations up to which all rows pass over four
	// outs before the next four: they stay in L2, and the weights, which come
	// from memory once, in L1. Beyond it rows go tile by tile.
	nearBytes = 512 << 10
	// aheadBytes is how far ahead each of a group's streams is prefetched.
	aheadBytes = 2048
	// chunkBytes is how much weight one work item reads: 13 µs at 9.6 GB/s.
	chunkBytes = 128 << 10
)

func (t *tileProjector) Name() string                  { return t.label }
func (t *tileProjector) Takes(backend.DType, int) bool { return true }
func (t *tileProjector) PackRows() int                 { return 1 }

// padded is in rounded up to whole steps.
func (t *tileProjector) padded(in int) int {
	step := 2 * t.lanes
	return (in + step - 1) / step * step
}

func (t *tileProjector) PackSize(rows, in int) (int, int) { return rows * t.rowStride(in), 0 }

// rowStride is the elements from row to row of packed activations.
func (t *tileProjector) rowStride(in int) int { return t.padded(in) + t.apart }

// Chunk is a whole panel for many rows: each chunk reads all activations again,
// from L3 at that size, so it must bring enough work (20 outs of 3,072 elements
// ran at 86 GFLOP/s, 64 at 97). So it is for one row where that has streams, which begin
// anew with each chunk: 19 to 21 GB/s, 17.5 to 18 in chunks of chunkBytes.
func (t *tileProjector) Chunk(rows, in int) int {
	if rows == 1 && t.groupsAhead > 0 || rows*t.padded(in)*4 > nearBytes || rows > maxTileRows && !t.near(rows, t.padded(in)) {
		return panelOuts
	}
	return max(maxTileOuts, min(panelOuts, chunkBytes/2/max(in, 1))&^(maxTileOuts-1))
}

// near reports whether all rows pass over a group of outs before the next group.
func (t *tileProjector) near(rows, n int) bool {
	return n <= t.nearIn && rows <= t.nearRows && rows*n*4 <= nearBytes
}

func (t *tileProjector) Pack(p *Packed, x []float32, r0, r1 int) {
	n, stride := t.padded(p.in), t.rowStride(p.in)
	for r := r0; r < r1; r++ {
		t.splitRow(p.f32[r*stride:][:n], x[r*p.in:(r+1)*p.in])
	}
}

// splitRow writes src in split order, padded with zeros to len(dst).
func (t *tileProjector) splitRow(dst, src []float32) {
	step := 2 * t.lanes
	full := len(src) / step
	if full > 0 {
		_ = dst[full*step-1]
		t.split(&dst[0], (*byte)(unsafe.Pointer(&src[0])), full)
	}
	if tail := src[full*step:]; len(tail) > 0 {
		d := dst[full*step : (full+1)*step]
		clear(d)
		for i, v := range tail {
			d[i&1*t.lanes+i/2] = v
		}
	}
}

// panel is a run of outs in the form that a tile reads.
type panel struct {
	w    unsafe.Pointer
	f32  int // 1: widened, in split order; 0: bf16 as in the file
	ldw  int // bytes of an out
	step int // bytes of a step of one out
	outs int
	next int // bytes from w to the panel that follows; 0: none is known
}

func (t *tileProjector) Project(y []float32, ldy int, p *Packed, w *Weight, o0, o1 int, s *Scratch) {
	if p.Rows == 0 || o0 >= o1 {
		return
	}
	if p.Rows > 1 && t.TakesRows(w) {
		t.short(y, ldy, p, p.Rows, nil, w, o0, o1, s)
		return
	}
	_ = y[(p.Rows-1)*ldy+o1-o0-1]
	_ = p.f32[p.Rows*t.rowStride(p.in)-1]
	data := w.data[o0*w.stride() : o1*w.stride()]
	direct := w.dt == backend.BF16 && w.in%(2*t.lanes) == 0
	outs := panelOuts
	if !direct && p.Rows <= maxTileRows {
		outs = maxTileOuts // the widened weights are used once: keep them in L1
	}
	wide := 0
	if !direct {
		wide = (min(outs, o1-o0) + 1) * t.padded(w.in)
	}
	const edge = maxTileRows * maxTileOuts
	accs := panelOuts * max(maxTileRows, min(t.together, p.Rows)) * t.lanes
	mem := Grown(&s.project, edge+accs+wide)
	run := tileRun{t: t, p: p, n: t.padded(p.in), stride: t.rowStride(p.in), edge: mem[:edge], acc: mem[edge : edge+accs]}
	for o := 0; o < o1-o0; o += outs {
		rest := data[o*w.stride():]
		pn := panel{outs: min(outs, o1-o0-o)}
		if direct {
			pn.ldw, pn.step = w.stride(), 4*t.lanes
			pn.w = unsafe.Pointer(&rest[0])
			switch {
			case o+outs < o1-o0:
				pn.next = outs * pn.ldw
			case s.Next > o && o0+s.Next < w.out:
				pn.next = (s.Next - o) * pn.ldw
			}
		} else {
			pn.f32, pn.ldw, pn.step = 1, 4*run.n, 8*t.lanes
			m := mem[edge+accs:]
			t.widen(m, rest, w, pn.outs)
			pn.w = unsafe.Pointer(&m[0])
		}
		run.panel(y[o:], ldy, &pn)
	}
}

// TakesRows reports whether w meets blocks of four outs.
func (t *tileProjector) TakesRows(w *Weight) bool {
	return w.dt == backend.BF16 && w.in <= t.shortIn && w.in%PackedColumns == 0
}

// ProjectRows is Project of the packed rows of a list, of weights that TakesRows.
func (t *tileProjector) ProjectRows(y []float32, ldy int, p *Packed, list []int, w *Weight, o0, o1 int, s *Scratch) {
	switch {
	case o0 >= o1:
	case len(list) > 1:
		t.short(y, ldy, p, len(list), list, w, o0, o1, s)
	case len(list) == 1:
		stride := t.rowStride(p.in)
		one := Packed{Rows: 1, in: p.in, f32: p.f32[list[0]*stride:][:stride]}
		t.Project(y, ldy, &one, w, o0, o1, s)
	}
}

// PackColumns splits columns [from, from+n) of all rows, from x [rows, n].
func (t *tileProjector) PackColumns(p *Packed, x []float32, from, n int) {
	for r := range p.Rows {
		t.splitRow(p.f32[r*t.rowStride(p.in)+from:][:n], x[r*n:(r+1)*n])
	}
}

// short multiplies several rows, all or those of a list, by blocks of four outs.
func (t *tileProjector) short(y []float32, ldy int, p *Packed, rows int, list []int, w *Weight, o0, o1 int, s *Scratch) {
	outs, row, stride := o1-o0, t.rowStride(p.in), w.stride()
	_ = y[(rows-1)*ldy+outs-1]
	for i := range rows {
		_ = p.f32[of(list, i)*row+w.in-1]
	}
	x, a, blocks := nearRows{unsafe.Pointer(&p.f32[0]), 4 * w.in, 4 * row, rows, list}, w.data[o0*stride:o1*stride], outs/maxTileOuts
	if blocks > 0 {
		near(t.lanes, y, ldy, x, a, w.in, stride, blocks, after(w, o0, o1, s))
	}
	if blocks*maxTileOuts == outs {
		return
	}
	edge := Grown(&s.project, rows*maxTileOuts)
	for o := blocks * maxTileOuts; o < outs; o++ {
		// Rows of weights that lie 0 apart are this one four times.
		near(t.lanes, edge, maxTileOuts, x, a[o*stride:], w.in, 0, 1, nil)
		for i := range rows {
			y[i*ldy+o] = edge[i*maxTileOuts]
		}
	}
}

// widen fills wide with outs rows of data in split order; the row behind them
// is used for the order of the file.
func (t *tileProjector) widen(wide []float32, data []byte, w *Weight, outs int) {
	n, step := t.padded(w.in), 2*t.lanes
	row := wide[outs*n:][:w.in]
	for o := range outs {
		src := data[o*w.stride() : (o+1)*w.stride()]
		dst := wide[o*n : (o+1)*n]
		switch w.dt {
		case backend.BF16:
			t.vector.widenBF16(&row[0], &src[0], w.in)
			t.splitRow(dst, row)
		case backend.F16:
			t.vector.widenF16(&row[0], &src[0], w.in)
			t.splitRow(dst, row)
		default:
			full := w.in / step
			if full > 0 {
				t.split(&dst[0], &src[0], full)
			}
			tail := row[:w.in%step]
			for i := range tail {
				tail[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*(full*step+i):]))
			}
			t.splitRow(dst[full*step:], tail)
		}
	}
}

// tileRun is one call of project: the rows that all its panels meet.
type tileRun struct {
	t      *tileProjector
	p      *Packed
	n      int // elements of a packed row
	stride int // elements from one packed row to the next
	edge   []float32
	acc    []float32
}

// panel multiplies all rows with one panel, y being its first out. Rows are
// divided evenly over tiles: 16 make 6, 5 and 5, which beats 6, 6 and 4.
func (r *tileRun) panel(y []float32, ldy int, pn *panel) {
	tiles := (r.p.Rows + maxTileRows - 1) / maxTileRows
	most := (r.p.Rows + tiles - 1) / tiles
	outs := r.t.outs[most]
	groups := pn.outs / outs
	steps := r.n / (2 * r.t.lanes)
	base := uintptr(pn.w)
	switch {
	case r.p.Rows == 1 && groups > 1 && r.t.groupsAhead > 0:
		r.streams(y, pn, groups, steps)
	case tiles == 1:
		// Each out's stream is fetched ahead, from its row's end on into the
		// next group's row.
		skip := uintptr(0)
		left := min(aheadBytes/pn.step, steps)
		if left == steps {
			skip = uintptr((outs - 1) * pn.ldw)
		}
		r.tile(y, ldy, pn, tileArgs{groups: groups, steps: steps, ahead: base + uintptr(left*pn.step) + skip,
			aheadStep: uintptr(pn.step), aheadLeft: left, aheadJump: (outs - 1) * pn.ldw}, 0, r.p.Rows, 0, 0)
	case r.t.near(r.p.Rows, r.n):
		for g := range groups {
			// The tiles share the prefetch of the next group.
			next := base + uintptr((g+1)*outs*pn.ldw)
			for i := range tiles {
				r.tile(y, ldy, pn, tileArgs{groups: 1, steps: steps, ahead: next + uintptr(pn.ldw*i/tiles),
					aheadStep: uintptr(pn.step / tiles)}, r.p.Rows*i/tiles, r.p.Rows*(i+1)/tiles, g, 0)
			}
		}
	case r.p.Rows <= r.t.together:
		for k := 0; k < steps; k += r.t.block / (2 * r.t.lanes) {
			for i := range tiles {
				r.block(y, ldy, pn, groups, i, tiles, k)
			}
		}
	default:
		for i := range tiles {
			for k := 0; k < steps; k += r.t.block / (2 * r.t.lanes) {
				r.block(y, ldy, pn, groups, i, tiles, k)
			}
		}
	}
	r.leftover(y, ldy, pn, tiles, groups*outs, steps)
}

// streams multiplies one row by groups of outs that lie groups apart, so that each out of a
// group follows in memory the same one of the group before: as many streams as a group has
// outs, which go on through the whole panel.
func (r *tileRun) streams(y []float32, pn *panel, groups, steps int) {
	apart := *pn
	apart.ldw = groups * pn.ldw
	for g := range groups {
		apart.w = unsafe.Add(pn.w, g*pn.ldw)
		r.tile(r.edge, maxTileOuts, &apart, tileArgs{groups: 1, steps: steps,
			ahead: uintptr(apart.w) + aheadBytes, aheadStep: uintptr(pn.step)}, 0, 1, 0, 0)
		for i, v := range r.edge[:r.t.outs[1]] {
			y[g+i*groups] = v
		}
	}
}

// block multiplies the rows of tile i of tiles with all groups of a panel, over the block
// of k that begins at step k.
func (r *tileRun) block(y []float32, ldy int, pn *panel, groups, i, tiles, k int) {
	r0, r1 := r.p.Rows*i/tiles, r.p.Rows*(i+1)/tiles
	steps := min(r.t.block, r.n-k*2*r.t.lanes) / (2 * r.t.lanes)
	a := tileArgs{groups: groups, steps: steps, ahead: uintptr(pn.w)}
	if group := r.t.outs[r1-r0] * pn.ldw; r.t.groupsAhead > 0 {
		from, step, later := k*pn.step+r.t.groupsAhead*group, pn.step, tiles-1
		if i > 0 && r.p.Rows <= r.t.together {
			// The next block comes while this one is multiplied from L2.
			next, size := k+steps, steps
			if 2*r.t.lanes*next < r.n {
				next *= pn.step
			} else {
				next, size = pn.next, min(r.t.block, r.n)/(2*r.t.lanes)
			}
			if next > 0 {
				each := size * pn.step / later // bytes of an out that this tile asks for
				step = (each + steps - 1) / steps
				from = next + (i-1)*each
			}
		}
		a.ahead += uintptr(from)
		a.aheadStep, a.aheadLeft, a.aheadJump = uintptr(step), 1, group-steps*step
	}
	one := *r
	if r.p.Rows <= r.t.together {
		one.acc = r.acc[panelOuts*r0*r.t.lanes:]
	}
	one.tile(y, ldy, pn, a, r0, r1, 0, k)
}

// tile completes a, which has the groups, steps and prefetch, for rows
// [r0, r1) from group g and step k on, and runs it.
func (r *tileRun) tile(y []float32, ldy int, pn *panel, a tileArgs, r0, r1, g, k int) {
	if a.groups == 0 {
		return
	}
	a.rows, a.f32, a.resume = r1-r0, pn.f32, k
	outs := r.t.outs[a.rows]
	a.acc = unsafe.Pointer(&r.acc[0])
	a.w, a.ldw = unsafe.Add(pn.w, g*outs*pn.ldw+k*pn.step), pn.ldw
	a.x, a.ldx = unsafe.Pointer(&r.p.f32[r0*r.stride+k*2*r.t.lanes]), 4*r.stride
	if (k+a.steps)*2*r.t.lanes == r.n {
		a.y, a.ldy = unsafe.Pointer(&y[r0*ldy+g*outs]), 4*ldy
	}
	// Static calls, so that a stays on the stack.
	if r.t.lanes == 16 {
		avx512Tile(&a)
	} else {
		a.aheadLeft = (a.aheadLeft + 1) / 2 // it goes by pairs of steps
		avx2Tile(&a)
	}
}

// leftover computes the outs that are no whole group, one at a time: a group
// with a stride of 0 computes it in every place.
func (r *tileRun) leftover(y []float32, ldy int, pn *panel, tiles, o, steps int) {
	for ; o < pn.outs; o++ {
		one := *pn
		one.w, one.ldw = unsafe.Add(pn.w, o*pn.ldw), 0
		for i := range tiles {
			r0, r1 := r.p.Rows*i/tiles, r.p.Rows*(i+1)/tiles
			sub := *r
			sub.p = &Packed{Rows: r1 - r0, in: r.p.in, f32: r.p.f32[r0*r.stride : r1*r.stride]}
			sub.tile(r.edge, maxTileOuts, &one, tileArgs{groups: 1, steps: steps, ahead: uintptr(pn.w)}, 0, r1-r0, 0, 0)
			for row := r0; row < r1; row++ {
				y[row*ldy+o] = r.edge[(row-r0)*maxTileOuts]
			}
		}
	}
}
