package decoder

// verifiedControl chooses the rows of verified's steps for the most tokens per
// second.
//
// It models the text by two rows of chances: that mask j yields a draft where
// mask j-1 did, and that draft j stands where draft j-1 did. With c(rows) they
// make a decision process whose state is the number k of drafts at hand and
// whose actions are how many of them to feed (d) and how many masks (m):
//
//	earned    T(d) = 1 + Σ_{i≤d} S(i)      S(d): all of the first d stand
//	paid      c(1+d+m)
//	then      k' ≤ m-1 drafts with chance S(d), else none
//
// Policy iteration gives the rate g (tokens per one-row forward) and the worth
// h(k) of drafts, with h(0) = 0; the step taken is the one with the most
// T(d) - g·c(1+d+m) + S(d)·E h(k') that the ledger allows.
type verifiedControl struct {
	cost          []float64 // c(rows)/c(1), up to 2W rows
	pass, accept  rates     // of draft i+1
	ledger        ledger
	since         int       // tokens since the last solution; negative: never
	stand, earned []float64 // S and T, by d
	supply        []float64 // chance of at least i drafts from masks enough, by i
	worth, ahead  []float64 // h by k, E h(k') by m
	rate          float64   // g
	feed, masks   []int     // the policy, by k
	matrix        [][]float64
}

// newVerifiedControl weighs up to window masks, 2 or more.
func newVerifiedControl(c *CostModel, window int) *verifiedControl {
	k := window - 1
	v := &verifiedControl{
		cost: c.ratios(2 * window), pass: newRates(k), accept: newRates(k), since: -1,
		stand: make([]float64, k+1), earned: make([]float64, k+1), supply: make([]float64, k+2),
		worth: make([]float64, k+1), ahead: make([]float64, window+1),
		feed: make([]int, k+1), masks: make([]int, k+1), matrix: make([][]float64, k+1),
	}
	for i := range v.matrix {
		v.matrix[i] = make([]float64, k+2)
	}
	dearest := 0.0
	for _, x := range v.cost {
		dearest = max(dearest, x)
	}
	v.ledger = newLedger(dearest)
	return v
}

func (v *verifiedControl) observe(s observation) {
	v.ledger.book(s.tokens, v.cost[1+s.drafts+s.masks])
	v.pass.fade(s.tokens)
	v.accept.fade(s.tokens)
	v.accept.run(s.accepted, s.accepted < s.drafts)
	if s.accepted == s.drafts && s.masks > 1 {
		v.pass.run(s.drafted, s.drafted < s.masks-1 && !s.cut)
	}
	v.since += s.tokens
	if s.drafts > 0 || s.masks > 0 {
		v.since = -1
	}
}

func (v *verifiedControl) choose(drafts, most int) (feed, masks int) {
	// Without news the chances drift slowly; solving takes some microseconds.
	if v.since < 0 || v.since >= 8 {
		v.solve()
		v.since = 0
	}
	drafts, most = min(drafts, len(v.worth)-1), min(most, len(v.ahead)-1)
	best, found := 0.0, false
	for d := 0; d <= drafts; d++ {
		for m := 0; m <= most; m++ {
			if m == 1 {
				continue // mask 0 only holds the causal token's place
			}
			// Masks are for nothing without the means to check their drafts.
			extra := v.cost[1+d+m] - 1 + max(0, v.cost[max(1, m)]-1)
			if (d > 0 || m > 0) && !v.ledger.allows(extra) {
				continue
			}
			if q := v.value(d, m); !found || q > best {
				best, found, feed, masks = q, true, d, m
			}
		}
	}
	return feed, masks
}

// value is the worth of an action under the solution.
func (v *verifiedControl) value(d, m int) float64 {
	return v.earned[d] - v.rate*v.cost[1+d+m] + v.stand[d]*v.ahead[m]
}

// solve brings chances, rate and worths up to date, from the last policy on:
// one or two rounds are the rule.
func (v *verifiedControl) solve() {
	v.stand[0], v.earned[0], v.supply[0] = 1, 1, 1
	v.accept.each(func(i int, rate float64) {
		v.stand[i+1] = v.stand[i] * rate
		v.earned[i+1] = v.earned[i] + v.stand[i+1]
	})
	v.pass.each(func(i int, rate float64) { v.supply[i+1] = v.supply[i] * rate })
	for range 8 {
		v.evaluate()
		if !v.improve() {
			return
		}
	}
}

// improve sets the policy that is best against the present worths.
func (v *verifiedControl) improve() (changed bool) {
	const tolerance = 1e-9 // of a token: differences of rounding are none
	best, feed, masks := 0.0, 0, 0
	for k := range v.worth {
		current := v.value(v.feed[k], v.masks[k])
		for m := range v.ahead {
			if q := v.value(k, m); (k == 0 && m == 0) || q > best {
				best, feed, masks = q, k, m
			}
		}
		if best > current+tolerance {
			v.feed[k], v.masks[k], changed = feed, masks, true
		}
	}
	return changed
}

// evaluate finds rate and worths of the policy: for every k
//
//	h(k) + g·c(k) - S(d_k)·Σ_{j≥1} P(j | m_k)·h(j) = T(d_k),   h(0) = 0
//
// by elimination, g in the place of h(0). From every k, no drafts are left
// sooner or later (surest), so there is one solution.
func (v *verifiedControl) evaluate() {
	n := len(v.worth)
	for k, row := range v.matrix {
		clear(row)
		d, m := v.feed[k], v.masks[k]
		if k > 0 {
			row[k] = 1
		}
		for j := 1; j < m; j++ {
			p := v.supply[j]
			if j < m-1 {
				p -= v.supply[j+1]
			}
			row[j] -= v.stand[d] * p * surest
		}
		row[0], row[n] = v.cost[1+d+m], v.earned[d]
	}
	for i := range n {
		pivot := i
		for r := i + 1; r < n; r++ {
			if abs(v.matrix[r][i]) > abs(v.matrix[pivot][i]) {
				pivot = r
			}
		}
		v.matrix[i], v.matrix[pivot] = v.matrix[pivot], v.matrix[i]
		for r := i + 1; r < n; r++ {
			if f := v.matrix[r][i] / v.matrix[i][i]; f != 0 {
				for c := i; c <= n; c++ {
					v.matrix[r][c] -= f * v.matrix[i][c]
				}
			}
		}
	}
	for i := n - 1; i >= 0; i-- {
		x := v.matrix[i][n]
		for c := i + 1; c < n; c++ {
			x -= v.matrix[i][c] * v.worth[c]
		}
		v.worth[i] = x / v.matrix[i][i]
	}
	v.rate, v.worth[0] = v.worth[0], 0
	for m := range v.ahead {
		if v.ahead[m] = 0; m >= 2 {
			v.ahead[m] = v.ahead[m-1] + v.supply[m-1]*(v.worth[m-1]-v.worth[m-2])*surest
		}
	}
}

func abs(x float64) float64 { return max(x, -x) }
