package kernels

// avx512Delta takes 64 columns at once, or 16.
var avx512Delta = &deltaCode{
	tiles: [2]deltaTile{
		{64, avx512DeltaStep64, avx512DeltaFold64},
		{16, avx512DeltaStep16, avx512DeltaFold16},
	},
	lanes: 16, taps: avx512Taps, rows: avx512DeltaRows, tapsRows: avx512TapsRows, foldRows: avx512FoldRows, exps: avx512Exps,
}

//go:noescape
func avx512DeltaStep64(s *float32, stride int, q, k, v, d, o *float32, n int, alpha, beta float32)

//go:noescape
func avx512DeltaStep16(s *float32, stride int, q, k, v, d, o *float32, n int, alpha, beta float32)

//go:noescape
func avx512DeltaFold64(dst, src *float32, stride int, k, d *float32, n int, alpha float32)

//go:noescape
func avx512DeltaFold16(dst, src *float32, stride int, k, d *float32, n int, alpha float32)

//go:noescape
func avx512Taps(dst *float32, x *[]float32, taps int, w *float32, stride, n int)

//go:noescape
func avx512DeltaRows(c *deltaCall)

//go:noescape
func avx512TapsRows(dst *float32, ldd, rows int, x *float32, ldx int, w *float32, taps, ldw, n int)

//go:noescape
func avx512FoldRows(dst, src *float32, lds int, k *float32, ldk int, d *float32, ldd int, alpha *float32, ldh int, keys, rows int)

//go:noescape
func avx512Exps(x *float64, n int)
