package engine

import (
	"math"
	"slices"
	"time"

	"windrow/decoder"
)

// What is kept of c(rows), and when it is measured again: see
// docs/adr/0014-costs-are-confirmed.md.
const (
	// costRest is the least time between two measurements: what disturbed one
	// may be over at the next.
	costRest = time.Minute
	// costAge is how long a measurement counts.
	costAge = 7 * 24 * time.Hour
	// costRuns is how many measurements are taken where no two agree.
	costRuns = 5
	// costAgree is how far c(rows) of two measurements that agree may differ.
	costAgree = 0.1
)

// costRun is one measurement of c(rows).
type costRun struct {
	Time   time.Time           `json:"time"`
	Points []decoder.CostPoint `json:"points"`
}

// costHistory is what was measured, the oldest first.
type costHistory []costRun

// readCost returns what was measured of a key, nothing where there is no file
// that can be used: it is then measured again.
func (m Measurements) readCost(key string) costHistory {
	var h costHistory
	if !m.read(costKind, key, &h) || !h.usable() {
		return nil
	}
	return h
}

// usable checks what a file held.
func (h costHistory) usable() bool {
	for _, run := range h {
		if _, err := decoder.NewCostModel(run.Points); err != nil || len(run.Points) < 2 {
			return false
		}
	}
	return len(h) <= costRuns
}

// recent are the measurements that still count. One from the future was taken
// by a wrong clock.
func (h costHistory) recent(now time.Time) costHistory {
	return slices.DeleteFunc(slices.Clone(h), func(run costRun) bool { return run.Time.After(now) || now.Sub(run.Time) > costAge })
}

// due reports whether it is time for another measurement: not right after the
// last, and not where two agree or many do not.
func (h costHistory) due(now time.Time) bool {
	if len(h) == 0 {
		return true
	}
	return len(h) < costRuns && !h.confirmed() && now.Sub(h[len(h)-1].Time) >= costRest
}

// confirmed reports whether two of the measurements agree.
func (h costHistory) confirmed() bool {
	for i := range h {
		for j := range i {
			if agree(h[i].Points, h[j].Points) {
				return true
			}
		}
	}
	return false
}

// agree compares the times of rows with those of one row, for all numbers of
// rows that both have.
func agree(a, b []decoder.CostPoint) bool {
	for _, p := range a {
		for _, q := range b {
			if p.Rows == q.Rows && math.Abs(math.Log(p.Seconds/a[0].Seconds)-math.Log(q.Seconds/b[0].Seconds)) > math.Log(1+costAgree) {
				return false
			}
		}
	}
	return true
}

// table is the quickest of all measurements, point by point: what else runs on
// a machine only ever makes a forward slower. It is nil where there are none.
func (h costHistory) table() *decoder.CostModel {
	least := map[int]float64{}
	for _, run := range h {
		for _, p := range run.Points {
			if old, ok := least[p.Rows]; !ok || p.Seconds < old {
				least[p.Rows] = p.Seconds
			}
		}
	}
	c, err := decoder.NewCostModel(leastPoints(least))
	if err != nil {
		return nil
	}
	return c
}

// leastPoints makes points of the least seconds by rows. None is slower than
// one of more rows.
func leastPoints(least map[int]float64) (points []decoder.CostPoint) {
	for rows, s := range least {
		points = append(points, decoder.CostPoint{Rows: rows, Seconds: s})
	}
	slices.SortFunc(points, func(a, b decoder.CostPoint) int { return a.Rows - b.Rows })
	for i := len(points) - 2; i >= 0; i-- {
		points[i].Seconds = min(points[i].Seconds, points[i+1].Seconds)
	}
	return points
}

// cost is c(rows) of a key at a start of the program: from the file, and from a
// measurement where one is due, which is then kept. It is nil where nothing can be
// measured.
func (m Measurements) cost(key string, now time.Time, measure func() (*decoder.CostModel, error)) *decoder.CostModel {
	h := m.readCost(key).recent(now)
	if h.due(now) {
		if c, err := measure(); err == nil {
			h = append(h, costRun{now.UTC(), c.Points()})
			m.write(costKind, key, h)
		}
	}
	return h.table()
}
