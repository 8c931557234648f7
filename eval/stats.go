package eval

import "math"

// z95 is the two-sided 95 % quantile of the normal distribution.
const z95 = 1.959963984540054

// Wilson returns the 95 % Wilson score interval of a proportion, as shares
// from 0 to 1. Of no trials nothing is known: 0 to 1.
func Wilson(successes, trials int) (low, high float64) {
	if trials <= 0 {
		return 0, 1
	}
	n, p := float64(trials), float64(successes)/float64(trials)
	z2 := z95 * z95
	center := (p + z2/(2*n)) / (1 + z2/n)
	half := z95 / (1 + z2/n) * math.Sqrt(p*(1-p)/n+z2/(4*n*n))
	low, high = center-half, center+half
	// At the ends the interval reaches the end exactly; rounding must not
	// leave 1e-18.
	if successes == 0 {
		low = 0
	}
	if successes == trials {
		high = 1
	}
	return low, high
}

// McNemarExactBelow is the number of discordant pairs from which the
// chi-squared approximation is used: 25 is the usual rule.
const McNemarExactBelow = 25

// McNemar is the paired test of two settings on the same problems: of the
// discordant pairs, do both kinds come equally often?
type McNemar struct {
	// OnlyFirst counts problems that only the first setting has right,
	// OnlyThis those that only the other has right.
	OnlyFirst int `json:"only_first"`
	OnlyThis  int `json:"only_this"`
	// Method is "exact" (two-sided binomial) or "chi-squared" (one degree of
	// freedom, continuity correction), and Statistic the latter's value.
	Method    string  `json:"method"`
	Statistic float64 `json:"statistic,omitempty"`
	// PValue is the probability of counts at least as uneven by chance.
	PValue float64 `json:"p_value"`
}

// McNemarTest compares two settings by their discordant pairs.
func McNemarTest(onlyFirst, onlyThis int) McNemar {
	m := McNemar{OnlyFirst: onlyFirst, OnlyThis: onlyThis, Method: "exact", PValue: 1}
	n, less := onlyFirst+onlyThis, min(onlyFirst, onlyThis)
	if n < McNemarExactBelow {
		// Terms C(n, k) up to C(24, 12) = 2,704,156 are exact in float64.
		sum, term := 0.0, 1.0
		for k := 0; k <= less; k++ {
			sum += term
			term = term * float64(n-k) / float64(k+1)
		}
		m.PValue = min(1, 2*sum/math.Exp2(float64(n)))
		return m
	}
	m.Method = "chi-squared"
	d := max(math.Abs(float64(onlyFirst-onlyThis))-1, 0)
	m.Statistic = d * d / float64(n)
	m.PValue = math.Erfc(math.Sqrt(m.Statistic / 2))
	return m
}
