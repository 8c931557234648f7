package kernels

import (
	"unsafe"

	"windrow/backend"
)

// neonProjector multiplies f32 activations with weights of any dtype, as they
// lie in the file. One row streams four weight rows at once; from three rows
// on, four weight rows are widened to scratch and multiplied in tiles of 4
// outputs × 3 rows. A product's bits are the same either way, see
// project_neon_arm64.s. Not measured on hardware.
type neonProjector struct{}

//go:noescape
func neonGemvBF16Asm(y *float32, w0, w1, w2, w3 *byte, x *float32, in int)

//go:noescape
func neonGemvF16Asm(y *float32, w0, w1, w2, w3 *byte, x *float32, in int)

//go:noescape
func neonGemvF32Asm(y *float32, w0, w1, w2, w3 *byte, x *float32, in int)

//go:noescape
func neonTile4x3Asm(y *float32, ldy int, w0, w1, w2, w3 *byte, x *float32, in int, ahead *byte, step int)

//go:noescape
func neonTile4x2Asm(y *float32, ldy int, w0, w1, w2, w3 *byte, x *float32, in int, ahead *byte, step int)

// neonRowBytes bounds the activations that one pass over the weights works on:
// with a chunk of weights they should lie in an L2 cache of 1 MiB.
const neonRowBytes = 512 << 10

func (neonProjector) Name() string                     { return "neon-f32" }
func (neonProjector) Takes(backend.DType, int) bool    { return true }
func (neonProjector) PackSize(rows, in int) (int, int) { return rows * in, 0 }
func (neonProjector) PackRows() int                    { return 1 }

// Chunk is 128 Ki weights, 5 µs of a core's memory bandwidth and a quarter of
// a 1 MiB L2 in bf16, but no more than 64 outputs, so that narrow matrices
// still spread over the workers.
func (neonProjector) Chunk(_, in int) int {
	return min(max(128<<10/max(in, 1), 4), 64) &^ 3
}

func (neonProjector) Pack(p *Packed, x []float32, r0, r1 int) {
	copy(p.f32[r0*p.in:r1*p.in], x[r0*p.in:r1*p.in])
}

func (neonProjector) Project(y []float32, ldy int, p *Packed, w *Weight, o0, o1 int, s *Scratch) {
	if w.in <= 0 || o0 >= o1 || p.Rows <= 0 {
		return
	}
	x := first(p.f32, p.Rows*w.in)
	data := first(w.data, o1*w.stride())[o0*w.stride():]
	y = first(y, (p.Rows-1)*ldy+o1-o0)
	if p.Rows <= 2 {
		for o := 0; o < o1-o0; o += 4 {
			four := takeFour(data, o, o1-o0, w.stride())
			for r := range p.Rows {
				var t [4]float32
				neonGemv(w.dt, &t[0], four, &x[r*w.in], w.in)
				copy(y[r*ldy+o:r*ldy+o1-o0], t[:])
			}
		}
		return
	}
	// A multiple of 3: only the last block has rows beside the tiles.
	block := max(neonRowBytes/(4*w.in)/3*3, 6)
	for r0 := 0; r0 < p.Rows; r0 += block {
		n := min(block, p.Rows-r0)
		neonProjectRows(y[r0*ldy:], ldy, x[r0*w.in:(r0+n)*w.in], n, w, data, o1-o0, s)
	}
}

// neonGemv multiplies four weight rows with one row of activations.
func neonGemv(dt backend.DType, y *float32, w [4]*byte, x *float32, in int) {
	switch dt {
	case backend.BF16:
		neonGemvBF16Asm(y, w[0], w[1], w[2], w[3], x, in)
	case backend.F16:
		neonGemvF16Asm(y, w[0], w[1], w[2], w[3], x, in)
	default:
		neonGemvF32Asm(y, w[0], w[1], w[2], w[3], x, in)
	}
}

// takeFour points to weight rows o..o+3 of n; past the end it repeats the last.
func takeFour(data []byte, o, n, stride int) (p [4]*byte) {
	for i := range p {
		p[i] = &data[min(o+i, n-1)*stride]
	}
	return p
}

// neonProjectRows multiplies a block of rows with n outputs' weights.
func neonProjectRows(y []float32, ldy int, x []float32, rows int, w *Weight, data []byte, n int, s *Scratch) {
	stride := w.stride()
	wide := Grown(&s.project, 4*w.in)
	for o := 0; o < n; o += 4 {
		k := min(4, n-o)
		four := takeFour(data, o, n, stride)
		if src := data[o*stride : (o+k)*stride]; w.dt != backend.F32 {
			if w.dt == backend.BF16 {
				neonWidenBF16(wide[:k*w.in], src)
			} else {
				neonWidenF16(wide[:k*w.in], src)
			}
			for i := range four {
				four[i] = (*byte)(unsafe.Pointer(&wide[min(i, k-1)*w.in]))
			}
		}
		// The first tile fetches the next four weight rows, which follow in
		// memory: 4·8 elements with each step of 8.
		ahead, step := four[0], 0
		if o+4 < n {
			ahead, step = &data[(o+4)*stride], 32*w.dt.Size()
		}
		for r := 0; r < rows; r += 3 {
			m := min(3, rows-r)
			var t [12]float32
			out, ld := &t[0], 4
			if k == 4 {
				out, ld = &y[r*ldy+o], ldy
			}
			at := &x[r*w.in]
			switch m {
			case 3:
				neonTile4x3Asm(out, ld, four[0], four[1], four[2], four[3], at, w.in, ahead, step)
			case 2:
				neonTile4x2Asm(out, ld, four[0], four[1], four[2], four[3], at, w.in, ahead, step)
			default:
				neonGemvF32Asm(out, four[0], four[1], four[2], four[3], at, w.in)
			}
			if k < 4 {
				for i := range m {
					copy(y[(r+i)*ldy+o:(r+i)*ldy+n], t[4*i:4*i+k])
				}
			}
			step = 0
		}
	}
}
