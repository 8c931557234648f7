package cpu

import (
	"strconv"
	"unsafe"

	"windrow/backend"
)

// quantTiles multiplies quantised weights with activations rounded to int8, a
// scale for each row and group of weights, on the matrix unit: 16 outputs × 16
// rows × 64 elements an instruction.
//
// The whole numbers of the weights are the A operand. Those of 8 bits are read
// where they lie in the file; smaller ones are unpacked to bytes a step ahead,
// into 4 KB that stay in L1. Sums over a group are exact, so a row's bits can
// only depend on how groups are joined:
//
//	y += (sum · activation scale) · weight scale, then
//	y += (activation sum) · weight bias, where there is one,
//
// the last operation of each line a fused multiply-add, groups ascending. That
// is one chain for each output of each row, whatever rides along.
type quantTiles struct {
	format, kind int
	group        int
	label        string
}

// The formats that the assembly decodes; formatDirect are bytes.
const (
	formatDirect = iota
	formatAffine4
	formatQ8_0
	formatQ4_0
	formatQ4_K
	formatQ6_K
)

// The kinds of groups that the assembly multiplies: unsigned numbers with a
// bias, and signed ones without.
const (
	kindUnsigned128 = iota
	kindUnsigned64
	kindUnsigned32
	kindSigned32
	kindSigned16
	kindDecode // no multiplication: decode to bytes
)

const (
	// quantStep is the elements of a step.
	quantStep = 128
	// quantAhead is how many bytes ahead of its use each of the 16 streams of a
	// block is prefetched.
	quantAhead = 512
)

// quantCall is what the assembly works through: one block of 16 outputs.
// Offsets are named in quant_amx_amd64.s.
type quantCall struct {
	cfg             *tileConfig
	a               unsafe.Pointer // the block's packed rows
	astride, astep  int            // bytes from row to row; of a step (two for blocks of 256)
	outs            int            // rows of the block: 1..16
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
	decoded         int            // bytes between rows of buf
	index           unsafe.Pointer // [16]int32: bytes from a to each of 16 rows, the last ones again
	c               unsafe.Pointer // the result: [16] for one row, else [outs, 16]
	cstride         int
	steps, groups   int            // groups of a step
	ahead           uintptr        // what to prefetch first; it may point past the weights
	left            int            // steps until the prefetches turn to next
	next            unsafe.Pointer // the next block's rows
	pstep           int            // bytes that the prefetches move a step; 0: none
}

//go:noescape
func quantBlock(t *quantCall)

//go:noescape
func quantScales(dst *float32, src *byte, stride, outs, groups int)

//go:noescape
func quantPack(dst, src *int8, stride, rows, blocks int)

//go:noescape
func quantizeRow(q *int8, scale, sum *float32, stride int, x *float32, groups, group int)

// newQuantTiles is the arithmetic for t, nil where there is none.
func newQuantTiles(t *backend.Tensor) projector {
	in := t.Shape[len(t.Shape)-1]
	if in%quantStep != 0 || t.DType.RowBytes(in) > 1<<26 {
		return nil
	}
	q := quantTiles{}
	switch t.DType {
	case backend.Affine4:
		q.format, q.group = formatAffine4, t.Group
	case backend.Affine8:
		q.format, q.group = formatDirect, t.Group
	case backend.Q8_0:
		q.format, q.group, q.kind = formatQ8_0, 32, kindSigned32
	case backend.Q4_0:
		q.format, q.group, q.kind = formatQ4_0, 32, kindSigned32
	case backend.Q4_K:
		q.format, q.group, q.kind = formatQ4_K, 32, kindUnsigned32
	case backend.Q6_K:
		q.format, q.group, q.kind = formatQ6_K, 16, kindSigned16
	default:
		return nil
	}
	if t.DType.Affine() {
		switch t.Group {
		case 32:
			q.kind = kindUnsigned32
		case 64:
			q.kind = kindUnsigned64
		case 128:
			q.kind = kindUnsigned128
		default:
			return nil
		}
	}
	q.label = "amx-int8-" + strconv.Itoa(q.group)
	return q
}

// name is that of the packed form: formats of one group length share it.
func (q quantTiles) name() string { return q.label }

func (q quantTiles) takes(dt backend.DType, in int) bool { return dt.Quantized() && in%quantStep == 0 }

// packSize is two bytes an element, of which the second half holds rows before
// they are packed, and for each group a scale and a sum. A vector of 16 is read
// from the last of these on.
func (q quantTiles) packSize(rows, in int) (int, int) {
	return 2*rows*(in/q.group) + tileSpan, rows * in
}

func (q quantTiles) packRows() int { return tileSpan }

func (q quantTiles) chunk(rows, in int) int {
	if in > 4096 {
		return 64
	}
	return 128
}

// bytesOf is the int8 form of packed rows from row r on.
func bytesOf(p *packed) []int8 {
	return unsafe.Slice((*int8)(unsafe.Pointer(&p.b16[0])), 2*len(p.b16))
}

func (q quantTiles) pack(p *packed, x []float32, r0, r1 int) {
	all, groups := bytesOf(p), p.in/q.group
	for r := r0; r < r1; r += tileSpan {
		n := min(tileSpan, r1-r)
		packed := all[r*p.in : (r+n)*p.in]
		plain := packed
		if n > 1 {
			plain = all[(p.rows+r)*p.in : (p.rows+r+n)*p.in]
		}
		scales := p.f32[2*r*groups : 2*(r+n)*groups]
		for i := range n {
			row := x[(r+i)*p.in : (r+i+1)*p.in]
			quantizeRow(&plain[i*p.in], &scales[i], &scales[n*groups+i], 4*n, &row[0], groups, q.group)
		}
		if n > 1 {
			quantPack(&packed[0], &plain[0], p.in, n, p.in/64)
		}
	}
}

// quantMemory is the parts of a worker's scratch.
type quantMemory struct {
	d, buf []float32 // as in quantCall
	// w and bias hold the scales and biases of a block [groups, 16]; table
	// floats each, of all blocks of a panel where there are many rows.
	w, bias []float32
	table   int
	c       []float32 // the result [outs, 16]
	decoded []float32 // the bytes of a panel, [outs, in], where there are many rows
	index   [tileSpan]int32
}

// align64 drops the floats of mem before the first multiple of 64 bytes.
func align64(mem []float32) []float32 {
	return mem[(-uintptr(unsafe.Pointer(&mem[0]))&63)/4:]
}

func (q quantTiles) memory(s *scratch, in, outs int, wide bool) (m quantMemory) {
	m.table = (in/q.group + tileSpan) * tileSpan
	blocks, decoded := 1, 0
	if wide {
		blocks = (outs + tileSpan - 1) / tileSpan
		if q.format != formatDirect && q.format != formatQ8_0 {
			decoded = blocks * tileSpan * in / 4
		}
	}
	sums := (outs + tileSpan) * tileSpan
	mem := align64(s.floats(scratchQuant, 16+4096+1024+2*blocks*m.table+sums+decoded))
	cut := func(n int) (part []float32) {
		part, mem = mem[:n], mem[n:]
		return part
	}
	m.d, m.buf, m.w, m.bias, m.c, m.decoded = cut(4096), cut(1024), cut(blocks*m.table), cut(blocks*m.table), cut(sums), cut(decoded)
	return m
}

// quantPanel is the most outputs that are decoded before many rows meet them:
// 256 KB at 2,048 elements.
const quantPanel = 128

func (q quantTiles) project(y []float32, ldy int, p *packed, w *matrix, o0, o1 int, s *scratch) {
	if o0 >= o1 || p.rows <= 0 {
		return
	}
	_ = y[(p.rows-1)*ldy+o1-o0-1]
	if p.rows <= tileSpan {
		m := q.memory(s, w.in, o1-o0, false)
		q.narrow(y, ldy, p, w, quantPlanOf(w, o0, o1), &m)
		return
	}
	for o := o0; o < o1; o += quantPanel {
		end := min(o+quantPanel, o1)
		m := q.memory(s, w.in, end-o, true)
		q.wide(y[o-o0:], ldy, p, w, quantPlanOf(w, o, end), &m)
	}
}

// quantPlan divides outputs [o0, o1) into blocks of 16 whose rows are phases
// apart, see tilePhases, and one of what is left.
type quantPlan struct{ o0, o1, full, phases int }

func quantPlanOf(w *matrix, o0, o1 int) quantPlan {
	p := quantPlan{o0: o0, o1: o1, full: (o1 - o0) / tileSpan, phases: 1}
	if p.full > 0 {
		p.phases = tilePhases(w.stride(), p.full*tileSpan, tileSpan)
	}
	return p
}

func (p quantPlan) blocks() int { return (p.o1 - p.o0 + tileSpan - 1) / tileSpan }

// block gives the first output of block i, the distance of its outputs, and
// how many they are.
func (p quantPlan) block(i int) (o, phases, outs int) {
	if i < p.full {
		return p.o0 + i/p.phases*p.phases*tileSpan + i%p.phases, p.phases, tileSpan
	}
	return p.o0 + p.full*tileSpan, 1, p.o1 - p.o0 - p.full*tileSpan
}

// call is what does not change between the blocks of a projection.
func (q quantTiles) call(w *matrix, m *quantMemory) quantCall {
	t := quantCall{
		format: q.format, kind: q.kind, steps: w.in / quantStep, groups: quantStep / q.group,
		d:   unsafe.Pointer(&m.d[0]),
		buf: unsafe.Pointer(&m.buf[0]), decoded: quantStep, index: unsafe.Pointer(&m.index[0]),
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
	return t
}

// block points t at block i of a plan, and the prefetches at what follows.
func (q quantTiles) block(t *quantCall, w *matrix, m *quantMemory, p quantPlan, i int) {
	stride := w.stride()
	o, rows, outs := p.block(i)
	t.a, t.astride, t.outs = unsafe.Pointer(&w.data[o*stride]), rows*stride, outs
	if t.direct != 0 {
		t.tstride = t.astride
	}
	for i := range m.index {
		m.index[i] = int32(min(i, outs-1) * t.astride)
	}
	if w.dt.Affine() {
		groups := w.in / q.group
		quantScales((*float32)(t.w), &w.tensor.Scales[2*o*groups], 2*rows*groups, outs, groups)
		quantScales((*float32)(t.bias), &w.tensor.Biases[2*o*groups], 2*rows*groups, outs, groups)
	}
	t.next = t.a
	if i+1 < p.full {
		next, _, _ := p.block(i + 1)
		t.next = unsafe.Pointer(&w.data[next*stride])
	}
	t.left = max(t.steps-quantAhead/t.pstep, 1)
	t.ahead = uintptr(t.a) + uintptr(quantAhead/t.pstep*t.pstep)
}

// activations points t at the packed rows from row r on.
func (q quantTiles) activations(t *quantCall, p *packed, r, n int) {
	groups := p.in / q.group
	t.b = unsafe.Pointer(&bytesOf(p)[r*p.in])
	t.bstride, t.bgroup, t.rows = 4*n, min(q.group, 64)*n, n
	t.sx, t.xs = unsafe.Pointer(&p.f32[2*r*groups]), unsafe.Pointer(&p.f32[(2*r+n)*groups])
}

// narrow multiplies up to 16 rows while the weights are decoded.
func (q quantTiles) narrow(y []float32, ldy int, p *packed, w *matrix, plan quantPlan, m *quantMemory) {
	n := p.rows
	t := q.call(w, m)
	q.activations(&t, p, 0, n)
	var cfg tileConfig
	t.cfg, t.w, t.bias = &cfg, unsafe.Pointer(&m.w[0]), unsafe.Pointer(&m.bias[0])
	for i := range plan.blocks() {
		o, phases, outs := plan.block(i)
		cfg.quant(outs, n, min(q.group, 64))
		q.block(&t, w, m, plan, i)
		at := o - plan.o0
		if n == 1 {
			t.c = unsafe.Pointer(&m.c[0])
			quantBlock(&t)
			for i, v := range m.c[:outs] {
				y[at+i*phases] = v
			}
			continue
		}
		t.c, t.cstride = unsafe.Pointer(&m.c[at*tileSpan]), 64*phases
		quantBlock(&t)
	}
	if n > 1 {
		tileTranspose(&y[0], 4*ldy, &m.c[0], 64, plan.o1-plan.o0, n)
	}
}

// wide decodes a panel of weights, and multiplies all rows with it, 16 by 16.
func (q quantTiles) wide(y []float32, ldy int, p *packed, w *matrix, plan quantPlan, m *quantMemory) {
	var cfg tileConfig
	for r := 0; r < p.rows; r += tileSpan {
		n := min(tileSpan, p.rows-r)
		for i := range plan.blocks() {
			o, phases, outs := plan.block(i)
			t := q.call(w, m)
			t.w, t.bias = unsafe.Pointer(&m.w[i*m.table]), unsafe.Pointer(&m.bias[i*m.table])
			if r == 0 {
				q.block(&t, w, m, plan, i)
				if q.format != formatDirect {
					q.decode(t, w, m, i)
				}
			} else {
				t.a, t.tstride, t.outs = unsafe.Pointer(&w.data[o*w.stride()]), phases*w.stride(), outs
			}
			if r > 0 || q.format != formatDirect {
				t.pstep = 0
			}
			switch q.format {
			case formatDirect:
			case formatQ8_0:
				t.a = unsafe.Add(t.a, 2) // behind the first block's scale
			default:
				t.a, t.tstride, t.direct = unsafe.Pointer(&m.decoded[i*tileSpan*w.in/4]), w.in, 1
			}
			t.format = formatDirect
			q.activations(&t, p, r, n)
			cfg.quant(outs, n, min(q.group, 64))
			t.cfg = &cfg
			t.c, t.cstride = unsafe.Pointer(&m.c[(o-plan.o0)*tileSpan]), 64*phases
			if n == 1 {
				t.c = unsafe.Pointer(&m.d[0])
			}
			quantBlock(&t)
			if n == 1 {
				for i, v := range m.d[:outs] {
					y[r*ldy+o-plan.o0+i*phases] = v
				}
			}
		}
		if n > 1 {
			tileTranspose(&y[r*ldy], 4*ldy, &m.c[0], 64, plan.o1-plan.o0, n)
		}
	}
}

// decode runs the first stage alone on block i: bytes and scales.
func (q quantTiles) decode(t quantCall, w *matrix, m *quantMemory, i int) {
	t.kind = kindDecode
	if len(m.decoded) > 0 {
		t.buf, t.decoded = unsafe.Pointer(&m.decoded[i*tileSpan*w.in/4]), w.in
	}
	quantBlock(&t)
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
