package schedule

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"windrow/decoder"
)

// curve is what so many rows are worth to a sequence with so many drafts at hand that
// stand with a chance, of whose masks so many in a row may be right.
func curve(chance float64, drafts, masks int) (w []float64) {
	earned, stand := 1.0, 1.0
	for range drafts + 1 {
		w = append(w, earned)
		stand *= chance
		earned += stand
	}
	last := w[len(w)-1]
	for m := 1; m <= masks; m++ { // the first of them brings nothing
		w = append(w, max(w[len(w)-1], last+stand*(1-math.Pow(chance, float64(m-1)))))
	}
	return w
}

// divided deals out rows among sequences with such curves.
func divided(d *division, curves [][]float64, others int, rate float64, c *decoder.CostModel) (rows []int, score float64) {
	d.begin()
	for _, w := range curves {
		d.parts = append(d.parts, part{worth: w, rows: 1})
	}
	d.divide(others, rate, c.Seconds, edges(c))
	all := others
	for i, p := range d.parts {
		rows, all, score = append(rows, p.rows), all+p.rows, score+curves[i][p.rows-1]
	}
	return rows, score - rate*c.Seconds(all)
}

// TestDivide: what rows are dealt out is worth as much as the best of all ways to deal
// them out, but for little, on any stairs.
func TestDivide(t *testing.T) {
	var d division
	worst, lost, most := 0.0, 0.0, 0.0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 4))
		points := []decoder.CostPoint{{Rows: 1, Seconds: 1}}
		for at, s := 1, 1.0; at < 60; {
			at += 1 + r.IntN(16)
			s += r.ExpFloat64() * .02 * float64(at)
			points = append(points, decoder.CostPoint{Rows: at, Seconds: s})
			if r.IntN(2) == 0 {
				at, s = at+1, s*(1+r.Float64())
				points = append(points, decoder.CostPoint{Rows: at, Seconds: s})
			}
		}
		c, err := decoder.NewCostModel(points)
		if err != nil {
			t.Fatal(err)
		}
		var curves [][]float64
		for range 1 + r.IntN(6) {
			curves = append(curves, curve(.3+.69*r.Float64(), r.IntN(9), r.IntN(12)))
		}
		others, rate := r.IntN(20), 1+8*r.Float64()
		rows, score := divided(&d, curves, others, rate, c)
		for i, n := range rows {
			if n < 1 || n > len(curves[i]) {
				t.Fatalf("seed %d: rows %v", seed, rows)
			}
		}
		// all is the most that each number of rows is worth.
		all := []float64{0}
		for _, w := range curves {
			next := make([]float64, len(all)+len(w))
			for i := range next {
				next[i] = math.Inf(-1)
			}
			for i, x := range all {
				for n, y := range w {
					next[i+n+1] = max(next[i+n+1], x+y)
				}
			}
			all = next
		}
		best := math.Inf(-1)
		for n := len(curves); n < len(all); n++ {
			best = max(best, all[n]-rate*c.Seconds(others+n))
		}
		worst, lost, most = max(worst, best-score), lost+best-score, most+best
	}
	t.Logf("%.4f tokens a forward less than the best at worst, %.5f on average", worst, lost/3000)
	if worst > .25 || lost/3000 > .005 {
		t.Errorf("%.4f tokens a forward less than the best at worst, %.5f on average", worst, lost/3000)
	}
}

// TestDivideAtStairs: rows end at a stair, whatever else the forward has, and go past it
// where that is worth it. Of equals each is the first in turn.
func TestDivideAtStairs(t *testing.T) {
	c := loadTables(t)["staircase"]
	var d division
	w := curve(.9, 11, 0)
	for others := range 10 {
		if rows, _ := divided(&d, [][]float64{w, w}, others, 9, c); others+rows[0]+rows[1] != 16 {
			t.Errorf("beside %d: rows %v", others, rows)
		}
	}
	if rows, _ := divided(&d, [][]float64{w, w}, 16, 9, c); rows[0]+rows[1] < 16 {
		t.Errorf("past the stair anyway: rows %v", rows)
	}
	if rows, _ := divided(&d, [][]float64{w, w, w, w, w, w}, 0, 9, c); rows[0] < 8 {
		t.Errorf("past the stair by many: rows %v", rows)
	}
	sum := [3]int{}
	for range 3 {
		rows, _ := divided(&d, [][]float64{w, w, w}, 0, 12, c)
		for i, n := range rows {
			sum[i] += n
		}
	}
	if sum != [3]int{16, 16, 16} {
		t.Errorf("rows of equals in three forwards: %v", sum)
	}
}

// TestRowsAreEven: sequences that share a stair get on alike in the long run where their
// texts are alike, though each is ahead for a while.
func TestRowsAreEven(t *testing.T) {
	for _, clients := range []int{2, 3, 4, 8} {
		s := &scripted{ease: .9, cost: loadTables(t)["staircase"], at: time.Unix(0, 0)}
		o := decoder.DefaultOptions()
		o.Vocabulary.MaskID, o.Mode, o.Window, o.MaxTokens = scriptedMask, decoder.Verified, 24, 40_000
		o.Cost, o.Experience = s.cost, decoder.NewExperience()
		x := idle(s, Options{Prefixes: -1, Now: s.now})
		ctx := context.Background()
		for n := range clients {
			if _, err := x.Submit(ctx, Request{Prompt: make([]int32, 1+50*n), Options: o, Salt: fmt.Sprint(n)}); err != nil {
				t.Fatal(err)
			}
		}
		x.admit(ctx)
		for range 4000 {
			x.pass(ctx)
		}
		least, most := math.MaxInt, 0
		for _, j := range x.running {
			least, most = min(least, j.sequence.Tokens()), max(most, j.sequence.Tokens())
		}
		t.Logf("%d clients: %d to %d tokens", clients, least, most)
		if len(x.running) < clients || float64(most) > 1.25*float64(least) {
			t.Errorf("%d of %d clients: %d to %d tokens", len(x.running), clients, least, most)
		}
	}
}

func BenchmarkDivide(b *testing.B) {
	for _, n := range []int{2, 8, 32} {
		b.Run(fmt.Sprintf("sequences=%d", n), func(b *testing.B) {
			var curves [][]float64
			for i := range n {
				curves = append(curves, curve(.8+.15*float64(i)/float64(n), i%8, 16))
			}
			c := loadTables(b)["staircase"]
			var d division
			for b.Loop() {
				divided(&d, curves, 0, 7, c)
			}
		})
	}
}
