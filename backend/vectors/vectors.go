// Package vectors has the test vectors and comparisons that the self-tests of
// devices share: what `go test` runs here, and `windrow doctor` on a user's GPU.
package vectors

import (
	"fmt"
	"math"
	"math/rand/v2"

	"windrow/backend"
	"windrow/quant"
)

// Normals is n normal numbers.
func Normals(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// Tensor is a weight [out, in] of normal numbers in that type; group is that of
// the affine ones.
func Tensor(r *rand.Rand, dt backend.DType, out, in, group int) *backend.Tensor {
	t := quant.Encode("w", dt, out, in, group, Normals(r, out*in))
	return &t
}

// Near compares got with want by relative norm, and each element by 10 times
// that of the largest.
func Near(got []float32, want []float64, tolerance float64) error {
	var diff, norm, worst, largest float64
	at := 0
	for i, w := range want {
		d := math.Abs(float64(got[i]) - w)
		if d != d {
			return fmt.Errorf("element %d of %d is %v, want %v", i, len(want), got[i], w)
		}
		if d > worst {
			worst, at = d, i
		}
		diff, norm, largest = diff+d*d, norm+w*w, max(largest, math.Abs(w))
	}
	if rel := math.Sqrt(diff / max(norm, 1e-300)); rel > tolerance {
		return fmt.Errorf("relative norm of the error %.3g, want at most %.3g", rel, tolerance)
	}
	if worst > 10*tolerance*largest {
		return fmt.Errorf("element %d of %d is %v, want %v, beside values up to %.3g", at, len(want), got[at], want[at], largest)
	}
	return nil
}

// Equal compares bits with bits; a NaN equals any.
func Equal(got, want []float32) error {
	for i, w := range want {
		if math.Float32bits(got[i]) != math.Float32bits(w) && !(got[i] != got[i] && w != w) {
			return fmt.Errorf("element %d of %d is %v, want %v", i, len(want), got[i], w)
		}
	}
	return nil
}

// Name is what the tests of a weight format are called: its type, and its group
// where it has one to choose.
func Name(dt backend.DType, group int) string {
	if group > 0 {
		return fmt.Sprintf("%v-%d", dt, group)
	}
	return dt.String()
}
