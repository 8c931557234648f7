package cpu

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestAddRows compares with sums in float64.
func TestAddRows(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 8))
	for _, n := range []int{1, 7, 16, 257, 1025} {
		for _, rows := range []int{1, 2, 5, 65} {
			sum, m, x := make([]float32, n), make([]float32, rows*n), make([]float32, rows)
			for _, s := range [][]float32{sum, m, x} {
				for i := range s {
					s[i] = float32(r.NormFloat64())
				}
			}
			want := make([]float64, n)
			for k := range want {
				want[k] = float64(sum[k])
				for i, f := range x {
					want[k] += float64(f) * float64(m[i*n+k])
				}
			}
			AddRows(sum, m, x)
			for k, v := range sum {
				if d := math.Abs(float64(v) - want[k]); d > 1e-5*math.Sqrt(float64(rows)) {
					t.Fatalf("%d rows of %d: element %d is %v, want %v", rows, n, k, v, want[k])
				}
			}
		}
	}
}
