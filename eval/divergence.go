package eval

import (
	"context"
	"fmt"
	"math"
)

// Divergence sums up how far one model's next-token distributions are from
// another's, over texts that both were given (teacher forcing).
type Divergence struct {
	// Positions counts the distributions that were compared.
	Positions int `json:"positions"`
	// Mean and Max are of the Kullback-Leibler divergence in nats,
	// Σ p·ln(p/q) with p the source's distribution over the whole vocabulary
	// at temperature 1. 0 means equal.
	Mean float64 `json:"mean_nats"`
	Max  float64 `json:"max_nats"`
	// SameArgmax is the share of positions at which both find the same token
	// likeliest.
	SameArgmax float64 `json:"same_argmax"`

	sum  float64
	same int
}

// add compares two rows of logits, the source's first.
func (d *Divergence) add(source, other []float32) error {
	kl, err := KLDivergence(source, other)
	if err != nil {
		return fmt.Errorf("position %d: %w", d.Positions, err)
	}
	d.Positions++
	d.sum += kl
	d.Max = max(d.Max, kl)
	if argmax(source) == argmax(other) {
		d.same++
	}
	return nil
}

// finish works out the means.
func (d *Divergence) finish() {
	if d.Positions > 0 {
		d.Mean, d.SameArgmax = d.sum/float64(d.Positions), rounded(float64(d.same)/float64(d.Positions))
	}
	// Nine decimals: 8 bits in groups of 64 are at about 1e-5 nats.
	d.Mean, d.Max = math.Round(d.Mean*1e9)/1e9, math.Round(d.Max*1e9)/1e9
}

// KLDivergence is the Kullback-Leibler divergence in nats of the softmax of
// other from the softmax of source, Σ p·ln(p/q), summed in float64. Both are
// raw logits over the same vocabulary; logits that are no finite numbers are an
// error.
func KLDivergence(source, other []float32) (float64, error) {
	if len(source) == 0 || len(source) != len(other) {
		return 0, fmt.Errorf("logits of %d and %d ids: want the same vocabulary", len(source), len(other))
	}
	peak, otherPeak := float64(source[argmax(source)]), float64(other[argmax(other)])
	// With z and y the logits less their peaks and Z, Y the sums of their
	// exponentials: Σ p·(z − y) − ln Z + ln Y.
	var sum, otherSum, weighted float64
	for i := range source {
		z, y := float64(source[i])-peak, float64(other[i])-otherPeak
		e := math.Exp(z)
		sum += e
		otherSum += math.Exp(y)
		weighted += e * (z - y)
	}
	kl := weighted/sum - math.Log(sum) + math.Log(otherSum)
	if math.IsNaN(kl) || math.IsInf(kl, 0) {
		return 0, fmt.Errorf("the logits are not finite numbers")
	}
	return max(0, kl), nil // of equal rows rounding leaves about ±1e-16
}

// argmax is the place of the largest logit, the first on a tie.
func argmax(z []float32) int {
	best := 0
	for i, v := range z {
		if v > z[best] {
			best = i
		}
	}
	return best
}

// forcedRows is how many positions are computed at once: 32 rows of 152 k
// logits are 19 MB a model.
const forcedRows = 32

// diverge feeds the tokens to the source and to forms of it, and adds each
// form's divergence at every position.
func diverge(ctx context.Context, source Variant, forms []*openForm, tokens []int32) (err error) {
	texts := make([]ForcedText, 1+len(forms))
	for i := range texts {
		v := source
		if i > 0 {
			v = forms[i-1]
		}
		if texts[i], err = v.Force(ctx, len(tokens)); err != nil {
			return err
		}
		defer texts[i].Close()
	}
	rows := make([][][]float32, len(texts))
	for len(tokens) > 0 {
		n := min(forcedRows, len(tokens))
		for i, t := range texts {
			if rows[i], err = t.Logits(ctx, tokens[:n]); err != nil {
				return err
			}
			if len(rows[i]) != n {
				return fmt.Errorf("%d rows of logits, want %d", len(rows[i]), n)
			}
		}
		for i, f := range forms {
			for r := range n {
				if err := f.divergence.add(rows[0][r], rows[i+1][r]); err != nil {
					return fmt.Errorf("%s: %w", f.name, err)
				}
			}
		}
		tokens = tokens[n:]
	}
	return nil
}
