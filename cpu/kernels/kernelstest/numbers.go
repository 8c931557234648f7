package kernelstest

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Gaussian fills x with normal numbers of that deviation.
func Gaussian(r *rand.Rand, x []float32, sigma float64) {
	for i := range x {
		x[i] = float32(r.NormFloat64() * sigma)
	}
}

// Near reports whether got is want within rel·|want| + abs; NaN equals NaN.
func Near(got, want float32, rel, abs float64) bool {
	if got == want || got != got && want != want {
		return true
	}
	return math.Abs(float64(got)-float64(want)) <= rel*math.Abs(float64(want))+abs
}

// Compare checks that each element of got is near the wanted one: see Near.
func Compare(t *testing.T, what string, got, want []float32, rel, abs float64) {
	t.Helper()
	for i := range want {
		if !Near(got[i], want[i], rel, abs) {
			t.Fatalf("%s, n=%d: element %d is %g (%08x), want %g (%08x)", what, len(want), i,
				got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}

// Rows are n normal numbers.
func Rows(rng *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}
