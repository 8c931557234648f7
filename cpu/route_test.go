package cpu

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestChoose: which experts a row has and how much of each, of logits that are equal, at the
// ends of f32, or no numbers, which are less than all that are.
func TestChoose(t *testing.T) {
	nan, inf, zero := float32(math.NaN()), float32(math.Inf(1)), float32(math.Copysign(0, -1))
	third, e := 1.0/3, math.Exp(-1)
	for _, c := range []struct {
		what    string
		logits  []float32
		experts []float32
		weights []float64 // renormalised
		ofAll   []float64 // not renormalised; nil: as renormalised
	}{
		{what: "one of one", logits: []float32{-7}, experts: []float32{0}, weights: []float64{1}},
		{what: "one", logits: []float32{1, 2, 1}, experts: []float32{1}, weights: []float64{1}, ofAll: []float64{1 / (1 + 2*e)}},
		{what: "one of equal ones", logits: []float32{3, 3, 3}, experts: []float32{0}, weights: []float64{1}, ofAll: []float64{third}},
		{what: "all", logits: []float32{2, 1, 2}, experts: []float32{0, 1, 2}, weights: []float64{1 / (2 + e), e / (2 + e), 1 / (2 + e)}},
		{what: "all equal", logits: []float32{5, 5, 5, 5}, experts: []float32{0, 1}, weights: []float64{.5, .5}, ofAll: []float64{.25, .25}},
		{what: "equal at the border", logits: []float32{1, 2, 1, 3, 1}, experts: []float32{0, 1, 3},
			weights: []float64{e * e / (1 + e + e*e), e / (1 + e + e*e), 1 / (1 + e + e*e)}, ofAll: []float64{e * e / (1 + e + 3*e*e), e / (1 + e + 3*e*e), 1 / (1 + e + 3*e*e)}},
		{what: "equal ones, one behind the border", logits: []float32{0, 4, 4, 4}, experts: []float32{1, 2}, weights: []float64{.5, .5},
			ofAll: []float64{1 / (3 + math.Exp(-4)), 1 / (3 + math.Exp(-4))}},
		{what: "zeros of both signs", logits: []float32{zero, 0, zero, 0, -1}, experts: []float32{0, 1}, weights: []float64{.5, .5}, ofAll: []float64{1 / (4 + e), 1 / (4 + e)}},
		{what: "no numbers among them", logits: []float32{nan, 5, nan, 5, 5, nan}, experts: []float32{1, 3, 4}, weights: []float64{third, third, third}},
		{what: "fewer numbers than are chosen", logits: []float32{nan, 2, nan}, experts: []float32{0, 1}, weights: []float64{0, 1}},
		{what: "no number at all", logits: []float32{nan, nan, nan}, experts: []float32{0, 1}, weights: []float64{.5, .5}, ofAll: []float64{third, third}},
		{what: "the least number and none", logits: []float32{nan, -1e30, -3, nan}, experts: []float32{1, 2}, weights: []float64{0, 1}},
		{what: "no number is as the least one", logits: []float32{-inf, nan, 1, -inf}, experts: []float32{0, 2}, weights: []float64{0, 1}},
		{what: "nothing but the least", logits: []float32{-inf, -inf, -inf}, experts: []float32{0, 1}, weights: []float64{.5, .5}, ofAll: []float64{third, third}},
		{what: "both ends", logits: []float32{inf, 1, inf, -inf}, experts: []float32{0, 2}, weights: []float64{.5, .5}},
		{what: "an end and what is large", logits: []float32{1e30, -1e30, 1e30, 0, inf}, experts: []float32{0, 2, 4}, weights: []float64{0, 0, 1}},
		{what: "large ones", logits: []float32{-1e30, 1e30, 1e30, 0}, experts: []float32{1, 2}, weights: []float64{.5, .5}},
		{what: "least ones", logits: []float32{-1e30, -1e30, -1e30}, experts: []float32{0, 1}, weights: []float64{.5, .5}, ofAll: []float64{third, third}},
		{what: "the largest floats", logits: []float32{math.MaxFloat32, -math.MaxFloat32, -math.MaxFloat32}, experts: []float32{0, 1}, weights: []float64{1, 0}},
	} {
		for _, renormalise := range []bool{true, false} {
			want := c.weights
			if !renormalise && c.ofAll != nil {
				want = c.ofAll
			}
			checkChoice(t, c.what, c.logits, renormalise, c.experts, want)
		}
	}
	// Any logits, many of them equal or none, by sorting.
	r := rand.New(rand.NewPCG(9, 2))
	odd := []float32{nan, inf, -inf, 1e30, -1e30, 0, zero}
	for range 2000 {
		logits := make([]float32, 1+r.IntN(40))
		for i := range logits {
			switch r.IntN(3) {
			case 0:
				logits[i] = float32(r.NormFloat64())
			case 1:
				logits[i] = float32(r.IntN(3))
			case 2:
				logits[i] = odd[r.IntN(len(odd))]
			}
		}
		k := 1 + r.IntN(len(logits))
		for _, renormalise := range []bool{true, false} {
			experts, weights := sortedChoice(logits, k, renormalise)
			checkChoice(t, "random", logits, renormalise, experts, weights)
		}
	}
}

// checkChoice chooses as many as are to be chosen, with what another row left in scratch.
func checkChoice(t *testing.T, what string, logits []float32, renormalise bool, experts []float32, weights []float64) {
	t.Helper()
	k, scratch := len(experts), []int32{99, 98, 97}
	got, was := make([]float32, 2*k), slices.Clone(logits)
	choose(got, logits, renormalise, &scratch)
	if !slices.Equal(got[:k], experts) {
		t.Errorf("%s: of %v experts %v, want %v", what, logits, got[:k], experts)
	}
	for i, w := range weights {
		if !(math.Abs(float64(got[k+i])-w) <= 1e-7) {
			t.Errorf("%s: of %v weights %v, want %v (renormalised: %v)", what, logits, got[k:], weights, renormalise)
			break
		}
	}
	if !slices.EqualFunc(logits, was, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
		t.Errorf("%s: the logits were changed", what)
	}
}

// sortedChoice is a choice by sorting in float64, where infinities are far larger than what
// is not.
func sortedChoice(logits []float32, k int, renormalise bool) (experts []float32, weights []float64) {
	z := make([]float64, len(logits))
	order := make([]int, len(logits))
	for i, x := range logits {
		order[i] = i
		if z[i] = min(max(float64(x), -1e300), 1e300); x != x {
			z[i] = -1e300
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(z[b], z[a]) })
	largest, sum := z[order[0]], 0.0
	for i, e := range order {
		if i < k || !renormalise {
			sum += math.Exp(z[e] - largest)
		}
	}
	slices.Sort(order[:k])
	for _, e := range order[:k] {
		experts, weights = append(experts, float32(e)), append(weights, math.Exp(z[e]-largest)/sum)
	}
	return experts, weights
}
