package decoder

import (
	"fmt"
	"math"
	"slices"
)

// CostPoint is the measured time of a forward of Rows rows, all results
// wanted.
type CostPoint struct {
	Rows    int     `json:"rows"`
	Seconds float64 `json:"seconds"`
}

// CostModel is c(rows): the time of a forward by its number of rows. It is
// linear between the measured points and beyond the last. The points are taken
// as measured: kernels that work in tiles make c a staircase, and at times a
// larger batch is the quicker one.
type CostModel struct {
	points []CostPoint
}

// NewCostModel makes a model of points in ascending order of rows, the first
// of one row. Seconds must be positive.
func NewCostModel(points []CostPoint) (*CostModel, error) {
	if len(points) == 0 || points[0].Rows != 1 {
		return nil, fmt.Errorf("cost model: want points from one row on, got %v", points)
	}
	for i, p := range points {
		if i > 0 && p.Rows <= points[i-1].Rows {
			return nil, fmt.Errorf("cost model: %d rows after %d, want them ascending", p.Rows, points[i-1].Rows)
		}
		if !(p.Seconds > 0) || math.IsInf(p.Seconds, 0) {
			return nil, fmt.Errorf("cost model: %d rows in %v s, want a positive time", p.Rows, p.Seconds)
		}
	}
	return &CostModel{points: slices.Clone(points)}, nil
}

// Points returns the measured points.
func (c *CostModel) Points() []CostPoint { return slices.Clone(c.points) }

// Seconds is the time of a forward of that many rows, 1 or more.
func (c *CostModel) Seconds(rows int) float64 {
	last := len(c.points) - 1
	i, found := slices.BinarySearchFunc(c.points, rows, func(p CostPoint, rows int) int { return p.Rows - rows })
	switch {
	case found:
		return c.points[i].Seconds
	case i == 0: // fewer than one row
		return c.points[0].Seconds
	case last == 0:
		return c.points[0].Seconds * float64(rows) // one point: nothing is known to be free
	}
	i = min(i, last)
	a, b := c.points[i-1], c.points[i]
	slope := (b.Seconds - a.Seconds) / float64(b.Rows-a.Rows)
	if rows > b.Rows { // a dip at the end must not lead to negative times
		return b.Seconds + max(0, slope)*float64(rows-b.Rows)
	}
	return a.Seconds + slope*float64(rows-a.Rows)
}

// Ratio is c(rows)/c(1).
func (c *CostModel) Ratio(rows int) float64 { return c.Seconds(rows) / c.Seconds(1) }

// ratios is Ratio for 0 to most rows; no row costs nothing.
func (c *CostModel) ratios(most int) []float64 {
	r := make([]float64, most+1)
	for rows := 1; rows <= most; rows++ {
		r[rows] = c.Ratio(rows)
	}
	return r
}
