package kernels

import (
	"encoding/binary"
	"runtime"
	"unsafe"

	"github.com/klauspost/cpuid/v2"

	"windrow/backend"
	"windrow/quant"
)

// quantDots multiplies quantised weights with activations rounded to int8, by
// the dot products of AVX2, AVX-VNNI or AVX-512 VNNI.
//
// A block of 16 or 32 outputs is worked through in steps of 256 elements. The
// numbers of a step are decoded to unsigned bytes, once for all rows, with the
// same 4 elements of each output side by side in a vector, so that a lane is an
// output and 4 elements of a row of activations are one broadcast: sums need no
// adding across lanes. The step's bytes, 4 or 8 KB, stay in L1. Then all rows
// meet them, 4 or 8 at a time; a row's results wait in memory for the next step.
//
// One row goes by quantAlone where AVX-512 has it, else, and on AMD's processors (few), by
// quantAloneAVX2: decoding for one row costs more than adding across lanes, and fewer streams
// read a Zen 5's memory faster (one row of the 1.7b at 86 to 90 % of it for 80 to 84).
//
// A block of 32 outputs is as many streams of memory, and the lines of all of them can want
// the same set of L1. In one of 48 KB, 12 ways, that costs little; in one of 32 KB, 8 ways,
// AVX-512 took longer than AVX2 for 1 to 8 rows (a Zen 4: 40 ns a thousand weights of Q4_0
// for 31 with one row, 39 for 25 with two). There (small) a few rows of formats that suffer
// most go by blocks of 16, and lines are prefetched to L2 first.
type quantDots struct {
	quantFormat
	isa   int
	alone bool
	few   bool
	small bool
}

// The instruction sets of quantDots.
const (
	dotsOfAVX2 = iota
	dotsOfAVXVNNI
	dotsOfAVX512
	dotsOfOneRow  // quantAloneAVX2's blocks
	dotsOfHalf512 // those of dotsHalfAVX512
)

// dotsNames are the names of their kernels.
var dotsNames = [...]string{"avx2-int8", "avx-vnni", "avx512-vnni"}

const (
	// dotsStep is the elements of a step, half of it where a row has no whole
	// number of them.
	dotsStep = 256
	// dotsSpan is the rows whose activations are packed together: the most that
	// the assembly multiplies at once.
	dotsSpan = 4
	// dotsFetch is the most lines that are prefetched at once: a core has 16 to 24
	// buffers for lines to come.
	dotsFetch = 20
	// streamRows is the most rows whose blocks are of outputs that lie apart: decoding
	// weights takes most of their time, and results have to be spread one by one.
	streamRows = 16
	// halfRows is the most rows that go by dotsHalfAVX512.
	halfRows = 8
	// streamFetch is how many bytes ahead streams are prefetched to L2 while rows are
	// multiplied, besides to L1 while they are decoded: of rows of 1 or 2 KiB lines of all
	// streams want the same set of L1, which has not the ways for them.
	streamFetch = 768
	// dotsRows is the most rows that pass over a block: their activations, 128
	// KB at 2,048 elements, should lie in an L2 of 256 KB.
	dotsRows = 64
)

// dotsCall is what the assembly works through, and changes. Offsets are named
// in quant_dots_amd64.h. Addresses are of memory that does not move.
type dotsCall struct {
	a, next        uintptr // the block's rows, and the next block's
	astride, astep int     // bytes from row to row, and of a step
	format         int
	steps          int
	elements       int // of a step
	ahead          uintptr
	left           int // steps until ahead turns to the next block
	buf            uintptr
	w, bias        uintptr // scales and biases [groups, outputs]
	wstep          int     // from step to step; 0: those of a step alone
	x              uintptr
	xstride        int
	group, groups  int     // elements of a group, groups of a step
	sx             uintptr // scales of the activations, see pack
	sxtile, sxrow  int     // bytes of a tile of rows and of a row
	sxat           int     // bytes of the groups before this step, of a row
	rows           int
	c              uintptr // results [rows, outputs]
	zeroPoint      int     // not 0: sums of activations are what to take from sums
	kind           int     // of AVX2: see numbersOf4
	xstep          int     // bytes of a step's activations
	words          uintptr // of AVX2: the numbers of a step as words where they are bytes, or sums
	fetch          uintptr // what is prefetched between the rows, see dotsFetch
	fetches        int     // lines of it each time
	// from line to line, how many of a column of them are left, and from behind its last
	// line to the next column: a line of each output's stream, or all of one stream
	fetchStep, fetchLeft, fetchBack int
	_                               [9]int
}

//go:noescape
func dotsAVX2(t *dotsCall)

//go:noescape
func dotsAVXVNNI(t *dotsCall)

//go:noescape
func dotsAVX512(t *dotsCall)

//go:noescape
func dotsHalfAVX512(t *dotsCall)

//go:noescape
func quantAloneAVX2(t *dotsCall)

//go:noescape
func quantizeRowAVX2(q *int8, scale, sum *float32, stride int, x *float32, groups, group, zeroPoint int, order *[16]uint8)

//go:noescape
func widenActivations(dst *int16, src *int8, sixteens int)

//go:noescape
func widenScales8(dst *float32, lanes int, src *byte, stride, eights int)

//go:noescape
func widenScales16(dst *float32, lanes int, src *byte, stride, eights int)

// newQuantDots gives the arithmetic for t, nil where there is none.
func newQuantDots(t *backend.Tensor, isa int) Projector {
	f, ok := newQuantFormat(t, dotsNames[isa])
	if !ok {
		return nil
	}
	small := isa == dotsOfAVX512 && smallL1()
	few := small || isa == dotsOfAVX512 && cpuid.CPU.VendorID == cpuid.AMD
	return quantDots{f, isa, isa == dotsOfAVX512 && !few && featuresVBMI.here() && !f.dotsOnly(), few, small}
}

// smallL1 reports whether a core's L1 data cache is one of 32 KB.
func smallL1() bool { return cpuid.CPU.Cache.L1D > 0 && cpuid.CPU.Cache.L1D <= 32<<10 }

// lanes is the outputs of a block.
func (q quantDots) lanes() int { return [...]int{16, 16, 32, 8, 16}[q.isa] }

// evenFirst sorts 8 elements as the nibbles of affine4 come out of their bytes.
var evenFirst, asTheyAre = [16]uint8{0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15},
	[16]uint8{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

func (q quantDots) PackSize(rows, in int) (int, int) {
	if rows == 1 && q.alone {
		return quantTiles{q.quantFormat, 1}.PackSize(rows, in)
	}
	size := rows * in
	if q.words(rows) {
		size *= 2
	}
	return 2 * rows * (in / q.group), (size + 1) / 2
}

// words reports whether activations are packed as words: AVX2 has no product of bytes
// that cannot saturate.
func (q quantDots) words(rows int) bool {
	return q.isa == dotsOfAVX2 && !q.oneRow(rows) && q.numbers() == numbersOfBytes
}

// oneRow reports whether quantAloneAVX2 multiplies.
func (q quantDots) oneRow(rows int) bool {
	return rows == 1 && (q.isa != dotsOfAVX512 || q.few) && !q.dotsOnly()
}

// half reports whether dotsHalfAVX512 multiplies: rows of affine groups are powers of two
// of bytes, those of Q6_K the longest of a step.
func (q quantDots) half(rows int) bool {
	return q.small && rows > 1 && rows <= halfRows && (q.format == formatAffine4 || q.format == formatDirect && !q.unpacks || q.format == formatQ6_K)
}

// The numbers that dotsAVX2 tells apart.
const (
	numbersOf4 = iota
	numbersOf6
	numbersOfBytes
	numbersOf5
)

func (q quantDots) numbers() int {
	switch {
	case q.group == 16:
		return numbersOf6
	case q.bits == 5:
		return numbersOf5
	case !(q.unpacks && q.bits <= 4) && (q.format == formatDirect || q.format == formatQ8_0):
		return numbersOfBytes
	}
	return numbersOf4
}

func (q quantDots) PackRows() int { return dotsSpan }

// Pack rounds rows to [rows, in] int8, or words of them; for each span of rows it leaves
// scales [groups, rows] and sums [groups, rows].
func (q quantDots) Pack(p *Packed, x []float32, r0, r1 int) {
	if p.Rows == 1 && q.alone {
		quantTiles{q.quantFormat, 1}.Pack(p, x, r0, r1)
		return
	}
	all, groups := bytesOf(p), p.in/q.group
	order := &asTheyAre
	if q.format == formatAffine4 {
		order = &evenFirst
	}
	words := q.words(p.Rows)
	for r := r0; r < r1; r += dotsSpan {
		n := min(dotsSpan, r1-r)
		scales := p.f32[2*r*groups : 2*(r+n)*groups]
		for i := range n {
			row := x[(r+i)*p.in : (r+i+1)*p.in]
			to := all[(r+i)*p.in:][:p.in]
			if words { // the bytes lie in the second half of the words
				to = all[(2*(r+i)+1)*p.in:][:p.in]
			}
			quantizeRowAVX2(&to[0], &scales[i], &scales[n*groups+i], 4*n, &row[0], groups, q.group, q.zeroPoint, order)
			if words {
				widenActivations((*int16)(unsafe.Pointer(&all[2*(r+i)*p.in])), &to[0], p.in/16)
			}
		}
	}
}

// dotsMemory is the parts of a worker's scratch.
type dotsMemory struct {
	buf     []float32 // the bytes of a step, and its words where those are wanted
	w, bias []float32 // as in dotsCall
	c       []float32 // results [rows, outputs]
	// rows, scales and biases of what is no whole block, copied, for a kernel
	// that reads a whole one
	rows, scales, biases []byte
}

func (q quantDots) memory(s *Scratch, w *Weight, rows int) (m dotsMemory) {
	lanes := q.lanes()
	groups := w.in / q.group
	tables := max(groups, dotsStep/q.group) // of the row, or of a step
	stride := q.rowStride(w)
	sizes := [5]int{3 * dotsStep / 4 * lanes, tables * lanes, tables * lanes, rows * lanes, lanes * (stride + 4*groups) / 4}
	total := 64
	for i, n := range sizes {
		sizes[i] = (n + 15) &^ 15
		total += sizes[i]
	}
	mem := align64(Grown(&s.quant, total))
	cut := func(n int) (part []float32) {
		part, mem = mem[:n], mem[n:]
		return part
	}
	m.buf, m.w, m.bias, m.c = cut(sizes[0]), cut(sizes[1]), cut(sizes[2]), cut(sizes[3])
	tail := unsafe.Slice((*byte)(unsafe.Pointer(&mem[0])), 4*sizes[4])
	m.rows, tail = tail[:lanes*stride], tail[lanes*stride:]
	m.scales, m.biases = tail[:2*lanes*groups], tail[2*lanes*groups:][:2*lanes*groups]
	return m
}

func (q quantDots) Project(y []float32, ldy int, p *Packed, w *Weight, o0, o1 int, s *Scratch) {
	if o0 >= o1 || p.Rows <= 0 {
		return
	}
	if p.Rows == 1 && q.alone {
		quantTiles{q.quantFormat, 1}.Project(y, ldy, p, w, o0, o1, s)
		return
	}
	_ = y[(p.Rows-1)*ldy+o1-o0-1]
	switch {
	case q.oneRow(p.Rows):
		q.isa = dotsOfOneRow
	case q.half(p.Rows):
		q.isa = dotsOfHalf512
	}
	m := q.memory(s, w, min(p.Rows, dotsRows))
	if p.Rows <= streamRows && !q.unpacks {
		done := q.streams(y, ldy, p, w, o0, o1, &m, s)
		o0, y = o0+done, y[done:]
	}
	for r := 0; r < p.Rows; r += dotsRows {
		q.rows(y[r*ldy:], ldy, p, r, min(dotsRows, p.Rows-r), w, o0, o1, &m)
	}
	runtime.KeepAlive(w)
}

// rows multiplies n rows of p from row r on with the outputs [o0, o1).
func (q quantDots) rows(y []float32, ldy int, p *Packed, r, n int, w *Weight, o0, o1 int, m *dotsMemory) {
	t, stride, lanes := q.call(p, r, n, w, m), q.rowStride(w), q.lanes()
	ahead := min((quantAhead+t.astep-1)/t.astep, t.steps)
	for o := o0; o < o1; o += lanes {
		outs := min(lanes, o1-o)
		rows, last := m.rows, o+2*lanes > o1
		switch {
		case q.unpacks:
			q.unpack(m.rows, m.w, m.bias, lanes, w, o, outs, 0)
			last = true // the next block's rows come to the same place
		case outs < lanes:
			copy(m.rows, w.data[o*stride:(o+outs)*stride])
		default:
			rows = w.data[o*stride : (o+outs)*stride]
		}
		if w.dt.Affine() {
			q.widenRows(m.w, w.tensor.Scales, m.scales, w, o, outs)
			q.widenRows(m.bias, w.tensor.Biases, m.biases, w, o, outs)
		}
		call := t
		call.a = uintptr(unsafe.Pointer(&rows[0]))
		call.next = call.a
		if !last {
			call.next += uintptr(lanes * stride)
		}
		call.fetch, call.fetchStep, call.fetchLeft = call.next, 64, -1
		if last || q.unpacks {
			call.fetches = 0
		}
		call.ahead, call.left = call.a+uintptr(ahead*t.astep), t.steps-ahead
		if call.left == 0 {
			call.ahead = call.next
		}
		c := m.c[:n*lanes]
		q.block(&call, c)
		for i := range n {
			copy(y[i*ldy+o-o0:][:outs], c[i*lanes:])
		}
	}
}

// block multiplies a block, to c.
func (q quantDots) block(call *dotsCall, c []float32) {
	clear(c)
	switch q.isa {
	case dotsOfOneRow:
		quantAloneAVX2(call)
	case dotsOfAVX2:
		dotsAVX2(call)
	case dotsOfAVXVNNI:
		dotsAVXVNNI(call)
	case dotsOfHalf512:
		dotsHalfAVX512(call)
	default:
		dotsAVX512(call)
	}
}

// streams multiplies few rows with as many outputs from o0 on as are whole blocks, and
// returns how many. The outputs of a block, of 8 say, are not neighbours but lie an eighth
// of all apart, and the next block's follow them in memory: 8 streams that go on through
// all blocks, each in pages of its own. The hardware's prefetcher follows one stream in a page,
// and a row of 2,048 numbers of 4 bits is a quarter of one. One row takes from 1.05 to 1.3
// times as long where they lie whole pages apart, as their lines then want the same set of L1:
// so its streams are a row shorter there, and 8 outputs are left for a block of neighbours.
// Where it is known what comes after them (Scratch.After), its streams are begun by the last
// block: a piece of an expert is short (BenchmarkPieces).
func (q quantDots) streams(y []float32, ldy int, p *Packed, w *Weight, o0, o1 int, m *dotsMemory, s *Scratch) int {
	lanes, stride := q.lanes(), q.rowStride(w)
	apart := (o1 - o0) / lanes
	if q.isa == dotsOfOneRow && apart > 2 && apart*stride%4096 == 0 {
		apart--
	}
	t, groups := q.call(p, 0, p.Rows, w, m), w.in/q.group
	t.astride, t.fetches = apart*stride, 0
	if q.fetchesAhead() {
		t.fetches, t.fetchStep, t.fetchBack = q.streamLines(t.astep, p.Rows), t.astride, 64-lanes*t.astride
	}
	ahead := min((quantAhead+t.astep-1)/t.astep, t.steps)
	for i := range apart {
		o := o0 + i
		next, from := w, o+1
		if i == apart-1 && s.After != nil && s.After.alike(w) && s.AfterFrom+o1-o0 <= s.After.out {
			next, from = s.After, s.AfterFrom
		}
		if w.dt.Affine() {
			scales, biases := w.tensor.Scales[2*o*groups:], w.tensor.Biases[2*o*groups:]
			q.widen(m.w, scales, 2*groups*apart, groups)
			q.widen(m.bias, biases, 2*groups*apart, groups)
			prefetchRows(&next.tensor.Scales[2*from*groups], 2*groups*apart, lanes, 2*groups)
			prefetchRows(&next.tensor.Biases[2*from*groups], 2*groups*apart, lanes, 2*groups)
		}
		call := t
		call.a = uintptr(unsafe.Pointer(&w.data[o*stride]))
		call.next = uintptr(unsafe.Pointer(&next.data[from*stride]))
		call.ahead, call.left = call.a+uintptr(ahead*t.astep), t.steps-ahead
		if call.left == 0 {
			call.ahead = call.next
		}
		call.fetch, call.fetchLeft = call.a+streamFetch, lanes
		c := m.c[:p.Rows*lanes]
		q.block(&call, c)
		for r := range p.Rows {
			row, sums := y[r*ldy+i:], c[r*lanes:(r+1)*lanes]
			for j, v := range sums {
				row[j*apart] = v
			}
		}
	}
	return apart * lanes
}

// alike reports whether rows are of one form.
func (w *Weight) alike(v *Weight) bool {
	return w.dt == v.dt && w.in == v.in && w.tensor.Group == v.tensor.Group
}

// call is what does not change between blocks.
func (q quantDots) call(p *Packed, r, n int, w *Weight, m *dotsMemory) dotsCall {
	groups := w.in / q.group
	size := 1 // of a number of the activations
	if q.words(p.Rows) {
		size = 2
	}
	t := dotsCall{
		astride: q.rowStride(w), format: q.format, elements: dotsStep,
		buf: uintptr(unsafe.Pointer(&m.buf[0])), w: uintptr(unsafe.Pointer(&m.w[0])), bias: uintptr(unsafe.Pointer(&m.bias[0])),
		x: uintptr(unsafe.Pointer(&bytesOf(p)[r*size*p.in])), xstride: size * p.in,
		group: q.group, sx: uintptr(unsafe.Pointer(&p.f32[2*r*groups])), sxtile: 8 * dotsSpan * groups, sxrow: 4 * groups,
		rows: n, c: uintptr(unsafe.Pointer(&m.c[0])), zeroPoint: q.zeroPoint, kind: q.numbers(),
		words: uintptr(unsafe.Pointer(&m.buf[dotsStep/4*q.lanes()])),
	}
	if w.in%dotsStep != 0 {
		t.elements = dotsStep / 2
	}
	t.xstep = size * t.elements
	t.steps, t.groups, t.astep = w.in/t.elements, t.elements/q.group, q.bytes(t.elements)
	if w.dt.Affine() || q.unpacks {
		t.wstep = 4 * q.lanes() * t.groups
	}
	if q.fetchesAhead() || q.isa == dotsOfAVXVNNI {
		t.fetches = q.fetchLines(t.astep, n)
	}
	return t
}

// fetchesAhead reports whether lines of streams, too, are prefetched to L2 between the rows.
func (q quantDots) fetchesAhead() bool {
	return q.isa == dotsOfAVX2 || q.small && q.isa != dotsOfOneRow
}

// fetchLines is how many lines of the next block are prefetched each time that rows have
// met a step, of size bytes an output: as many as a step has, over the times that there are.
// A burst of them at the start of a step waits for memory, and the core with it; while rows
// are multiplied there is time. More than dotsFetch at once would wait, too.
func (q quantDots) fetchLines(size, rows int) int {
	parts := q.parts(rows)
	if parts < 2 {
		return 0
	}
	return min((q.lanes()*size/64+parts-1)/parts+1, dotsFetch)
}

// streamLines is the same for streams, whose next lines follow in memory: none is left out.
func (q quantDots) streamLines(size, rows int) int {
	parts := q.parts(rows)
	return (q.lanes()*size/64 + parts - 1) / parts
}

// parts is how often the assembly turns to other rows in a step.
func (q quantDots) parts(rows int) int {
	if n := q.numbers(); q.isa == dotsOfAVX2 && (n == numbersOf5 || n == numbersOf6) {
		return (rows + 1) / 2
	}
	return (rows + dotsSpan - 1) / dotsSpan
}

// widenRows is widen for outs rows from o on. copied takes the rows that are no whole
// block.
func (q quantDots) widenRows(dst []float32, src, copied []byte, w *Weight, o, outs int) {
	groups := w.in / q.group
	src = src[2*o*groups : 2*(o+outs)*groups]
	if outs < q.lanes() {
		copy(copied, src)
		src = copied
	}
	q.widen(dst, src, 2*groups, groups)
}

// widen turns the bf16 of a block's rows, which lie stride bytes apart, to f32 [groups,
// lanes]. Of groups that are no multiple of 8 the last 8 are turned once more: one by one,
// the 4 that rows of 768 in groups of 64 have left took as long as half of the products.
func (q quantDots) widen(dst []float32, src []byte, stride, groups int) {
	lanes := q.lanes()
	_ = src[(lanes-1)*stride+2*groups-1]
	if groups < 8 {
		for g := range groups {
			for i := range lanes {
				dst[g*lanes+i] = quant.BF16ToF32(binary.LittleEndian.Uint16(src[i*stride+2*g:]))
			}
		}
		return
	}
	q.widenEights(dst, src, stride, groups/8)
	if groups%8 != 0 {
		q.widenEights(dst[(groups-8)*lanes:], src[2*(groups-8):], stride, 1)
	}
}

// widenEights is widen for so many times 8 groups.
func (q quantDots) widenEights(dst []float32, src []byte, stride, eights int) {
	lanes := q.lanes()
	if q.isa == dotsOfAVX512 {
		for i := 0; i < lanes; i += 16 {
			widenScales16(&dst[i], lanes, &src[i*stride], stride, eights)
		}
		return
	}
	for i := 0; i < lanes; i += 8 {
		widenScales8(&dst[i], lanes, &src[i*stride], stride, eights)
	}
}
