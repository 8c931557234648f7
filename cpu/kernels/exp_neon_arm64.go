package kernels

import "math"

// neonExpTable holds the constants of e^x. Below -104 e^x rounds to 0 in f32,
// above 89 to Inf. ln 2 comes in two parts, the first exact in 12 bits. The
// polynomial is that of Cephes expf, for |r| <= ln 2 / 2; with it the relative
// error is below 1.2e-7.
//
//lint:ignore U1000 the assembly reads it
var neonExpTable = [12]float32{
	-104, 89,
	math.Log2E, 0.693359375, -2.12194440e-4,
	1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3,
	4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1,
	1,
}

//go:noescape
func neonSiluMulAsm(dst, gate, up *float32, n int)

//go:noescape
func neonExpSumAsm(x *float32, n int, shift float32) float32

//go:noescape
func neonExpSumsAsm(x *float32, n int, shift float32) (s0, s1 float32)

func neonSiluMul(dst, gate, up []float32) {
	dst, up = first(dst, len(gate)), first(up, len(gate))
	n := eights(len(gate))
	if n > 0 {
		neonSiluMulAsm(&dst[0], &gate[0], &up[0], n)
	}
	if n < len(gate) {
		var g, u [8]float32
		copy(g[:], gate[n:])
		copy(u[:], up[n:])
		neonSiluMulAsm(&g[0], &g[0], &u[0], 8)
		copy(dst[n:], g[:])
	}
}

// lowTail copies fewer than 8 elements and fills up with the lowest number,
// which adds nothing to a sum of exponentials.
func lowTail(x []float32) (tail [8]float32) {
	for i := copy(tail[:], x); i < len(tail); i++ {
		tail[i] = float32(math.Inf(-1))
	}
	return tail
}

func neonExpSum(x []float32, shift float32) (s float32) {
	n := eights(len(x))
	if n > 0 {
		s = neonExpSumAsm(&x[0], n, shift)
	}
	if n < len(x) {
		tail := lowTail(x[n:])
		s += neonExpSumAsm(&tail[0], 8, shift)
		copy(x[n:], tail[:])
	}
	return s
}

func neonExpSums(x []float32, shift float32) (s0, s1 float32) {
	n := eights(len(x))
	if n > 0 {
		s0, s1 = neonExpSumsAsm(&x[0], n, shift)
	}
	if n < len(x) {
		tail := lowTail(x[n:])
		t0, t1 := neonExpSumsAsm(&tail[0], 8, shift)
		s0, s1 = s0+t0, s1+t1
	}
	return s0, s1
}
