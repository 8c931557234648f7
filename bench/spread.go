package bench

import (
	"fmt"
	"slices"

	"windrow/internal/units"
)

// Spread is the median of some measurements, with the extremes.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func newSpread(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	v := slices.Sorted(slices.Values(values))
	m := v[len(v)/2]
	if len(v)%2 == 0 {
		m = (m + v[len(v)/2-1]) / 2
	}
	return Spread{m, v[0], v[len(v)-1]}
}

// String is "median (min–max)" in three digits.
func (s Spread) String() string {
	return fmt.Sprintf("%s (%s–%s)", units.Digits(s.Median), units.Digits(s.Min), units.Digits(s.Max))
}
