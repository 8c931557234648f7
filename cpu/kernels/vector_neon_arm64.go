package kernels

import "math"

// The assembly takes counts that are multiples of 8. The wrappers pad what is
// left to 8 elements and run it through the same code, so an element's bits do
// not depend on where in a vector it lies.

//go:noescape
func neonWidenBF16Asm(dst *float32, src *byte, n int)

//go:noescape
func neonWidenF16Asm(dst *float32, src *byte, n int)

//go:noescape
func neonNarrowBF16Asm(dst *byte, src *float32, n int)

//go:noescape
func neonWidenInt8Asm(dst *float32, src *byte, n int, scale float32)

//go:noescape
func neonSumSquaresAsm(x *float32, n int) float32

//go:noescape
func neonScaleMulAsm(dst, x, w *float32, n int, s float32)

//go:noescape
func neonAddAsm(dst, x *float32, n int)

//go:noescape
func neonScaleAsm(x *float32, n int, s float32)

//go:noescape
func neonRotateAsm(a, b, cos, sin *float32, n int)

//go:noescape
func neonMaximumAsm(x *float32, n int) float32

// first is x[:n], bounded by x's length and not its capacity: the assembly
// behind it checks nothing.
func first[T any](x []T, n int) []T { return x[:len(x):len(x)][:n] }

// eights is n rounded down to a multiple of 8.
func eights(n int) int { return n &^ 7 }

func neonWidenBF16(dst []float32, src []byte) {
	src = first(src, 2*len(dst))
	n := eights(len(dst))
	if n > 0 {
		neonWidenBF16Asm(&dst[0], &src[0], n)
	}
	if n < len(dst) {
		var in [16]byte
		var out [8]float32
		copy(in[:], src[2*n:])
		neonWidenBF16Asm(&out[0], &in[0], 8)
		copy(dst[n:], out[:])
	}
}

func neonWidenF16(dst []float32, src []byte) {
	src = first(src, 2*len(dst))
	n := eights(len(dst))
	if n > 0 {
		neonWidenF16Asm(&dst[0], &src[0], n)
	}
	if n < len(dst) {
		var in [16]byte
		var out [8]float32
		copy(in[:], src[2*n:])
		neonWidenF16Asm(&out[0], &in[0], 8)
		copy(dst[n:], out[:])
	}
}

func neonNarrowBF16(dst []byte, src []float32) {
	dst = first(dst, 2*len(src))
	n := eights(len(src))
	if n > 0 {
		neonNarrowBF16Asm(&dst[0], &src[0], n)
	}
	if n < len(src) {
		var in [8]float32
		var out [16]byte
		copy(in[:], src[n:])
		neonNarrowBF16Asm(&out[0], &in[0], 8)
		copy(dst[2*n:], out[:])
	}
}

func neonWidenInt8(dst []float32, src []byte, scale float32) {
	src = first(src, len(dst))
	n := eights(len(dst))
	if n > 0 {
		neonWidenInt8Asm(&dst[0], &src[0], n, scale)
	}
	if n < len(dst) {
		var in [8]byte
		var out [8]float32
		copy(in[:], src[n:])
		neonWidenInt8Asm(&out[0], &in[0], 8, scale)
		copy(dst[n:], out[:])
	}
}

func neonSumSquares(x []float32) (s float32) {
	n := eights(len(x))
	if n > 0 {
		s = neonSumSquaresAsm(&x[0], n)
	}
	if n < len(x) {
		var tail [8]float32
		copy(tail[:], x[n:])
		s += neonSumSquaresAsm(&tail[0], 8)
	}
	return s
}

func neonScaleMul(dst, x, w []float32, s float32) {
	dst, w = first(dst, len(x)), first(w, len(x))
	n := eights(len(x))
	if n > 0 {
		neonScaleMulAsm(&dst[0], &x[0], &w[0], n, s)
	}
	if n < len(x) {
		var a, b [8]float32
		copy(a[:], x[n:])
		copy(b[:], w[n:])
		neonScaleMulAsm(&a[0], &a[0], &b[0], 8, s)
		copy(dst[n:], a[:])
	}
}

func neonAdd(dst, x []float32) {
	dst = first(dst, len(x))
	n := eights(len(x))
	if n > 0 {
		neonAddAsm(&dst[0], &x[0], n)
	}
	for i := n; i < len(x); i++ {
		dst[i] += x[i]
	}
}

func neonScale(x []float32, s float32) {
	n := eights(len(x))
	if n > 0 {
		neonScaleAsm(&x[0], n, s)
	}
	for i := n; i < len(x); i++ {
		x[i] *= s
	}
}

func neonRotate(x, cos, sin []float32) {
	half := len(x) / 2
	a, b, cos, sin := x[:half], x[half:2*half], first(cos, half), first(sin, half)
	n := eights(half)
	if n > 0 {
		neonRotateAsm(&a[0], &b[0], &cos[0], &sin[0], n)
	}
	if n < half {
		var ta, tb, tc, ts [8]float32
		copy(ta[:], a[n:])
		copy(tb[:], b[n:])
		copy(tc[:], cos[n:])
		copy(ts[:], sin[n:])
		neonRotateAsm(&ta[0], &tb[0], &tc[0], &ts[0], 8)
		copy(a[n:], ta[:])
		copy(b[n:], tb[:])
	}
}

func neonMaximum(x []float32) float32 {
	m := float32(math.Inf(-1))
	n := eights(len(x))
	if n > 0 {
		m = neonMaximumAsm(&x[0], n)
	}
	for _, v := range x[n:] {
		if v > m {
			m = v
		}
	}
	return m
}
