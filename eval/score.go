package eval

import (
	"math"

	"windrow/decoder"
)

// Counts are the counters of some generations, and what follows from them, in six
// decimals.
type Counts struct {
	decoder.Stats
	TokensPerForward float64 `json:"tokens_per_forward"`
	PCache           float64 `json:"p_cache"`
	MeanRows         float64 `json:"mean_rows"`
	TokensPerSecond  float64 `json:"tokens_per_second"`
}

// add counts a generation.
func (c *Counts) add(s decoder.Stats) {
	c.Stats.Add(s)
	c.TokensPerForward, c.PCache = rounded(c.Stats.TokensPerForward()), rounded(c.Stats.PCache())
	c.MeanRows, c.TokensPerSecond = rounded(c.Stats.MeanRows()), rounded(c.Stats.TokensPerSecond())
}

// Score sums up answers. Accuracy and its 95 % Wilson interval are shares from 0
// to 1.
type Score struct {
	N            int     `json:"n"`
	Correct      int     `json:"correct"`
	Accuracy     float64 `json:"accuracy"`
	AccuracyLow  float64 `json:"accuracy_low"`
	AccuracyHigh float64 `json:"accuracy_high"`
	Counts
	// Truncated counts answers that max tokens cut off.
	Truncated int `json:"truncated"`
}

// newScore sums up the answers that there are.
func newScore(answers []*Item) (s Score) {
	for _, it := range answers {
		if it == nil {
			continue
		}
		s.N++
		if it.Correct {
			s.Correct++
		}
		if it.FinishReason == decoder.FinishLength {
			s.Truncated++
		}
		s.add(it.Stats)
	}
	s.PrefillSeconds, s.DecodeSeconds = rounded(s.PrefillSeconds), rounded(s.DecodeSeconds)
	if s.N > 0 {
		s.Accuracy = rounded(float64(s.Correct) / float64(s.N))
	}
	low, high := Wilson(s.Correct, s.N)
	s.AccuracyLow, s.AccuracyHigh = rounded(low), rounded(high)
	return s
}

// rounded keeps six decimals: what is left out differs between machines that
// fuse multiply and add and those that do not.
func rounded(v float64) float64 { return math.Round(v*1e6) / 1e6 }

// compare pairs the answers of two columns to the same problems.
func compare(first, this []*Item) *Comparison {
	c := &Comparison{}
	onlyFirst, onlyThis := 0, 0
	for i := range first {
		f, t := first[i], this[i]
		if f == nil || t == nil {
			continue
		}
		c.N++
		if f.Tokens == t.Tokens && f.TokensHash == t.TokensHash {
			c.EqualOutputs++
		}
		switch {
		case f.Correct && !t.Correct:
			onlyFirst++
		case t.Correct && !f.Correct:
			onlyThis++
		}
	}
	c.McNemar = McNemarTest(onlyFirst, onlyThis)
	return c
}
