package kernels

// neonDelta takes 16 columns at once, or 4.
var neonDelta = &deltaCode{
	tiles: [2]deltaTile{{16, neonDeltaStep16Asm, neonDeltaFold16Asm}, {4, neonDeltaStep4Asm, neonDeltaFold4Asm}},
	lanes: 8, taps: neonTapsAsm,
}

//go:noescape
func neonDeltaStep16Asm(s *float32, stride int, q, k, v, d, o *float32, n int, alpha, beta float32)

//go:noescape
func neonDeltaStep4Asm(s *float32, stride int, q, k, v, d, o *float32, n int, alpha, beta float32)

//go:noescape
func neonDeltaFold16Asm(dst, src *float32, stride int, k, d *float32, n int, alpha float32)

//go:noescape
func neonDeltaFold4Asm(dst, src *float32, stride int, k, d *float32, n int, alpha float32)

//go:noescape
func neonTapsAsm(dst *float32, x *[]float32, taps int, w *float32, stride, n int)
