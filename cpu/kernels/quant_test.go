package kernels

import (
	"encoding/binary"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/backend"
	"windrow/cpu/kernels/kernelstest"
	"windrow/quant"
)

// int8Projectors are the projectors of this machine that round activations to
// int8 for weights of that format.
func int8Projectors(t *backend.Tensor) map[string]Projector {
	ps := map[string]Projector{}
	for _, k := range machineTables() {
		if k.Quant == nil {
			continue
		}
		if p := k.Quant(t); p != nil {
			ps[p.Name()] = p
		}
	}
	if moreProjectors != nil {
		maps.Copy(ps, moreProjectors(t))
	}
	return ps
}

// moreProjectors are those that no table of this machine has.
var moreProjectors func(t *backend.Tensor) map[string]Projector

// runProjector packs x and projects outputs [o0, o1), in parts of the given
// size.
func runProjector(pr Projector, w *Weight, x []float32, rows, o0, o1, part int) []float32 {
	p := Packed{Rows: rows, in: w.in}
	f, h := pr.PackSize(rows, w.in)
	p.f32, p.b16 = make([]float32, f), make([]uint16, h)
	for r := 0; r < rows; r += pr.PackRows() {
		pr.Pack(&p, x, r, min(rows, r+pr.PackRows()))
	}
	var s Scratch
	y := make([]float32, rows*(o1-o0))
	for o := o0; o < o1; o += part {
		pr.Project(y[o-o0:], o1-o0, &p, w, o, min(o1, o+part), &s)
	}
	return y
}

// quantMatrix is a random weight of that format.
func quantMatrix(rng *rand.Rand, c kernelstest.Format, out, in, misalign int) *Weight {
	w := NewWeight(c.Weight(rng, out, in, misalign))
	return &w
}

// units splits row o of a weight into whole numbers, with a scale and a bias
// for each group.
func units(w *Weight, o int) (q []int, scale, bias []float32, group int) {
	t, stride := &w.tensor, w.stride()
	src := w.data[o*stride : (o+1)*stride]
	half := func(at int) float32 { return quant.F16ToF32(binary.LittleEndian.Uint16(src[at:])) }
	q = make([]int, w.in)
	group = 32
	switch w.dt {
	case backend.Affine4, backend.Affine8:
		group = t.Group
		for i := range q {
			if w.dt == backend.Affine8 {
				q[i] = int(src[i])
			} else {
				q[i] = int(src[i/2] >> (4 * (i & 1)) & 15)
			}
		}
		n := w.in / group
		for g := range n {
			scale = append(scale, quant.BF16ToF32(binary.LittleEndian.Uint16(t.Scales[2*(o*n+g):])))
			bias = append(bias, quant.BF16ToF32(binary.LittleEndian.Uint16(t.Biases[2*(o*n+g):])))
		}
	case backend.Q8_0:
		for i := range q {
			q[i] = int(int8(src[i/32*34+2+i%32]))
		}
		for g := range w.in / 32 {
			scale = append(scale, half(34*g))
		}
	case backend.Q4_0:
		for i := range q {
			q[i] = int(src[i/32*18+2+i%16]>>(4*(i%32/16))&15) - 8
		}
		for g := range w.in / 32 {
			scale = append(scale, half(18*g))
		}
	case backend.Q4_K:
		for i := range q {
			b := src[i/256*144:]
			q[i] = int(b[16+i%256/64*32+i%32] >> (4 * (i % 64 / 32)) & 15)
		}
		for g := range w.in / 32 {
			b := src[g/8*144:][:144]
			j := g % 8
			s, m := b[4+j]&63, b[8+j]&63
			if j >= 4 {
				s, m = b[8+j]&15|b[j]>>6<<4, b[8+j]>>4|b[4+j]>>6<<4
			}
			scale = append(scale, half(g/8*144)*float32(s))
			bias = append(bias, -half(g/8*144+2)*float32(m))
		}
	case backend.Q6_K:
		group = 16
		for i := range q {
			b, h, k, l := src[i/256*210:], i%256/128, i%128/32, i%32
			q[i] = int(b[64*h+32*(k&1)+l]>>(4*(k>>1))&15|b[128+32*h+l]>>(2*k)&3<<4) - 32
		}
		for g := range w.in / 16 {
			b := src[g/16*210:]
			scale = append(scale, half(g/16*210+208)*float32(int8(b[192+g%16])))
		}
	case backend.Q4_1, backend.Q5_0, backend.Q5_1, backend.IQ4_NL:
		size, head := w.dt.BlockBytes(), w.dt.BlockBytes()-16
		for i := range q {
			b := src[i/32*size:]
			q[i] = field(b, head+i%16, i%32/16*4, 4)
			switch w.dt {
			case backend.Q5_0, backend.Q5_1:
				q[i] |= field(b, head-4, i%32, 1) << 4
			case backend.IQ4_NL:
				q[i] = iq4Values[q[i]]
			}
			if w.dt == backend.Q5_0 {
				q[i] -= 16
			}
		}
		for g := range w.in / 32 {
			scale = append(scale, half(size*g))
			if w.dt == backend.Q4_1 || w.dt == backend.Q5_1 {
				bias = append(bias, half(size*g+2))
			}
		}
	case backend.Q5_K:
		for i := range q {
			b, k, l := src[i/256*176:], i%256/32, i%32
			q[i] = field(b, 48+k/2*32+l, k%2*4, 4) | field(b, 16+l, k, 1)<<4
		}
		for g := range w.in / 32 {
			b, j := src[g/8*176:], g%8
			s, m := field(b, 4+j, 0, 6), field(b, 8+j, 0, 6)
			if j >= 4 {
				s, m = field(b, 8+j, 0, 4)|field(b, j, 6, 2)<<4, field(b, 8+j, 4, 4)|field(b, 4+j, 6, 2)<<4
			}
			scale = append(scale, half(g/8*176)*float32(s))
			bias = append(bias, -half(g/8*176+2)*float32(m))
		}
	case backend.IQ4_XS:
		for i := range q {
			q[i] = iq4Values[field(src[i/256*136:], 8+i%256/32*16+i%16, i%32/16*4, 4)]
		}
		for g := range w.in / 32 {
			b, j := src[g/8*136:], g%8
			scale = append(scale, half(g/8*136)*float32((field(b, 4, 4*j, 4)|field(b, 2, 2*j, 2)<<4)-32))
		}
	case backend.Q2_K, backend.Q3_K:
		group = 16
		size, at := w.dt.BlockBytes(), 16 // where the 2 bits lie
		if w.dt == backend.Q3_K {
			at = 32
		}
		for i := range q {
			b, k := src[i/256*size:], i%256
			q[i] = field(b, at+k/128*32+k%32, k%128/32*2, 2)
			if w.dt == backend.Q3_K {
				q[i] += field(b, k%32, k/32, 1)<<2 - 4
			}
		}
		for g := range w.in / 16 {
			b, k := src[g/16*size:], g%16
			if w.dt == backend.Q2_K {
				scale = append(scale, half(g/16*84+80)*float32(field(b, k, 0, 4)))
				bias = append(bias, -half(g/16*84+82)*float32(field(b, k, 4, 4)))
			} else {
				scale = append(scale, half(g/16*110+108)*float32((field(b, 96+k%8, k/8*4, 4)|field(b, 104+k%4, k/4*2, 2)<<4)-32))
			}
		}
	}
	return q, scale, bias, group
}

// iq4Values are what the 4 bits of IQ4 stand for.
var iq4Values = [16]int{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

// field is bits low to low+width of the little-endian number from byte at on.
func field(b []byte, at, low, width int) int {
	at, low = at+low/8, low%8
	return int(b[at]) >> low & (1<<width - 1)
}

// rounded is a row of activations in int8.
func rounded(x []float32, group int) (q []int, scale, sum []float32) {
	q = make([]int, len(x))
	for g := range len(x) / group {
		largest, total := float32(0), 0
		for _, v := range x[g*group : (g+1)*group] {
			largest = max(largest, float32(math.Abs(float64(v))))
		}
		s := float32(0)
		if largest >= 0x1p-100 {
			s = largest / 127
			inverse := 127 / largest
			for i := g * group; i < (g+1)*group; i++ {
				q[i] = int(math.RoundToEven(float64(x[i] * inverse)))
				total += q[i]
			}
		}
		scale, sum = append(scale, s), append(sum, s*float32(total))
	}
	return q, scale, sum
}

// fma32 rounds a·b + c once, but for ties of the second rounding.
func fma32(a, b, c float32) float32 {
	return float32(math.FMA(float64(a), float64(b), float64(c)))
}

// int8Want is the arithmetic of the int8 projectors, bit for bit.
func int8Want(w *Weight, x []float32, rows int) []float32 {
	y := make([]float32, rows*w.out)
	for o := range w.out {
		q, scale, bias, group := units(w, o)
		for r := range rows {
			xq, xs, sum := rounded(x[r*w.in:(r+1)*w.in], group)
			acc := float32(0)
			for g, s := range scale {
				d := 0
				for i := g * group; i < (g+1)*group; i++ {
					d += q[i] * xq[i]
				}
				acc = fma32(float32(d)*xs[g], s, acc)
				if bias != nil {
					acc = fma32(sum[g], bias[g], acc)
				}
			}
			y[r*w.out+o] = acc
		}
	}
	return y
}

func TestUnitsAreTheWeights(t *testing.T) {
	for _, c := range kernelstest.Formats {
		w := quantMatrix(rand.New(rand.NewPCG(1, 1)), c, 3, 512, 1)
		row := make([]float32, w.in)
		for o := range w.out {
			quant.Row(row, &w.tensor, o)
			q, scale, bias, group := units(w, o)
			for i, v := range row {
				want := float32(q[i]) * scale[i/group]
				if bias != nil {
					want += bias[i/group]
				}
				if math.Abs(float64(v-want)) > 1e-6 {
					t.Fatalf("%v: element %d is %v, want %v", c, i, want, v)
				}
			}
		}
	}
}

func TestInt8Projectors(t *testing.T) {
	needsInt8(t)
	for _, c := range kernelstest.Formats {
		for _, sh := range []struct{ out, in int }{{1, 256}, {3, 512}, {15, 256}, {16, 768}, {40, 768}, {17, 1024}, {33, 512}, {64, 1024}, {67, 256}, {130, 2048}} {
			if c.DType.BlockSize() < 256 {
				sh.in -= 128 // rows without a whole number of 256
			}
			rng := rand.New(rand.NewPCG(21, uint64(sh.out*sh.in)))
			w := quantMatrix(rng, c, sh.out, sh.in, sh.out%2)
			for _, rows := range []int{1, 2, 3, 7, 15, 16, 17, 33, 70, 101} {
				if rows*sh.out*sh.in > 1<<20 || testing.Short() && rows*sh.out*sh.in > 1<<17 {
					continue
				}
				x := kernelstest.Rows(rng, rows*sh.in)
				for i := range sh.in / 3 {
					x[i] *= 100
				}
				want := int8Want(w, x, rows)
				for name, pr := range int8Projectors(&w.tensor) {
					for i, v := range runProjector(pr, w, x, rows, 0, sh.out, sh.out) {
						if v != want[i] {
							t.Fatalf("%s %v %dx%d, %d rows: y[%d][%d] = %v, want %v", name, c, sh.out, sh.in, rows, i/sh.out, i%sh.out, v, want[i])
						}
					}
				}
			}
		}
	}
}

// Row counts and the split of outputs must not change a bit.
func TestInt8BatchInvariance(t *testing.T) {
	needsInt8(t)
	for _, c := range kernelstest.Formats {
		const out, in = 200, 1280
		most := 530
		if testing.Short() {
			most = 100
		}
		rng := rand.New(rand.NewPCG(22, uint64(c.DType)))
		w := quantMatrix(rng, c, out, in, 1)
		x := kernelstest.Rows(rng, most*in)
		for name, pr := range int8Projectors(&w.tensor) {
			want := make([]float32, 0, most*out)
			for r := range most {
				want = append(want, runProjector(pr, w, x[r*in:], 1, 0, out, out)...)
			}
			for _, s := range []struct{ rows, o0, o1, part int }{
				{2, 0, out, 64}, {7, 0, out, 16}, {16, 5, 170, 165}, {17, 0, out, out}, {33, 0, out, 40}, {64, 0, out, 72}, {100, 1, 2, 1},
				{96, 3, 180, 40}, {97, 0, out, out}, {512, 3, 100, 13}, {530, 0, out, out}, {1, 7, 81, 5},
			} {
				if s.rows > most {
					continue
				}
				y := runProjector(pr, w, x, s.rows, s.o0, s.o1, s.part)
				n := s.o1 - s.o0
				for r := range s.rows {
					for o := range n {
						if y[r*n+o] != want[r*out+s.o0+o] {
							t.Fatalf("%s %v %+v: y[%d][%d] = %v, alone %v", name, c, s, r, s.o0+o, y[r*n+o], want[r*out+s.o0+o])
						}
					}
				}
			}
		}
	}
}

// What is not finite in a row of activations stays in its row, and a scale
// that is not finite in its output; tiny and zero rows give what they should.
func TestInt8NonFinite(t *testing.T) {
	needsInt8(t)
	const out, in, nanRow, infRow, zeroRow, tinyRow = 50, 256, 35, 3, 8, 9
	for i, c := range append(slices.Clone(kernelstest.Formats), kernelstest.Formats...) {
		rows := 37
		if i >= len(kernelstest.Formats) {
			rows = 101
		}
		rng := rand.New(rand.NewPCG(23, uint64(c.DType)))
		w, x := quantMatrix(rng, c, out, in, 0), kernelstest.Rows(rng, rows*in)
		x[nanRow*in+200] = float32(math.NaN())
		x[infRow*in+2] = float32(math.Inf(-1))
		clear(x[zeroRow*in : (zeroRow+1)*in])
		for i := range in {
			x[tinyRow*in+i] *= 1e-42
		}
		for name, pr := range int8Projectors(&w.tensor) {
			y := runProjector(pr, w, x, rows, 0, out, out)
			for r := range rows {
				for o := range out {
					v := float64(y[r*out+o])
					switch finite := !math.IsNaN(v) && !math.IsInf(v, 0); {
					case finite == (r == nanRow || r == infRow):
						t.Fatalf("%s %v: y[%d][%d] = %v", name, c, r, o, v)
					case (r == zeroRow || r == tinyRow) && v != 0:
						t.Fatalf("%s %v: y[%d][%d] = %v, want 0", name, c, r, o, v)
					}
				}
			}
		}
	}
}

// The error against f32 activations, in the norm of an output of random data:
// that of rounding to 1/127 of a group's largest.
func TestInt8Error(t *testing.T) {
	needsInt8(t)
	for _, c := range kernelstest.Formats {
		rng := rand.New(rand.NewPCG(24, uint64(c.DType)))
		const out, in, rows = 64, 1024, 4
		w, x := quantMatrix(rng, c, out, in, 0), kernelstest.Rows(rng, rows*in)
		exact := runProjector(genericProjector{}, w, x, rows, 0, out, out)
		for name, pr := range int8Projectors(&w.tensor) {
			var diff, norm float64
			for i, v := range runProjector(pr, w, x, rows, 0, out, out) {
				d := float64(v - exact[i])
				diff, norm = diff+d*d, norm+float64(exact[i])*float64(exact[i])
			}
			e := math.Sqrt(diff / norm)
			t.Logf("%s %v: relative error %.2g", name, c, e)
			if e > 1e-2 {
				t.Errorf("%s %v: relative error %.2g", name, c, e)
			}
		}
	}
}
