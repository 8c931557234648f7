package bench

import (
	"testing"
)

func TestSpread(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   Spread
		text   string
	}{
		{nil, Spread{}, "0.000 (0.000–0.000)"},
		{[]float64{3, 1, 200}, Spread{3, 1, 200}, "3.00 (1.00–200)"},
		{[]float64{4, 1, 2, 30}, Spread{3, 1, 30}, "3.00 (1.00–30.0)"},
	} {
		if got := newSpread(test.values); got != test.want || got.String() != test.text {
			t.Errorf("%v: %+v %q, want %+v %q", test.values, got, got, test.want, test.text)
		}
	}
}
