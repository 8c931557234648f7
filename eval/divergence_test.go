package eval

import (
	"math"
	"testing"
)

func TestKLDivergence(t *testing.T) {
	// Logits that overflow float32's exponential, and far from each other.
	big := []float32{1000, 998, -1000}
	for _, test := range []struct {
		name          string
		source, other []float32
		want          float64
	}{
		{"equal", []float32{1, 2, 3}, []float32{1, 2, 3}, 0},
		{"shifted", []float32{1, 2, 3}, []float32{101, 102, 103}, 0},
		{"large", big, big, 0},
		{"coin", []float32{0, 0}, []float32{2, 0}, klOfShift(2)},
		{"one", []float32{5}, []float32{-5}, 0},
		// p = (0.75, 0.25), q the other way round: ½·ln 3.
		{"swapped", []float32{float32(math.Log(3)), 0}, []float32{0, float32(math.Log(3))}, math.Log(3) / 2},
		// A certain token that the other rules out: the logits' distance.
		{"certain", []float32{100, -100}, []float32{-100, 100}, 200},
	} {
		got, err := KLDivergence(test.source, test.other)
		if err != nil || math.Abs(got-test.want) > 1e-6*(1+test.want) || got < 0 {
			t.Errorf("%s: %v, %v, want %v", test.name, got, err, test.want)
		}
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, bad := range [][2][]float32{{{}, {}}, {{1}, {1, 2}}, {{nan, 1}, {1, 1}}, {{1, 1}, {1, nan}}, {{1, inf}, {1, 1}}, {{1, 1}, {-inf, 1}}} {
		if kl, err := KLDivergence(bad[0], bad[1]); err == nil {
			t.Errorf("%v: %v, want an error", bad, kl)
		}
	}
}
