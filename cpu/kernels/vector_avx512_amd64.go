package kernels

// avx512Kernels works on 16 lanes.
func avx512Kernels() *Table {
	k := &Table{Name: "avx512", Exact: avx512Projector, VectorKernels: avx512Vector.table()}
	k.NarrowScores, k.NarrowValues = avx512NarrowScores, avx512NarrowValues
	return k
}

var avx512Vector = &vectorCode{
	widenBF16:  avx512WidenBF16,
	widenF16:   avx512WidenF16,
	narrowBF16: avx512NarrowBF16,
	widenInt8:  avx512WidenInt8,
	sumSquares: avx512SumSquares,
	scaleMul:   avx512ScaleMul,
	add:        avx512Add,
	scale:      avx512Scale,
	rotate:     avx512Rotate,
	siluMul:    avx512SiluMul,
	maximum:    avx512Maximum,
	expSum:     avx512ExpSum,
	expSums:    avx512ExpSums,

	scoreRows: 4, valueRows: 4,
	scores:  avx512Scores4,
	scores1: avx512Scores1,
	values:  avx512Values4,
	values1: avx512Values1,

	normRows: avx512NormRows, addRows: avx512AddRows, rowLanes: 16,

	firstAtLeast: avx512FirstAtLeast, gateDiv: avx512GateDiv,

	delta: avx512Delta,
}

//go:noescape
func avx512WidenBF16(dst *float32, src *byte, n int)

//go:noescape
func avx512WidenF16(dst *float32, src *byte, n int)

//go:noescape
func avx512NarrowBF16(dst *byte, src *float32, n int)

//go:noescape
func avx512WidenInt8(dst *float32, src *byte, n int, scale float32)

//go:noescape
func avx512SumSquares(x *float32, n int) float32

//go:noescape
func avx512ScaleMul(dst, x, w *float32, n int, s float32)

//go:noescape
func avx512Add(dst, x *float32, n int)

//go:noescape
func avx512Scale(x *float32, n int, s float32)

//go:noescape
func avx512Rotate(a, b, cos, sin *float32, n int)

//go:noescape
func avx512SiluMul(dst, gate, up *float32, n int)

//go:noescape
func avx512Maximum(x *float32, n int) float32

//go:noescape
func avx512ExpSum(x *float32, n int, shift float32) float32

//go:noescape
func avx512ExpSums(x *float32, n int, shift float32) (s0, s1 float32)

//go:noescape
func avx512Scores4(s *float32, lds int, q, k *float32, nk, d int)

//go:noescape
func avx512Scores1(s, q, k *float32, nk, d int)

//go:noescape
func avx512Values4(acc, p *float32, ldp int, v *float32, nk, d int)

//go:noescape
func avx512Values1(acc, p, v *float32, nk, d int)

//go:noescape
func avx512NormRows(dst *float32, ldd int, x *float32, ldx int, w *float32, n, rows int, div, eps, num float64)

//go:noescape
func avx512AddRows(dst *float32, ldd int, list *int, x *float32, n int, weights *float32, rows int)

//go:noescape
func avx512FirstAtLeast(x *float32, n int, bar float32) int

//go:noescape
func avx512GateDiv(x, gate *float32, n int)
