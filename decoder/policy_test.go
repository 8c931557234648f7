package decoder

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestPolicyIsSolved: rate and worths of random policies, with ways that lead to no drafts
// and such that lead back, are those of the equations.
func TestPolicyIsSolved(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	back := 0
	for range 2000 {
		n := 1 + r.IntN(12)
		p := newPolicy(n-1, nil)
		p.states = 1 + r.IntN(n)
		for i := range n - 1 {
			p.typical.set(i, []float64{0, 1, r.Float64()}[r.IntN(3)])
		}
		for k := range p.states {
			p.feed[k], p.masks[k] = r.IntN(k+1), r.IntN(p.states+1)
			if p.masks[k]-1 == k && k > 0 {
				back++
			}
		}
		cost := func(rows int) float64 { return 1 + .1*float64(rows*rows%17) }
		reward := func(d, m int) float64 { return p.typical.earned[d] - .01*float64(m) }
		g := p.follow(cost, reward)
		for k := range p.states {
			d, m := p.feed[k], p.masks[k]
			left := p.worth[k] + g*cost(1+d+m) - reward(d, m)
			if m > 1 {
				left -= p.typical.stand[d] * surest * p.worth[m-1]
			}
			if math.Abs(left) > 1e-9*(1+math.Abs(g)) || p.worth[0] != 0 {
				t.Fatalf("%d: %v is left; feed %v, masks %v, rate %v, worths %v", k, left, p.feed, p.masks, g, p.worth)
			}
		}
	}
	if back < 100 {
		t.Errorf("%d ways lead back at once: nothing is shown", back)
	}
}
