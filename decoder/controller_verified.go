package decoder

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
type verifiedControl struct {
	cost    []float64 // c(rows)/c(1), up to 2W rows
	trust   trust
	promise rates // of the draft of mask i+1
	ledger  ledger
	since   int       // tokens since the last solution; negative: never
	typical prospect  // by promise
	present prospect  // of the drafts at hand
	worth   []float64 // h by k
	rate    float64   // g
	feed    []int     // the policy, by k
	masks   []int
	matrix  [][]float64
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

// trust is the chance that a draft stands, by its entropy.
type trust struct{ rates }

// The classes of entropy, in nats, and the chances assumed where nothing was
// seen.
var (
	trustBelow = []float32{.05, .2, .4, .8, 1.6, 3}
	trustPrior = []float64{.97, .93, .88, .7, .5, .3, .1}
)

func entropyClass(h float32) int {
	i := 0
	for i < len(trustBelow) && h >= trustBelow[i] {
		i++
	}
	return i
}

func (t *trust) chance(h float32) float64 {
	i := entropyClass(h)
	return (t.yes[i] + trustPrior[i]) / (t.seen[i] + 1)
}

// newVerifiedControl weighs up to window masks, 2 or more.
func newVerifiedControl(c *CostModel, window int) *verifiedControl {
	k := window - 1
	v := &verifiedControl{
		cost: c.ratios(2 * window), trust: trust{newRates(len(trustPrior))}, promise: newRates(k), since: -1,
		typical: newProspect(k), present: newProspect(k), worth: make([]float64, k+1),
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
	v.ledger.book(s.tokens, v.cost[1+len(s.drafts)+s.masks])
	v.trust.fade(s.tokens)
	v.promise.fade(s.tokens)
	for i, h := range s.drafts[:min(s.accepted+1, len(s.drafts))] {
		x := 0.0
		if i < s.accepted {
			x = 1
		}
		v.trust.observe(entropyClass(h), x)
	}
	v.since += s.tokens
	if len(s.drafts) > 0 {
		v.since = -1
	}
}

func (v *verifiedControl) choose(drafts []float32, most int) (feed, masks int) {
	drafts = drafts[:min(len(drafts), len(v.worth)-1)]
	for i, h := range drafts {
		p := v.trust.chance(h)
		v.present.set(i, p)
		v.promise.observe(i, p)
		v.since = -1
	}
	// Without news the chances drift slowly; solving takes some microseconds.
	if v.since < 0 || v.since >= 8 {
		v.solve()
		v.since = 0
	}
	most = min(most, len(v.worth))
	best, found := 0.0, false
	for d := 0; d <= len(drafts); d++ {
		for m := 0; m <= most; m++ {
			if m == 1 {
				continue // mask 0 only holds the causal token's place
			}
			// Masks are for nothing without the means to check their drafts.
			extra := v.cost[1+d+m] - 1 + max(0, v.cost[max(1, m)]-1)
			if (d > 0 || m > 0) && !v.ledger.allows(extra) {
				continue
			}
			if q := v.value(v.present, d, m); !found || q > best {
				best, found, feed, masks = q, true, d, m
			}
		}
	}
	return feed, masks
}

// value is the worth of an action under the solution.
func (v *verifiedControl) value(p prospect, d, m int) float64 {
	return p.earned[d] - v.rate*v.cost[1+d+m] + p.stand[d]*surest*v.worth[max(0, m-1)]
}

// solve brings chances, rate and worths up to date, from the last policy on:
// one or two rounds are the rule.
func (v *verifiedControl) solve() {
	v.promise.each(v.typical.set)
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
		current := v.value(v.typical, v.feed[k], v.masks[k])
		for m := range len(v.worth) + 1 {
			if q := v.value(v.typical, k, m); (k == 0 && m == 0) || q > best {
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
//	h(k) + g·c(1+d+m) - S(d)·h(m-1) = T(d),   d and m of k,   h(0) = 0
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
		if m > 1 {
			row[m-1] -= v.typical.stand[d] * surest
		}
		row[0], row[n] = v.cost[1+d+m], v.typical.earned[d]
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
}

func abs(x float64) float64 { return max(x, -x) }
