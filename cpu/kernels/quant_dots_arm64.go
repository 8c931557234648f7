package kernels

import (
	"encoding/binary"
	"runtime"
	"unsafe"

	"windrow/backend"
	"windrow/quant"
)

// quantDots multiplies quantised weights with activations rounded to int8, by
// SDOT or, where the processor has it, SMMLA.
//
// A block of 8 outputs is worked through in steps of 256 elements, which are
// decoded to signed bytes once for all rows: 2 KB that stay in L1. Then all
// rows meet them, 4 at a time; results wait in memory for the next step. Numbers
// of 8 bits without sign (affine8) are lowered by 128, and 128 times the
// activations' sum is added back, a whole number. Not measured on hardware.
type quantDots struct {
	quantFormat
	mmla  bool
	raise byte
}

const (
	// dotsLanes is the outputs of a block, dotsSpan the rows that are packed
	// together.
	dotsLanes, dotsSpan = 8, 4
	// dotsStep is the elements of a step, half of it where a row has no whole
	// number of them.
	dotsStep = 256
	// dotsRows is the most rows that pass over a block: their activations, 128
	// KB at 2,048 elements, should lie in an L2 of 256 KB.
	dotsRows = 64
)

// dotsCall is what a kernel multiplies: a step of a block with up to 4 rows.
// Offsets are named in quant_dots_arm64.h.
type dotsCall struct {
	c             *float32 // results [rows, 8], added to
	buf           *int8    // the step, decoded
	w, bias       *float32 // scales and biases of the weights [groups, 8]
	x             *int8    // activations of the first row
	xstride       int      // bytes from row to row
	sx, xs        *float32 // scales and sums of the activations [groups, rows]
	zeroSums      *float32 // whole numbers to take from the sums, as sx
	sstride       int      // bytes from group to group of these three
	groups, units int      // groups, and 16 elements of a group
	kind          int      // bit 0: there are biases; bit 1: there are zero sums
}

//go:noescape
func dots1Dot(t *dotsCall)

//go:noescape
func dots2Dot(t *dotsCall)

//go:noescape
func dots4Dot(t *dotsCall)

//go:noescape
func dots2Mmla(t *dotsCall)

//go:noescape
func dots4Mmla(t *dotsCall)

//go:noescape
func neonQuantizeRow(q *int8, step int, scale, sum *float32, zeroSums *int32, stride int, x *float32, groups, group, evens int)

//go:noescape
func neonWidenScales(dst *float32, src *byte, stride, eights int)

// newQuantDots gives the arithmetic for t, nil where there is none.
func newQuantDots(t *backend.Tensor, mmla bool) Projector {
	f, ok := newQuantFormat(t, dotsName(mmla))
	if !ok {
		return nil
	}
	raise := byte(128 - f.zeroPoint) // what makes 128 of an unpacked number's zero
	f.zeroPoint = 0                  // numbers are signed here
	return quantDots{f, mmla, raise}
}

func dotsName(mmla bool) string {
	if mmla {
		return "neon-i8mm"
	}
	return "neon-dot"
}

// parts is how many numbers a group of a row of activations has beside its
// elements: scale, sum, and for bytes without sign 128 sums.
func (q quantDots) parts() int {
	if q.format == formatDirect && !q.unpacks {
		return 3
	}
	return 2
}

// PackSize has room for the rows that a kernel reads beyond the last.
func (q quantDots) PackSize(rows, in int) (int, int) {
	return q.parts()*rows*(in/q.group) + dotsSpan, (rows + dotsSpan - 1) / dotsSpan * dotsSpan * in / 2
}

func (q quantDots) PackRows() int { return dotsSpan }

// Pack rounds rows to int8: row after row, or for SMMLA pairs of rows, 8
// elements of one and then of the other. For each 4 rows it leaves scales
// [groups, rows], sums [groups, rows], and where they are needed 128 sums.
func (q quantDots) Pack(p *Packed, x []float32, r0, r1 int) {
	all, groups := bytesOf(p), p.in/q.group
	evens := 0
	if q.format == formatAffine4 {
		evens = 1
	}
	for r := r0; r < r1; r += dotsSpan {
		n := min(dotsSpan, r1-r)
		part := n * groups
		numbers := p.f32[q.parts()*r*groups : q.parts()*(r+n)*groups]
		for i := range n {
			at, step := (r+i)*p.in, 8
			if q.mmla {
				at, step = (r+i&^1)*p.in+8*(i&1), 16
			}
			var zeroSums *int32
			if q.parts() == 3 {
				zeroSums = (*int32)(unsafe.Pointer(&numbers[2*part+i]))
			}
			_ = x[(r+i+1)*p.in-1]
			neonQuantizeRow(&all[at], step, &numbers[i], &numbers[part+i], zeroSums, 4*n, &x[(r+i)*p.in], groups, q.group, evens)
		}
	}
}

// dotsMemory is the parts of a worker's scratch.
type dotsMemory struct {
	buf     []float32 // the bytes of a step
	w, bias []float32 // of a row of affine types, else of a step
	c       []float32 // results [rows, 8]
	// rows, scales and biases of what is no whole block, copied, for kernels
	// that read a whole one
	rows, scales, biases []byte
}

func (q quantDots) memory(s *Scratch, w *Weight, rows int) (m dotsMemory) {
	groups := w.in / q.group
	tables := max(groups, dotsStep/q.group) * dotsLanes
	stride := q.rowStride(w)
	tail := dotsLanes * (stride + 4*groups) / 4
	results := (rows + dotsSpan) * dotsLanes // a kernel has results for all rows that it reads
	mem := Grown(&s.quant, dotsStep*dotsLanes/4+2*tables+results+tail)
	cut := func(n int) (part []float32) {
		part, mem = mem[:n], mem[n:]
		return part
	}
	m.buf, m.w, m.bias, m.c = cut(dotsStep*dotsLanes/4), cut(tables), cut(tables), cut(results)
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&mem[0])), 4*tail)
	m.rows, bytes = bytes[:dotsLanes*stride], bytes[dotsLanes*stride:]
	m.scales, m.biases = bytes[:2*dotsLanes*groups], bytes[2*dotsLanes*groups:]
	return m
}

func (q quantDots) Project(y []float32, ldy int, p *Packed, w *Weight, o0, o1 int, s *Scratch) {
	if o0 >= o1 || p.Rows <= 0 {
		return
	}
	_ = y[(p.Rows-1)*ldy+o1-o0-1]
	m := q.memory(s, w, min(p.Rows, dotsRows))
	stride := q.rowStride(w)
	for r := 0; r < p.Rows; r += dotsRows {
		n := min(dotsRows, p.Rows-r)
		for o := o0; o < o1; o += dotsLanes {
			outs := min(dotsLanes, o1-o)
			rows := m.rows
			switch {
			case q.unpacks:
				q.unpack(m.rows, m.w, m.bias, dotsLanes, w, o, outs, q.raise)
			case outs < dotsLanes:
				copy(m.rows, w.data[o*stride:(o+outs)*stride])
			default:
				rows = w.data[o*stride : (o+outs)*stride]
			}
			if w.dt.Affine() {
				q.widen(m.w, w.tensor.Scales, m.scales, w, o, outs)
				q.widen(m.bias, w.tensor.Biases, m.biases, w, o, outs)
			}
			clear(m.c[:n*dotsLanes])
			q.block(p, r, n, w, rows, &m)
			for i := range n {
				copy(y[(r+i)*ldy+o-o0:][:outs], m.c[i*dotsLanes:])
			}
		}
	}
	runtime.KeepAlive(w)
}

// block adds the products of n rows from row r on with 8 rows of weights to m.c.
func (q quantDots) block(p *Packed, r, n int, w *Weight, rows []byte, m *dotsMemory) {
	elements := dotsStep
	if w.in%dotsStep != 0 {
		elements = dotsStep / 2
	}
	groups, all := w.in/q.group, bytesOf(p)
	buf := (*int8)(unsafe.Pointer(&m.buf[0]))
	t := dotsCall{buf: buf, w: &m.w[0], bias: &m.bias[0], xstride: p.in, groups: elements / q.group, units: q.group / 16}
	if q.format == formatDirect && (q.biased || !q.unpacks) || q.format == formatAffine4 || q.format == formatQ4_K || q.format == formatQ5_K {
		t.kind = 1
	}
	if q.parts() == 3 {
		t.kind |= 2
	}
	if q.mmla {
		t.xstride *= 2 // from pair to pair
	}
	for k := 0; k < w.in; k += elements {
		q.decode(buf, &m.w[0], &m.bias[0], &rows[q.bytes(k)], q.rowStride(w), elements)
		g := k / q.group
		if w.dt.Affine() || q.unpacks {
			t.w, t.bias = &m.w[dotsLanes*g], &m.bias[dotsLanes*g]
		}
		for i := 0; i < n; i += dotsSpan {
			span := min(dotsSpan, n-i)
			numbers := p.f32[q.parts()*(r+i)*groups:]
			t.sstride, t.sx, t.xs, t.zeroSums = 4*span, &numbers[span*g], &numbers[span*(groups+g)], &numbers[0]
			if q.parts() == 3 {
				t.zeroSums = &numbers[span*(2*groups+g)]
			}
			t.c = &m.c[i*dotsLanes]
			if q.mmla {
				t.x = &all[(r+i)*p.in+2*k]
				if span > 2 {
					dots4Mmla(&t)
				} else {
					dots2Mmla(&t)
				}
				continue
			}
			t.x = &all[(r+i)*p.in+k]
			switch span {
			case 1:
				dots1Dot(&t)
			case 2:
				dots2Dot(&t)
			default:
				dots4Dot(&t)
			}
		}
	}
}

// widen turns the bf16 of outs rows from o on, [outputs, groups], to f32
// [groups, 8]. copied takes the rows that are no whole block.
func (q quantDots) widen(dst []float32, src, copied []byte, w *Weight, o, outs int) {
	groups := w.in / q.group
	src = src[2*o*groups : 2*(o+outs)*groups]
	if outs < dotsLanes {
		copy(copied, src)
		src = copied
	}
	if groups >= 8 {
		neonWidenScales(&dst[0], &src[0], 2*groups, groups/8)
	}
	for g := groups &^ 7; g < groups; g++ {
		for i := range dotsLanes {
			dst[g*dotsLanes+i] = quant.BF16ToF32(binary.LittleEndian.Uint16(src[2*(i*groups+g):]))
		}
	}
}
