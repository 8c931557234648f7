package decoder

import "math"

// fillControl chooses the masks of wedlm's steps for the most tokens per
// second. Which tokens stand is the model's choice, so other masks can lead to
// other text: later masks never change what earlier ones say, but a slot that
// is filled alone is filled after seeing less.
//
// It models a step by the chance q of each mask, in order, to pass τ: then m
// masks fill F(m) = Σ q + Π(1-q) slots, the last term for the one that is
// filled when none passes. Every fill is fed again as a row, so the best
// steady rate is g = max F(m)/c(m+F(m)), and this step takes the m with the
// most F(m) - g·c(filled+m).
type fillControl struct {
	cost   []float64 // c(rows)/c(1), up to 2W rows
	below  rates
	ledger *ledger
	fills  []float64 // F by m
}

func newFillControl(c *CostModel, window int) *fillControl {
	f := &fillControl{cost: c.ratios(2*window + 1), below: newRates(window), fills: make([]float64, window+1)}
	dearest := 0.0
	for _, x := range f.cost {
		dearest = max(dearest, x)
	}
	f.ledger = newLedger(dearest)
	return f
}

// choose returns how many masks to feed beside the filled rows: 1 to most, or
// none where most is 0.
func (f *fillControl) choose(filled, most int) int {
	most = min(most, len(f.fills)-1)
	sum, none := 0.0, 1.0
	f.below.each(nil, func(i int, q float64) {
		sum, none = sum+q, none*(1-q)
		f.fills[i+1] = sum + none
	})
	rate := 0.0
	for m := 1; m < len(f.fills); m++ {
		rate = max(rate, f.fills[m]/f.at(m+int(math.Round(f.fills[m]))))
	}
	masks := min(1, most)
	least := f.at(filled + masks)
	best := f.fills[masks] - rate*least
	for m := 2; m <= most; m++ {
		cost := f.at(filled + m)
		if q := f.fills[m] - rate*cost; q > best && f.ledger.allows(cost-least) {
			best, masks = q, m
		}
	}
	return masks
}

func (f *fillControl) at(rows int) float64 { return f.cost[min(rows, len(f.cost)-1)] }

// observe tells which of the masks passed τ, in a step of that many rows that
// filled that many slots. What is paid is held against one filled row and one
// mask a token, the least that wedlm can feed.
func (f *fillControl) observe(rows int, passed []bool, filled int) {
	f.ledger.book(filled, f.at(rows)/f.at(2))
	f.below.fade(filled)
	for i, ok := range passed[:min(len(passed), len(f.below.seen))] {
		x := 0.0
		if ok {
			x = 1
		}
		f.below.observe(i, x)
	}
}
