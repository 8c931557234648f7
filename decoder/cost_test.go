package decoder

import (
	"math"
	"testing"
)

func costs(t testing.TB, points ...CostPoint) *CostModel {
	t.Helper()
	c, err := NewCostModel(points)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCostInterpolation(t *testing.T) {
	c := costs(t, CostPoint{1, 2}, CostPoint{4, 5}, CostPoint{8, 4}, CostPoint{16, 12})
	dip := costs(t, CostPoint{1, 2}, CostPoint{8, 4}, CostPoint{16, 3})
	one := costs(t, CostPoint{1, 2})
	for _, test := range []struct {
		name string
		c    *CostModel
		rows int
		want float64
	}{
		{"none", c, 0, 2},
		{"first", c, 1, 2},
		{"between", c, 2, 3},
		{"point", c, 4, 5},
		{"falling", c, 6, 4.5},
		{"rising", c, 10, 6},
		{"last", c, 16, 12},
		{"beyond", c, 20, 16},
		{"beyond a dip", dip, 100, 3},
		{"one point", one, 3, 6},
	} {
		if got := test.c.Seconds(test.rows); math.Abs(got-test.want) > 1e-12 {
			t.Errorf("%s: %d rows take %v s, want %v", test.name, test.rows, got, test.want)
		}
	}
	if r := c.ratios(4); len(r) != 5 || r[0] != 0 || r[1] != 1 || r[4] != 2.5 {
		t.Errorf("ratios %v", r)
	}
	c.Points()[0].Seconds = 7
	if c.Seconds(1) != 2 {
		t.Error("Points gives away the model's own slice")
	}
}

func TestNewCostModelRefuses(t *testing.T) {
	for name, points := range map[string][]CostPoint{
		"nothing":        nil,
		"not from one":   {{2, 1}},
		"no row":         {{0, 1}, {1, 1}},
		"not ascending":  {{1, 1}, {4, 2}, {4, 2}},
		"no time":        {{1, 0}},
		"negative":       {{1, 1}, {2, -1}},
		"not a number":   {{1, math.NaN()}},
		"without bounds": {{1, 1}, {2, math.Inf(1)}},
	} {
		if c, err := NewCostModel(points); err == nil {
			t.Errorf("%s: got %v, want an error", name, c)
		}
	}
}
