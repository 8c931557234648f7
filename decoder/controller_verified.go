package decoder

import "math"

// verifiedControl chooses the rows of verified's steps for the most tokens per
// second.
//
// It learns the chance that a draft of some entropy stands, and how good the
// drafts of masks 1, 2, … are by these chances. With c(rows) the latter make a
// decision process whose state is the number k of drafts at hand and whose
// actions are how many of them to feed (d) and how many masks (m):
//
//	earned    T(d) = 1 + Σ_{i≤d} S(i)      S(d): all of the first d stand
//	paid      c(1+d+m)
//	then      m-1 drafts with chance S(d), else none
//
// Policy iteration gives the rate g (tokens per one-row forward) and the worth
// h(k) of drafts, with h(0) = 0; the step taken is the one with the most
// T(d) - g·c(1+d+m) + S(d)·h(m-1) that the ledger allows, S and T now of the
// drafts at hand with their entropies.
//
// In a forward that others share, rows have a Price instead (see policy).
type verifiedControl struct {
	policy
	lessons
	ledger *ledger
	known  *Experience // of the model; nil: none is kept
	// expected are the chances of drafts, by class of entropy and by mask, where
	// this text has shown nothing.
	expected struct{ trust, promise, next []float64 }
	lean     float64   // how much they weigh
	since    int       // tokens since the last solution; negative: never
	present  prospect  // of the drafts at hand
	found    []float64 // what they were expected to earn, where no mask made them
	hopes    []float64
	// second is the time of a one-row forward. Of drafters that run forwards: spent is
	// what they took since the last step, in those; next the chances of their drafts, in
	// order.
	second, spent float64
	next          rates
	// pace is what the last steps brought, and took: with drafts that no mask made, more
	// than the policy, which knows masks only, expects.
	pace struct{ tokens, paid float64 }
	paid float64 // what the last choice costs
	// steps are the best ones by rows, of the last choice that had a price.
	steps []step
}

// trust is the chance that a draft stands, by its class.
type trust struct{ rates }

// chance leans on what is expected of the class as on so many observations.
func (t *trust) chance(i class, expected []float64, lean float64) float64 {
	return (t.yes[i] + lean*expected[i]) / (t.seen[i] + lean)
}

// experienced is how many of a text's own observations an Experience weighs: fewer would
// let a single draft that fell change the window.
const experienced = 4

// newVerifiedControl weighs up to window masks, 2 or more, or none (0), in steps of up to
// so many rows; known may be nil.
func newVerifiedControl(c *CostModel, window, rows int, known *Experience) *verifiedControl {
	k := max(0, window-1)
	v := &verifiedControl{
		policy: newPolicy(k, c.ratios(max(2*window, rows+1))), lessons: newLessons(k, memory, halfLife),
		since: -1, present: newProspect(max(k, rows-1)), second: c.Seconds(1), next: newRates(mostBlind),
	}
	dearest := 0.0
	steps := v.cost
	if window > 0 {
		steps = steps[:2*window+1] // two windows
	}
	for _, x := range steps {
		dearest = max(dearest, x)
	}
	v.known, v.ledger, v.lean = known, known.account(dearest), 1
	if known != nil {
		v.lean = experienced
	}
	v.expected.trust, v.expected.promise = make([]float64, len(trustPrior)), make([]float64, k)
	known.chances(v.expected.trust, v.expected.promise)
	v.expected.next = known.hopes()
	return v
}

func (v *verifiedControl) observe(s observation) {
	if v.price == nil { // else those who set the price answer for it
		v.ledger.book(s.tokens, v.paid+v.spent)
		v.pace.tokens = v.pace.tokens*memory + float64(s.tokens)
		v.pace.paid = v.pace.paid*memory + v.paid + v.spent
	}
	v.spent = 0
	v.next.fade(s.tokens)
	v.fade(s.tokens)
	v.lessons.observe(s)
	v.known.observe(s, v.found)
	v.since += s.tokens
	if len(s.drafts) > 0 {
		v.since = -1
	}
}

func (v *verifiedControl) drafted(drafts []class) {
	if len(drafts) == 0 {
		return
	}
	v.hopes = v.hopes[:0]
	for _, c := range drafts[:min(len(drafts), len(v.worth)-1)] {
		v.hopes = append(v.hopes, v.chance(c))
	}
	v.lessons.drafted(v.hopes)
	v.known.drafted(v.hopes)
	v.since = -1
}

func (v *verifiedControl) chance(c class) float64 {
	return v.trust.chance(c, v.expected.trust, v.lean)
}

func (v *verifiedControl) prefers(others, masks []class) bool {
	return len(others) > 0 && expected(v, others) >= expected(v, masks)+clearly
}

func (v *verifiedControl) proposed(forwards int, c class, seconds float64) {
	v.spent += seconds / v.second
	v.next.observe(min(forwards, mostBlind-1), v.chance(c))
	v.known.proposed(forwards, v.chance(c))
}

func (v *verifiedControl) hope(most int) (n float64) {
	sure := 1.0
	v.next.each(v.expected.next, func(i int, chance float64) {
		if i < most {
			sure *= chance
			n += sure
		}
	})
	return n
}

func (v *verifiedControl) likely(sure float64, forwards int) (chance float64, decides bool) {
	v.next.each(v.expected.next, func(i int, chance float64) {
		if i == min(forwards, mostBlind-1) {
			sure *= chance
		}
	})
	return sure, true
}

func (v *verifiedControl) pays(sure float64, forwards, drafts int, seconds float64, p *Price) bool {
	sure, _ = v.likely(sure, forwards)
	took := seconds / v.second
	if p != nil {
		return sure > p.Row+took
	}
	rows := 2 + drafts // that token, the drafts, and this one
	return rows < len(v.cost) && sure > max(v.rate, v.recent())*(took+v.cost[rows]-v.cost[rows-1]) &&
		v.ledger.allows(v.spent+took+v.cost[rows]-1)
}

// unseen reports whether no mask has shown what the text is like.
func (v *verifiedControl) unseen() bool {
	return len(v.promise.seen) > 0 && v.promise.seen[0] < forgotten
}

// affords reports whether the ledger has what a step costs beyond a row, and what checking
// its masks' drafts would: they are for nothing without. A part of what these are
// expected to bring counts as had; of what drafts at hand are, only once this text has
// shown what its masks are worth.
func (v *verifiedControl) affords(d, m int) bool {
	if v.price != nil {
		return true
	}
	extra := v.at(1+d+m) - 1
	if !v.unseen() {
		extra -= counted * (v.present.earned[d] - 1)
	}
	if m > 0 {
		extra += max(0, v.at(m)-1-counted*(v.typical.earned[m-1]-1))
	}
	return v.ledger.allows(extra)
}

// recent is the rate of the last steps, in tokens per one-row forward.
func (v *verifiedControl) recent() float64 {
	if v.pace.paid == 0 {
		return 1
	}
	return max(1, v.pace.tokens/v.pace.paid)
}

// expect sets what masks are worth in the next steps. In forwards that others share, what
// is tried is chosen for all, by what all have shown. Beside drafts that no mask made,
// which bring more than a row already, masks that nothing is known of have to promise more
// to be tried.
func (v *verifiedControl) expect(p *Price, beside bool) {
	switch expected := v.expected.promise; {
	case p != nil:
		v.promise.each(expected, v.typical.set)
	case v.unseen(): // it may be as easy as any
		least := 0.0
		if beside {
			least = boldest
		}
		v.promise.each(nil, func(i int, rate float64) { v.typical.set(i, max(rate, expected[i], least)) })
	default:
		v.promise.together(expected, v.typical.set)
	}
}

func (v *verifiedControl) choose(drafts []class, most int, p *Price, limit int) (feed, masks int) {
	beside := len(drafts) > 0 && !drafts[0].ofMask()
	// Without news the chances drift slowly; solving takes some microseconds.
	if v.since < 0 || v.since >= 8 || !p.equal(v.price) {
		v.known.chances(v.expected.trust, v.expected.promise)
		v.expected.next = v.known.hopes()
		v.expect(p, beside)
		v.solve(p)
		v.since = 0
	}
	drafts = drafts[:min(len(drafts), len(v.present.stand)-1)]
	for i, c := range drafts {
		v.present.set(i, v.chance(c))
	}
	v.found = nil
	if beside {
		v.found = v.present.earned[:len(drafts)+1]
	}
	rate := v.rate
	if p == nil && beside {
		rate = max(rate, v.recent())
	}
	most = min(most, v.states)
	if p != nil {
		v.weigh(len(drafts), most)
		return v.best(p.Row, limit)
	}
	best, free, wanted := math.Inf(-1), math.Inf(-1), 0
	v.tabulate(rate, len(drafts)+most)
	for d := 0; d <= len(drafts); d++ {
		for m := range most + 1 {
			if m == 1 {
				continue // mask 0 only holds the causal token's place
			}
			q := v.value(&v.present, d, m)
			if q > free {
				free, wanted = q, m
			}
			if q > best && (d == 0 && m == 0 || v.affords(d, m)) {
				best, feed, masks = q, d, m
			}
		}
	}
	// Where what promises most cannot be afforded, less may show whether it is true.
	for m := min(wanted, most); masks == 0 && m > 1; m-- {
		if v.affords(feed, m) {
			masks = m
		}
	}
	v.paid = v.at(1 + feed + masks)
	return feed, masks
}

// step is a choice of drafts and masks, and what it is worth, rows not counted.
type step struct {
	worth       float64
	feed, masks int
}

// weigh sets the best step of each number of rows, with up to so many drafts and masks.
func (v *verifiedControl) weigh(drafts, most int) {
	v.steps = v.steps[:0]
	for range 1 + drafts + most {
		v.steps = append(v.steps, step{worth: math.Inf(-1)})
	}
	for m := range most + 1 {
		if m == 1 {
			continue // mask 0 only holds the causal token's place
		}
		left := surest * v.worth[max(0, m-1)]
		for d := 0; d <= drafts; d++ {
			if q := v.present.earned[d] + v.present.stand[d]*left; q > v.steps[d+m].worth {
				v.steps[d+m] = step{q, d, m}
			}
		}
	}
}

// best is the best step at a price of a row, or, with a limit, of up to so many rows
// whatever they cost.
func (v *verifiedControl) best(price float64, limit int) (feed, masks int) {
	steps := v.steps
	if limit > 0 {
		price, steps = 0, steps[:min(limit, len(steps))]
	}
	best, at := math.Inf(-1), 0
	for i := range steps {
		if q := steps[i].worth - price*float64(i); q > best {
			best, at = q, i
		}
	}
	return steps[at].feed, steps[at].masks
}

// worths appends what the best step of each number of rows is worth, from one row on.
func (v *verifiedControl) worths(list []float64) []float64 {
	best := math.Inf(-1)
	for i := range v.steps {
		best = max(best, v.steps[i].worth)
		list = append(list, best)
	}
	return list
}
