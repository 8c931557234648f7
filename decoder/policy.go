package decoder

import "math"

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
	lines   []line
	paidBy  []float64 // by rows; see tabulate
	left    []float64 // by masks
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
	return policy{
		typical: newProspect(k), worth: make([]float64, k+1), feed: make([]int, k+1), masks: make([]int, k+1),
		lines: make([]line, k+1), paidBy: make([]float64, 2*k+3), left: make([]float64, k+2), states: k + 1, cost: cost,
	}
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

// value is the worth of an action under the solution, by what tabulate has set.
func (p *policy) value(x *prospect, d, m int) float64 {
	return x.earned[d] - p.paidBy[1+d+m] + x.stand[d]*p.left[m]
}

// tabulate sets what rows cost at a rate, up to a row and so many beside it, and what masks
// are worth that leave drafts behind them, by their number.
func (p *policy) tabulate(rate float64, most int) {
	p.paidBy = p.paidBy[:0]
	for rows := range 2 + most {
		p.paidBy = append(p.paidBy, rate*p.at(rows))
	}
	for m := range p.left {
		p.left[m] = surest * p.worth[max(0, m-1)]
	}
}

// improve sets the policy that is best against the present worths.
func (p *policy) improve() (changed bool) {
	const tolerance = 1e-9 // of a token: differences of rounding are none
	p.tabulate(p.rate, 2*p.states-1)
	best, feed, masks := math.Inf(-1), 0, 0
	for k := range p.states {
		current := p.value(&p.typical, p.feed[k], p.masks[k])
		for m := range p.states + 1 {
			if q := p.value(&p.typical, k, m); q > best {
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
// From every k, no drafts are left sooner or later (surest), so there is one solution.
// With a price the reward of a step is T(d) - price·rows; what it brings on average is
// then in the place of g.
func (p *policy) evaluate() {
	if p.price == nil {
		p.rate = p.follow(p.at, func(d, _ int) float64 { return p.typical.earned[d] })
		return
	}
	p.rate = 1
	p.follow(always1, func(d, m int) float64 { return p.typical.earned[d] - p.at(1+d+m) })
}

func always1(int) float64 { return 1 }

// average is what a step has of something on average under the policy. It leaves no
// worths behind.
func (p *policy) average(of func(d, m int) float64) float64 { return p.follow(always1, of) }

// follow solves h(k) + g·time(rows) - S(d)·h(m-1) = reward(d, m) for g and h, which
// becomes the worth. From each k one other leads on, so there is nothing to eliminate:
// along the way from k, h = u - g·v, up to h(0) = 0, or back to where it has been.
func (p *policy) follow(time func(rows int) float64, reward func(d, m int) float64) (g float64) {
	for k := range p.states {
		d, m := p.feed[k], p.masks[k]
		x := line{u: reward(d, m), v: time(1 + d + m)}
		if m > 1 {
			x.next, x.keep = m-1, p.typical.stand[d]*surest
		}
		p.lines[k] = x
	}
	for k := 1; k < p.states; k++ {
		p.settle(k)
	}
	x := p.lines[0]
	y := p.lines[x.next]
	g = (x.u + x.keep*y.u) / (x.v + x.keep*y.v)
	p.worth[0] = 0
	for k := 1; k < p.states; k++ {
		p.worth[k] = p.lines[k].u - g*p.lines[k].v
	}
	return g
}

// line is h(k) = u - g·v + keep·h(next); settled, without the last.
type line struct {
	u, v, keep float64
	next       int
	from       int // k from which the way leads here, while it is followed
	seen       bool
}

// settle makes h(k) known in g, and those on the way from it.
func (p *policy) settle(k int) {
	from, at := 0, k
	for at != 0 && p.lines[at].keep != 0 && !p.lines[at].seen {
		x := &p.lines[at]
		x.seen, x.from = true, from
		from, at = at, x.next
	}
	if at != 0 && p.lines[at].keep != 0 { // the way leads back to where it has been
		x := p.lines[at]
		for next := x.next; next != at; next = p.lines[next].next {
			y := &p.lines[next]
			x.u, x.v, x.keep = x.u+x.keep*y.u, x.v+x.keep*y.v, x.keep*y.keep
		}
		p.lines[at].u, p.lines[at].v, p.lines[at].keep = x.u/(1-x.keep), x.v/(1-x.keep), 0
	}
	for ; from != 0; from = p.lines[from].from {
		if x := &p.lines[from]; x.keep != 0 {
			y := &p.lines[x.next]
			if x.next != 0 {
				x.u, x.v = x.u+x.keep*y.u, x.v+x.keep*y.v
			}
			x.keep = 0
		}
	}
}

func abs(x float64) float64 { return max(x, -x) }
