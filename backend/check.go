package backend

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// LogitsOf is row i of logits [rows, vocabulary]; nil where there are none.
func LogitsOf(logits []float32, i, vocabulary int) []float32 {
	if logits == nil {
		return nil
	}
	return logits[i*vocabulary : (i+1)*vocabulary : (i+1)*vocabulary]
}

// NeedsLogits reports whether Finish takes a row's logits, where a device finds up
// to most candidates among the ids that the program does not bar.
func (w *Wanted) NeedsLogits(most int) bool {
	return w.Logits || w.TopK > most || w.Allowed != nil
}

// Finish completes the result of a wanted row whose statistics are known, and whose
// Top holds as many candidates as are wanted, up to most, at least one. Where others
// are wanted they are taken from the logits (NeedsLogits).
func (w *Wanted) Finish(r *Result, logits []float32, bars Bars, most int) error {
	if l := float64(r.LogSumExp); math.IsNaN(l) || math.IsInf(l, 0) || math.IsNaN(float64(r.Entropy)) {
		return fmt.Errorf("the logits of row %d are not finite: the weights hold NaN or infinite values, or overflow", w.Row)
	}
	if w.TopK > most || w.Allowed != nil {
		r.Top = topOf(logits, max(w.TopK, 1), bars, w.Allowed)
	}
	if len(r.Top) == 0 {
		return fmt.Errorf("results: no id may be chosen in row %d", w.Row)
	}
	r.Argmax = r.Top[0].ID
	r.Top = r.Top[:min(len(r.Top), w.TopK)]
	if w.TopK == 0 {
		r.Top = nil
	}
	r.Logits = nil
	if w.Logits {
		r.Logits = logits
	}
	return nil
}

// topOf takes the k best candidates from a row of logits, the lower id first on a tie.
func topOf(logits []float32, k int, bars Bars, allowed IDSet) []Candidate {
	limit := bars.Ids(len(logits))
	if k == 1 { // as greedy decoding under a constraint has it: no list
		best := Candidate{ID: -1, Logit: float32(math.Inf(-1))}
		for id, v := range logits[:limit] {
			if (v > best.Logit || best.ID < 0) && int32(id) != bars.Except && (allowed == nil || allowed.Has(int32(id))) {
				best = Candidate{ID: int32(id), Logit: v}
			}
		}
		if best.ID < 0 {
			return nil
		}
		return []Candidate{best}
	}
	all := make([]Candidate, 0, limit)
	for id, v := range logits[:limit] {
		if int32(id) != bars.Except && (allowed == nil || allowed.Has(int32(id))) {
			all = append(all, Candidate{ID: int32(id), Logit: v})
		}
	}
	slices.SortStableFunc(all, func(a, b Candidate) int { return cmp.Compare(b.Logit, a.Logit) })
	return all[:min(k, len(all))]
}
