package kernels

// avx2Delta takes 32 columns at once, or 8.
var avx2Delta = &deltaCode{
	tiles: [2]deltaTile{
		{32, avx2DeltaStep32, avx2DeltaFold32},
		{8, avx2DeltaStep8, avx2DeltaFold8},
	},
	lanes: 8, taps: avx2Taps, rows: avx2DeltaRows, tapsRows: avx2TapsRows, foldRows: avx2FoldRows, exps: avx2Exps,
}

//go:noescape
func avx2DeltaStep32(s *float32, stride int, q, k, v, d, o *float32, n int, alpha, beta float32)

//go:noescape
func avx2DeltaStep8(s *float32, stride int, q, k, v, d, o *float32, n int, alpha, beta float32)

//go:noescape
func avx2DeltaFold32(dst, src *float32, stride int, k, d *float32, n int, alpha float32)

//go:noescape
func avx2DeltaFold8(dst, src *float32, stride int, k, d *float32, n int, alpha float32)

//go:noescape
func avx2Taps(dst *float32, x *[]float32, taps int, w *float32, stride, n int)

//go:noescape
func avx2DeltaRows(c *deltaCall)

//go:noescape
func avx2TapsRows(dst *float32, ldd, rows int, x *float32, ldx int, w *float32, taps, ldw, n int)

//go:noescape
func avx2FoldRows(dst, src *float32, lds int, k *float32, ldk int, d *float32, ldd int, alpha *float32, ldh int, keys, rows int)

//go:noescape
func avx2Exps(x *float64, n int)
