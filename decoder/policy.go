package decoder

// policy is how many of the drafts at hand a step feeds, and how many masks, by the
// number of drafts: what brings the most tokens for what rows cost, if each draft
// stands with a typical chance.
//
// For a forward of the sequence's own that is the most tokens a second: the rate g is
// part of the solution. Where the forward is shared each step is one forward, whatever
// it feeds, and rows have a price in tokens: the most that a step brings beyond that.
type policy struct {
	typical prospect
	worth   []float64 // h, by drafts at hand
	rate    float64   // g
	feed    []int     // by drafts at hand
	masks   []int
	matrix  [][]float64
	states  int       // 0 to states-1 drafts at hand, up to states masks
	cost    []float64 // c(rows)/c(1)
	price   *Price    // nil: rows cost time
}

// prospect is what feeding d drafts promises, by d: S and T.
type prospect struct{ stand, earned []float64 }

func newProspect(k int) prospect {
	p := prospect{make([]float64, k+1), make([]float64, k+1)}
	p.stand[0], p.earned[0] = 1, 1
	return p
}

// set gives draft i+1 its chance, in order.
func (p *prospect) set(i int, chance float64) {
	p.stand[i+1] = p.stand[i] * chance
	p.earned[i+1] = p.earned[i] + p.stand[i+1]
}

// newPolicy is one of up to k drafts; cost has the rows of two windows, and may be nil
// where there is always a price.
func newPolicy(k int, cost []float64) policy {
	p := policy{
		typical: newProspect(k), worth: make([]float64, k+1), feed: make([]int, k+1), masks: make([]int, k+1),
		matrix: make([][]float64, k+1), states: k + 1, cost: cost,
	}
	for i := range p.matrix {
		p.matrix[i] = make([]float64, k+2)
	}
	return p
}

// solve finds the policy for a price, nil for a forward of the sequence's own, from the
// last policy on: one or two rounds are the rule.
func (p *policy) solve(price *Price) {
	p.price, p.states = price, len(p.worth)
	if price != nil {
		p.states = max(1, min(price.Masks, p.states))
	}
	for k := range p.states {
		if p.masks[k] > p.states { // of a solution that weighed more
			p.feed[k], p.masks[k] = 0, 0
		}
	}
	for range 8 {
		p.evaluate()
		if !p.improve() {
			return
		}
	}
}

// at is what a step of so many rows costs: in one-row forwards, or by the price.
func (p *policy) at(rows int) float64 {
	if p.price != nil {
		return p.price.Row * float64(rows)
	}
	return p.cost[rows]
}

// value is the worth of an action under the solution.
func (p *policy) value(x prospect, d, m int, rate float64) float64 {
	return x.earned[d] - rate*p.at(1+d+m) + x.stand[d]*surest*p.worth[max(0, m-1)]
}

// improve sets the policy that is best against the present worths.
func (p *policy) improve() (changed bool) {
	const tolerance = 1e-9 // of a token: differences of rounding are none
	best, feed, masks := 0.0, 0, 0
	for k := range p.states {
		current := p.value(p.typical, p.feed[k], p.masks[k], p.rate)
		for m := range p.states + 1 {
			if q := p.value(p.typical, k, m, p.rate); (k == 0 && m == 0) || q > best {
				best, feed, masks = q, k, m
			}
		}
		if best > current+tolerance {
			p.feed[k], p.masks[k], changed = feed, masks, true
		}
	}
	return changed
}

// evaluate finds rate and worths of the policy: for every k
//
//	h(k) + g·c(1+d+m) - S(d)·h(m-1) = T(d),   d and m of k,   h(0) = 0
//
// by elimination, g in the place of h(0). From every k, no drafts are left sooner or
// later (surest), so there is one solution. With a price the reward of a step is
// T(d) - price·rows; what it brings on average is then in the place of g.
func (p *policy) evaluate() {
	if p.price == nil {
		p.rate = p.eliminate(p.at, func(d, _ int) float64 { return p.typical.earned[d] })
		return
	}
	p.rate = 1
	p.eliminate(always1, func(d, m int) float64 { return p.typical.earned[d] - p.at(1+d+m) })
}

func always1(int) float64 { return 1 }

// average is what a step has of something on average under the policy. It leaves no
// worths behind.
func (p *policy) average(of func(d, m int) float64) float64 { return p.eliminate(always1, of) }

// eliminate solves h(k) + g·time(rows) - S(d)·h(m-1) = reward(d, m) for g and h, which
// becomes the worth.
func (p *policy) eliminate(time func(rows int) float64, reward func(d, m int) float64) (g float64) {
	n := p.states
	for k, row := range p.matrix[:n] {
		clear(row)
		d, m := p.feed[k], p.masks[k]
		if k > 0 {
			row[k] = 1
		}
		if m > 1 {
			row[m-1] -= p.typical.stand[d] * surest
		}
		row[0], row[n] = time(1+d+m), reward(d, m)
	}
	x := p.matrix
	for i := range n {
		pivot := i
		for r := i + 1; r < n; r++ {
			if abs(x[r][i]) > abs(x[pivot][i]) {
				pivot = r
			}
		}
		x[i], x[pivot] = x[pivot], x[i]
		for r := i + 1; r < n; r++ {
			if f := x[r][i] / x[i][i]; f != 0 {
				for c := i; c <= n; c++ {
					x[r][c] -= f * x[i][c]
				}
			}
		}
	}
	for i := n - 1; i >= 0; i-- {
		h := x[i][n]
		for c := i + 1; c < n; c++ {
			h -= x[i][c] * p.worth[c]
		}
		p.worth[i] = h / x[i][i]
	}
	g, p.worth[0] = p.worth[0], 0
	return g
}

func abs(x float64) float64 { return max(x, -x) }
