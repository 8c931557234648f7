package main

import (
	"math"
	"testing"
)

func TestSpread(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   spread
		text   string
	}{
		{nil, spread{}, "0.000 (0.000–0.000)"},
		{[]float64{3, 1, 200}, spread{3, 1, 200}, "3.00 (1.00–200)"},
		{[]float64{4, 1, 2, 30}, spread{3, 1, 30}, "3.00 (1.00–30.0)"},
	} {
		if got := newSpread(test.values); got != test.want || got.String() != test.text {
			t.Errorf("%v: %+v %q, want %+v %q", test.values, got, got, test.want, test.text)
		}
	}
}

func TestFinite(t *testing.T) {
	if finite(2) != 2 || finite(math.NaN()) != -1 || finite(math.Inf(1)) != -1 {
		t.Error("NaN and infinities must become -1: JSON has neither")
	}
}
