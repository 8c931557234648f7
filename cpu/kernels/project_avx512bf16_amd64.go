package kernels

import (
	"unsafe"

	"windrow/backend"
)

// bf16Projector multiplies bf16 weights with activations rounded to bf16 by
// VDPBF16PS, which adds two products to each of 16 sums.
//
// Each output of each row is one register of 16 sums, over the steps of 32
// elements in ascending order, and one fixed tree over them at the end. Between
// K blocks the register goes through memory in full. So the bits depend on
// neither the row count nor the split of the outputs.
//
// The instruction's arithmetic: denormals taken and given as 0, and an odd
// element's product added before the even one's, each addition rounded to f32.
type bf16Projector struct{}

const (
	// dotStep is the elements of a step; dotOuts and dotRows the outputs and
	// rows of a register tile: 24 of 32 registers hold sums.
	dotStep, dotOuts, dotRows = 32, 4, 6
	// dotBlock is the steps of a K block: 6 rows × 1024 elements of activations
	// and 4 rows of weights, 20 KB, stay in L1.
	dotBlock = 32
	// dotWhole is the most rows that go without K blocks.
	dotWhole = 24
	// dotAhead is how many bytes ahead of its use each of the streams is prefetched.
	dotAhead = 1024
)

// dotCall is what the assembly works through: blocks of four outputs.
// Offsets are in bytes, and named in project_avx512bf16_amd64.s.
type dotCall struct {
	w      unsafe.Pointer
	stride int    // from block to block
	ahead  int    // from a row to what is prefetched of it
	others [3]int // from w to the second to fourth row
	x      [dotRows]unsafe.Pointer
	acc    unsafe.Pointer // saved sums, 4·rows registers a block
	y      unsafe.Pointer
	ldy    int
	apart  int // from a result of a block to the next
	along  int // from the first of a block to that of the next
	steps  int
	blocks int
	resume int
	finish int
}

//go:noescape
func dotsNear(d *nearCall)

//go:noescape
func packBF16(dst *uint16, x *float32, steps int)

//go:noescape
func dots1(d *dotCall)

//go:noescape
func dots2(d *dotCall)

//go:noescape
func dots3(d *dotCall)

//go:noescape
func dots4(d *dotCall)

//go:noescape
func dots5(d *dotCall)

//go:noescape
func dots6(d *dotCall)

func (bf16Projector) Name() string { return "avx512-bf16" }

func (bf16Projector) Takes(dt backend.DType, in int) bool {
	return dt == backend.BF16 && in > 0 && in%dotStep == 0
}

func (bf16Projector) PackSize(rows, in int) (int, int) { return 0, rows * in }
func (bf16Projector) PackRows() int                    { return 8 }

func (bf16Projector) Chunk(rows, in int) int { return 64 }

// Pack rounds to bf16, row after row.
func (bf16Projector) Pack(p *Packed, x []float32, r0, r1 int) {
	if n := (r1 - r0) * p.in; n > 0 {
		dst, src := p.b16[r0*p.in:r1*p.in], x[r0*p.in:r1*p.in]
		packBF16(&dst[0], &src[0], n/dotStep)
	}
}

// PackColumns rounds columns [from, from+n) of all rows to bf16, from x [rows, n].
func (bf16Projector) PackColumns(p *Packed, x []float32, from, n int) {
	if n <= 0 || p.Rows <= 0 {
		return
	}
	_, _ = x[p.Rows*n-1], p.b16[(p.Rows-1)*p.in+from+n-1]
	for r := range p.Rows {
		packBF16(&p.b16[r*p.in+from], &x[r*n], n/dotStep)
	}
}

// Project has the outputs of a block lie a quarter of all apart, and the next block's follow
// them in memory: four streams, which with two threads read 1.1 times what one linear stream
// reads on a Zen 4.
func (pr bf16Projector) Project(y []float32, ldy int, p *Packed, w *Weight, o0, o1 int, s *Scratch) {
	pr.project(y, ldy, p, p.Rows, nil, w, o0, o1, s)
}

// TakesRows: packed rows of any length may be taken.
func (bf16Projector) TakesRows(*Weight) bool { return true }

// ProjectRows is Project of some of the packed rows.
func (pr bf16Projector) ProjectRows(y []float32, ldy int, p *Packed, list []int, w *Weight, o0, o1 int, s *Scratch) {
	pr.project(y, ldy, p, len(list), list, w, o0, o1, s)
}

// project is Project of the packed rows of a list, or of all where it is nil.
func (pr bf16Projector) project(y []float32, ldy int, p *Packed, rows int, list []int, w *Weight, o0, o1 int, s *Scratch) {
	outs, stride, steps := o1-o0, 2*w.in, w.in/dotStep
	if outs <= 0 || rows <= 0 {
		return
	}
	a := w.data[o0*stride : o1*stride]
	_ = y[(rows-1)*ldy+outs-1]
	apart := outs / dotOuts
	streamed := apart * dotOuts
	if rows > 1 && apart > 0 && stride <= dotNear/(2*dotRows) {
		near(0, y, ldy, nearRows{unsafe.Pointer(&p.b16[0]), stride, stride, rows, list}, a, w.in, stride, apart, after(w, o0, o1, s))
		if streamed == outs {
			return
		}
		apart = 0
	}
	kept := 0
	if rows > dotWhole {
		kept = (apart + 1) * dotOuts * dotRows * 16
	}
	memory := Grown(&s.project, kept+dotRows*dotOuts)
	last := memory[kept:] // what a block with fewer outputs comes to
	var acc unsafe.Pointer
	if kept > 0 {
		acc = unsafe.Pointer(&memory[0])
	}
	var d dotCall
	// Even parts: 8 rows are 4 + 4, not 6 + 2, and no part of several is one row.
	parts := (rows + dotRows - 1) / dotRows
	for i := range parts {
		r0, r1 := i*rows/parts, (i+1)*rows/parts
		d.resume = 0
		// The first part brings the weights from memory; the bits do not depend on the block.
		block, ahead := steps, dotAhead
		if acc != nil && i > 0 {
			block, ahead = dotBlock, 0
		}
		for k := 0; k < steps; k += block {
			d.steps = min(block, steps-k)
			d.finish = 0
			if k+d.steps == steps {
				d.finish = 1
			}
			for r := r0; r < r1; r++ {
				d.x[r-r0] = unsafe.Pointer(&p.b16[of(list, r)*w.in+k*dotStep])
			}
			d.acc = acc
			if apart > 0 {
				d.w, d.y, d.ldy, d.apart, d.along = unsafe.Pointer(&a[64*k]), unsafe.Pointer(&y[r0*ldy]), 4*ldy, 4*apart, 4
				d.stride, d.blocks, d.ahead = stride, apart, ahead
				d.others = [3]int{apart * stride, 2 * apart * stride, 3 * apart * stride}
				pr.dots(&d, r1-r0)
			}
			if rest := outs - streamed; rest > 0 {
				// Rows of weights that are not there are the last one again.
				d.w, d.y, d.ldy, d.apart = unsafe.Pointer(&a[streamed*stride+64*k]), unsafe.Pointer(&last[0]), 4*dotOuts, 4
				if acc != nil {
					d.acc = unsafe.Add(acc, apart*(r1-r0)*dotOuts*64)
				}
				d.blocks, d.ahead = 1, 0
				d.others = [3]int{min(1, rest-1) * stride, min(2, rest-1) * stride, (rest - 1) * stride}
				pr.dots(&d, r1-r0)
			}
			d.resume = 1
		}
		for r := r0; r < r1; r++ {
			copy(y[r*ldy+streamed:r*ldy+outs], last[(r-r0)*dotOuts:])
		}
	}
}

// dots runs the kernel for that many rows. One row comes alone, with all its steps.
func (bf16Projector) dots(d *dotCall, rows int) {
	switch rows {
	case 1:
		dots1(d)
	case 2:
		dots2(d)
	case 3:
		dots3(d)
	case 4:
		dots4(d)
	case 5:
		dots5(d)
	default:
		dots6(d)
	}
}
