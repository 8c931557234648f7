package kernels

import (
	"runtime"
	"unsafe"

	"windrow/backend"
)

// quantTiles multiplies quantised weights with activations rounded to int8, a
// scale for each row and group of weights, on the matrix unit: 16 outputs × 16
// rows × 64 elements an instruction.
//
// The whole numbers of the weights are the A operand. Those of 8 bits are read
// where they lie in the file; smaller ones are unpacked to bytes a step ahead,
// into 4 KB that stay in L1. quantFormat says what comes out.
//
// One row goes by VPDPBUSD, also the last one of 17, few rows of small groups by quantDots, others
// through tiles while the weights are decoded, 16 rows after the other; many by
// quantMany: the same sums.
//
// Rounding activations costs 0.45 % (groups of 16) to 0.75 % (of 128) of the
// norm of an output of normal data: TestInt8Error.
//
// What was tried, one row, 16 outputs × 64 weights of affine4 in groups of 64,
// out of cache memory, one thread of a Sapphire Rapids whose cores others used
// too (memory brings the 576 bytes in 34 ns):
//
//	tiles, sums added before the next tiles    44 ns
//	the same, added behind them                42
//	one LDTILECFG a chunk (90 ns each)         35
//	VPDPBUSD, one tree of sums for 64          28
//	one for 128, of 16-bit sums (kept)         not told apart in the noise
//
// Where the other thread of a core uses the unit, a tile instruction that waits
// for two loads costs 30 ns instead of 8, and joining its sums 16 more; but 33
// for both where they stand between each other (quant_mix_amx_amd64.h).
type quantTiles struct {
	quantFormat
	span int // rows that are packed together: 16 for tiles, 1 for one row after the other
}

// quantAhead is how many bytes ahead of its use each of the 16 streams of a
// block is prefetched.
const quantAhead = 512

// quantTilesAhead is how many steps it is where rows go through tiles: 0.93 of
// the time of 7 or 8 steps, whose lines are gone from L1 before they are used.
const quantTilesAhead = 3

// quantBlock is 16 outputs, or what is left of them. The addresses are of
// memory that does not move.
type quantBlock struct {
	a, scales, biases uintptr // the packed rows, and the scales and biases of affine types
	c                 uintptr // the result: [16] for one row, else [outs, 16]
	next              uintptr // the next block's rows; with many rows where its own begin
}

// quantCall is what the assembly works through. Offsets are named in
// quant_amx_amd64.s.
type quantCall struct {
	cfg             *tileConfig
	_               int
	astride, astep  int // bytes from row to row; of a step (two for blocks of 256)
	outs            int // rows of the block: 1..16
	format, kind    int
	direct          int            // not 0: tiles are loaded from a
	tstride, gstep  int            // bytes between rows and between groups of the A operand
	b               unsafe.Pointer // packed activations
	bstride, bgroup int            // bytes of a row, and of a tile, of B
	rows            int
	sx, xs          unsafe.Pointer // scales and sums of the activations, [groups, rows]
	w, bias         unsafe.Pointer // scales and biases of the weights, [groups, 16]
	d               unsafe.Pointer // sums of two steps
	buf             unsafe.Pointer // decoded bytes of two steps
	_               int
	index           unsafe.Pointer // [16]int32: bytes from a to each of 16 rows, the last ones again
	_               int
	cstride         int // bytes between outputs of a block's c
	steps, groups   int // groups of a step
	ahead           int // bytes from a row's use to its prefetch
	left            int // steps until the prefetches turn to the next block
	_               int
	pstep           int // bytes that the prefetches move a step; 0: none
	blocks          *quantBlock
	count           int
	wstep           int // bytes from one block's w and bias to the next one's
	bufstep         int // and of buf
	sstride         int // bytes between a block's rows of scales; 0: there are none to widen
	sgroups         int
	elements        int // of a row
	aheadBytes      int // bytes of a row until the prefetches turn to the next block
}

//go:noescape
func quantBlocks(t *quantCall)

//go:noescape
func quantAlone(t *quantCall)

//go:noescape
func widenScales(dst *float32, src *byte, stride, outs, groups int)

// tilesName is the name of the kernels.
const tilesName = "amx-int8"

// quantTilesFor gives the arithmetic for t with the matrix unit, nil where there
// is none. Types that it has no decoder for go by VPDPBUSD.
func quantTilesFor(t *backend.Tensor) Projector {
	f, ok := newQuantFormat(t, tilesName)
	switch {
	case !ok:
		return nil
	case f.dotsOnly():
		return newQuantDots(t, dotsOfAVX512)
	}
	return quantTiles{f, tileSpan}
}

// The most outputs that one call works through: with few rows, and with many,
// where their bytes are decoded before the rows meet them (256 KB at 2,048
// elements).
const quantOuts, quantPanel = 512, 128

// quantMemory is the parts of a worker's scratch.
type quantMemory struct {
	d, buf []float32 // as in quantCall
	// w and bias hold the scales and biases of a block [groups, 16]; table
	// floats each, of all blocks of a panel where there are many rows.
	w, bias []float32
	table   int
	c       []float32 // the result [outs, 16], of many rows [outs/16, rows/16, 16, 16]
	// decoded holds bytes for many rows, and with one a copy of the rows that are
	// no whole block.
	decoded []float32
	index   [tileSpan]int32
	blocks  [quantOuts / tileSpan]quantBlock
}

// align64 drops the floats of mem before the first multiple of 64 bytes.
func align64(mem []float32) []float32 {
	return mem[(-uintptr(unsafe.Pointer(&mem[0]))&63)/4:]
}

func (m *quantMemory) take(q quantTiles, s *Scratch, in, stride, outs, rows int, many bool) {
	m.table = (in/q.group + 2*tileSpan) * tileSpan
	blocks, decoded := 1, 0
	switch {
	case outs%tileSpan != 0 && !many:
		decoded = tileSpan * (stride/4 + 1)
	case many:
		blocks = (outs + tileSpan - 1) / tileSpan
		decoded = quantManyBlocks * quantManySteps * quantStep * tileSpan / 4
	}
	sums := (outs + tileSpan) * tileSpan
	if many {
		up := func(n int) int { return (n + tileSpan - 1) &^ (tileSpan - 1) }
		sums = up(outs) * up(min(rows, manyRows))
	}
	mem := align64(Grown(&s.quant, 32+4096+1024+2*blocks*m.table+sums+decoded))
	cut := func(n int) (part []float32) {
		part, mem = mem[:n], mem[n:]
		return part
	}
	m.d, m.buf, m.w, m.bias, m.c, m.decoded = cut(4096), cut(1024), cut(blocks*m.table), cut(blocks*m.table), cut(sums), cut(decoded)
}

// alone reports whether n rows that are packed together, of a forward of that many,
// go by quantAlone: one row that no tile of others waits for.
func (q quantTiles) alone(rows, n int) bool { return q.span == 1 || n == 1 && !q.takesMany(rows) }

// few gives the arithmetic for that many rows where tiles are slower: a tile
// instruction of 16 or 32 elements takes as long as one of 64. In groups of 32
// quantDots took 0.4 to 0.8 of the time of tiles with 2 rows, 0.5 to 1.1 with 4;
// in groups of 16 from 0.7 with 2 to 0.8 with 8.
func (q quantTiles) few(rows int) (quantDots, bool) {
	return quantDots{quantFormat: q.quantFormat, isa: dotsOfAVX512}, q.span == tileSpan && q.group <= 32 && rows > 1 && rows <= 128/q.group
}

func (q quantTiles) Project(y []float32, ldy int, p *Packed, w *Weight, o0, o1 int, s *Scratch) {
	if d, ok := q.few(p.Rows); ok {
		d.Project(y, ldy, p, w, o0, o1, s)
		return
	}
	if o0 >= o1 || p.Rows <= 0 {
		return
	}
	_ = y[(p.Rows-1)*ldy+o1-o0-1]
	many, most := q.takesMany(p.Rows), quantOuts
	if many {
		most = quantPanel
	}
	var m quantMemory
	for o := o0; o < o1; o += most {
		end := min(o+most, o1)
		m.take(q, s, w.in, w.stride(), end-o, p.Rows, many)
		// Blocks of 16 first, then one of what is left.
		full := (end - o) &^ (tileSpan - 1)
		if full > 0 {
			q.outs(y[o-o0:], ldy, p, w, o, o+full, &m)
		}
		if o+full < end {
			q.outs(y[o-o0+full:], ldy, p, w, o+full, end, &m)
		}
	}
	runtime.KeepAlive(w)
}

// outs works on whole blocks of 16 outputs, or on less than one, whose rows
// are phases apart: see tilePhases.
func (q quantTiles) outs(y []float32, ldy int, p *Packed, w *Weight, o0, o1 int, m *quantMemory) {
	rows, blocks, phases := min(tileSpan, o1-o0), (o1-o0+tileSpan-1)/tileSpan, 1
	many := rows == tileSpan && q.takesMany(p.Rows)
	if rows == tileSpan && !many {
		phases = tilePhases(w.stride(), o1-o0, tileSpan)
	}
	t := q.call(w, m, rows, phases)
	base, stride, groups := uintptr(unsafe.Pointer(&w.data[0])), uintptr(w.stride()), uintptr(w.in/q.group)
	for i := range blocks {
		o := uintptr(o0 + i/phases*phases*tileSpan + i%phases)
		b := &m.blocks[i]
		b.a = base + o*stride
		if w.dt.Affine() {
			b.scales = uintptr(unsafe.Pointer(&w.tensor.Scales[0])) + 2*o*groups
			b.biases = uintptr(unsafe.Pointer(&w.tensor.Biases[0])) + 2*o*groups
		}
		b.next = b.a
		if i > 0 {
			m.blocks[i-1].next = b.a
		}
	}
	if many {
		for i := range blocks {
			m.blocks[i].next = m.blocks[i].a
		}
		for r := 0; r < p.Rows; r += manyRows {
			q.many(y, ldy, p, r, min(r+manyRows, p.Rows), &t, m, blocks)
		}
		return
	}
	if rows < tileSpan && q.alone(p.Rows, p.Rows%q.span) {
		// VPDPBUSD reads 16 rows.
		m.blocks[0].a = uintptr(unsafe.Pointer(&m.decoded[0]))
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&m.decoded[0])), 4*len(m.decoded)), w.data[o0*w.stride():o1*w.stride()])
		m.blocks[0].next = m.blocks[0].a
	}
	for r := 0; r < p.Rows; r += q.span {
		n := min(q.span, p.Rows-r)
		alone := q.alone(p.Rows, n)
		q.activations(&t, p, r, n)
		var cfg tileConfig
		for i := range blocks {
			at := i / phases * phases * tileSpan * tileSpan
			at += i % phases * tileSpan
			m.blocks[i].c = uintptr(unsafe.Pointer(&m.c[at]))
		}
		call := t
		call.blocks, call.count = &m.blocks[0], blocks
		if alone {
			quantAlone(&call)
		} else {
			cfg.quant(rows, n, min(q.group, 64))
			call.cfg, call.cstride = &cfg, 64*phases
			call.ahead, call.left = quantTilesAhead*t.pstep, max(t.steps-quantTilesAhead, 1)
			quantBlocks(&call)
		}
		if !alone {
			tileTranspose(&y[r*ldy], 4*ldy, &m.c[0], 64, o1-o0, n)
			continue
		}
		for i := range blocks {
			o := i/phases*phases*tileSpan + i%phases
			at := i/phases*phases*tileSpan*tileSpan + i%phases*tileSpan
			for j, v := range m.c[at : at+rows] {
				y[r*ldy+o+j*phases] = v
			}
		}
	}
}

// call is what does not change between rows.
func (q quantTiles) call(w *Weight, m *quantMemory, rows, phases int) quantCall {
	t := quantCall{
		outs: rows, astride: phases * w.stride(),
		format: q.format, kind: q.kind, steps: w.in / quantStep, groups: quantStep / q.group,
		w: unsafe.Pointer(&m.w[0]), bias: unsafe.Pointer(&m.bias[0]), d: unsafe.Pointer(&m.d[0]),
		buf: unsafe.Pointer(&m.buf[0]), index: unsafe.Pointer(&m.index[0]),
		tstride: quantStep, gstep: min(q.group, 64),
	}
	switch q.format {
	case formatDirect:
		t.astep, t.pstep, t.direct = 128, 128, 1
	case formatAffine4:
		t.astep, t.pstep = 64, 64
	case formatQ8_0:
		t.astep, t.pstep, t.direct, t.gstep = 136, 136, 1, 34
	case formatQ4_0:
		t.astep, t.pstep = 72, 72
	case formatQ4_K:
		t.astep, t.pstep = 144, 72
	case formatQ6_K:
		t.astep, t.pstep = 210, 105
	}
	if t.direct != 0 {
		t.tstride = t.astride
	}
	for i := range m.index {
		m.index[i] = int32(min(i, rows-1) * t.astride)
	}
	if w.dt.Affine() {
		t.sgroups = w.in / q.group
		t.sstride = 2 * phases * t.sgroups
	}
	t.ahead = quantAhead / t.pstep * t.pstep
	t.left = max(t.steps-quantAhead/t.pstep, 1)
	t.elements, t.aheadBytes = w.in, max(w.stride()-max(t.ahead/t.astep, 1)*t.astep, t.astep)
	return t
}

// activations points t at the packed rows from row r on.
func (q quantTiles) activations(t *quantCall, p *Packed, r, n int) {
	groups := p.in / q.group
	t.b = unsafe.Pointer(&bytesOf(p)[r*p.in])
	t.bstride, t.bgroup, t.rows = 4*n, min(q.group, 64)*n, n
	t.sx, t.xs = unsafe.Pointer(&p.f32[2*r*groups]), unsafe.Pointer(&p.f32[(2*r+n)*groups])
}

// quant sets the shapes of quantBlock: C tiles 0..3, A tiles 4 and 5 of k
// bytes, B tiles 6 and 7.
func (c *tileConfig) quant(outs, rows, k int) {
	c.palette = 1
	for t := range 4 {
		c.rows[t], c.bytes[t] = uint8(outs), uint16(4*rows)
	}
	for t := 4; t < 6; t++ {
		c.rows[t], c.bytes[t] = uint8(outs), uint16(k)
		c.rows[t+2], c.bytes[t+2] = uint8(k/4), uint16(4*rows)
	}
}
