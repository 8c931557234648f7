package kernels

import "math"

// avx2Kernels works on 8 lanes.
func avx2Kernels() *Table {
	return &Table{Name: "avx2", Exact: avx2Projector, VectorKernels: avx2Vector.table()}
}

var avx2Vector = &vectorCode{
	widenBF16:  avx2WidenBF16,
	widenF16:   avx2WidenF16,
	narrowBF16: avx2NarrowBF16,
	widenInt8:  avx2WidenInt8,
	sumSquares: avx2SumSquares,
	scaleMul:   avx2ScaleMul,
	add:        avx2Add,
	scale:      avx2Scale,
	rotate:     avx2Rotate,
	siluMul:    avx2SiluMul,
	maximum:    avx2Maximum,
	expSum:     avx2ExpSum,
	expSums:    avx2ExpSums,

	scoreRows: 2, valueRows: 4,
	scores:  avx2Scores2,
	scores1: avx2Scores1,
	values:  avx2Values4,
	values1: avx2Values1,

	normRows: avx2NormRows, addRows: avx2AddRows, rowLanes: 8,

	firstAtLeast: avx2FirstAtLeast, gateDiv: avx2GateDiv,

	delta: avx2Delta,
}

// avx2Projector is exact in 8 lanes.
var avx2Projector = &tileProjector{
	label:    "avx2-f32",
	lanes:    8,
	outs:     [maxTileRows + 1]int{0, 4, 4, 2, 2, 2, 2},
	nearIn:   1024,
	nearRows: 2 * maxTileRows,
	block:    512, // 12 KiB of 32
	together: 48,
	// 2 KiB each; see docs/performance.md.
	groupsAhead: 2,
	apart:       17 * 16, // 17 lines: not a page, however long rows are but for 752 more than pages
	shortIn:     682,
	split:       avx2Split,
	vector:      avx2Vector,
}

// avx2ExpTable holds the constants of exp, 8 copies each: AVX2 arithmetic takes
// whole vectors from memory, and they do not fit in 16 registers. They are the
// clamps, log2 e, ln 2 in two parts, the polynomial from the top, and the
// exponent's bias as an integer.
//
//lint:ignore U1000 the assembly reads it
var avx2ExpTable = func() (t [13][8]float32) {
	for i, c := range [13]float32{-110, 89, math.Log2E, 0.693359375, -2.12194440e-4,
		1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1, 1,
		math.Float32frombits(127)} {
		for j := range t[i] {
			t[i][j] = c
		}
	}
	return t
}()

//go:noescape
func avx2Tile(a *tileArgs)

//go:noescape
func avx2Near(d *nearCall)

//go:noescape
func avx2Split(dst *float32, src *byte, steps int)

//go:noescape
func avx2WidenBF16(dst *float32, src *byte, n int)

//go:noescape
func avx2WidenF16(dst *float32, src *byte, n int)

//go:noescape
func avx2NarrowBF16(dst *byte, src *float32, n int)

//go:noescape
func avx2WidenInt8(dst *float32, src *byte, n int, scale float32)

//go:noescape
func avx2SumSquares(x *float32, n int) float32

//go:noescape
func avx2ScaleMul(dst, x, w *float32, n int, s float32)

//go:noescape
func avx2Add(dst, x *float32, n int)

//go:noescape
func avx2Scale(x *float32, n int, s float32)

//go:noescape
func avx2Rotate(a, b, cos, sin *float32, n int)

//go:noescape
func avx2SiluMul(dst, gate, up *float32, n int)

//go:noescape
func avx2Maximum(x *float32, n int) float32

//go:noescape
func avx2ExpSum(x *float32, n int, shift float32) float32

//go:noescape
func avx2ExpSums(x *float32, n int, shift float32) (s0, s1 float32)

//go:noescape
func avx2Scores2(s *float32, lds int, q, k *float32, nk, d int)

//go:noescape
func avx2Scores1(s, q, k *float32, nk, d int)

//go:noescape
func avx2Values4(acc, p *float32, ldp int, v *float32, nk, d int)

//go:noescape
func avx2Values1(acc, p, v *float32, nk, d int)

//go:noescape
func avx2NormRows(dst *float32, ldd int, x *float32, ldx int, w *float32, n, rows int, div, eps, num float64)

//go:noescape
func avx2AddRows(dst *float32, ldd int, list *int, x *float32, n int, weights *float32, rows int)

//go:noescape
func avx2FirstAtLeast(x *float32, n int, bar float32) int

//go:noescape
func avx2GateDiv(x, gate *float32, n int)
