package main

import (
	"fmt"
	"math"
	"slices"

	"windrow/internal/units"
)

// counted is a number of things: "1 argument", "2 arguments".
func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// finite replaces what JSON cannot hold: NaN and infinities become -1.
func finite(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return -1
	}
	return v
}

// spread is the median of some measurements, with the extremes.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func newSpread(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	v := slices.Sorted(slices.Values(values))
	m := v[len(v)/2]
	if len(v)%2 == 0 {
		m = (m + v[len(v)/2-1]) / 2
	}
	return spread{m, v[0], v[len(v)-1]}
}

// String is "median (min–max)" in three digits.
func (s spread) String() string {
	return fmt.Sprintf("%s (%s–%s)", units.Digits(s.Median), units.Digits(s.Min), units.Digits(s.Max))
}
