package cpu

import "runtime"

// Constants of cblas.h.
const (
	cblasRowMajor = 101
	cblasNoTrans  = 111
	cblasTrans    = 112
)

// cblasSgemm is cblas_sgemm with integers of 32 bits: c = α·a·bᵀ + β·c, with
// order, transposition of a and of b first.
//
// Twelve arguments are no floats: four go to the stack on arm64, a pointer and
// an integer in turn. So Apple's layout, which packs them, and everyone else's,
// which gives each 8 bytes, are the same.
type cblasSgemm func(order, transA, transB, m, n, k int32, alpha float32, a *float32, lda int32,
	b *float32, ldb int32, beta float32, c *float32, ldc int32)

// product is f as an sgemm. Slices that are too short panic here: C would read
// or write past them.
func (f cblasSgemm) product(m, n, k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int) {
	a, b, c = a[:(m-1)*lda+k], b[:(n-1)*ldb+k], c[:(m-1)*ldc+n]
	f(cblasRowMajor, cblasNoTrans, cblasTrans, int32(m), int32(n), int32(k), 1, &a[0], int32(lda),
		&b[0], int32(ldb), 0, &c[0], int32(ldc))
	runtime.KeepAlive(a)
	runtime.KeepAlive(b)
	runtime.KeepAlive(c)
}
