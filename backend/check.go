package backend

import (
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

// Candidates is how many candidates of a row a device finds, which finds up to most
// among the ids that the program does not bar, whatever is allowed: one at least. Where
// some ids are allowed alone it is as many as it can: the best of those is nearly always
// among them, and the logits of a row are hundreds of kilobytes to fetch.
func (w *Wanted) Candidates(most int) int {
	if w.Allowed != nil {
		return most
	}
	return min(max(w.TopK, 1), most)
}

// NeedsLogits reports whether Finish takes a row's logits, where the device has found
// r.Top.
func (w *Wanted) NeedsLogits(r *Result, most int) bool {
	return w.Logits || w.TopK > most || w.Allowed != nil && !w.knows(r.Top)
}

// knows reports whether the best allowed ids, as many as are wanted, are among the best
// of all.
func (w *Wanted) knows(top []Candidate) bool {
	left := max(w.TopK, 1)
	for _, c := range top {
		if w.Allowed.Has(c.ID) {
			if left--; left == 0 {
				return true
			}
		}
	}
	return false
}

// NotFiniteError is a row of a forward whose logits are not finite.
type NotFiniteError struct{ Row int }

func (e *NotFiniteError) Error() string {
	return fmt.Sprintf("the logits of row %d are not finite: the weights hold NaN or infinite values, or overflow", e.Row)
}

// Finish completes the result of a wanted row whose statistics are known, and whose
// Top holds the best Candidates. Where others are wanted they are taken from the logits
// (NeedsLogits).
func (w *Wanted) Finish(r *Result, logits []float32, bars Bars, most int) error {
	if l := float64(r.LogSumExp); math.IsNaN(l) || math.IsInf(l, 0) || math.IsNaN(float64(r.Entropy)) {
		return &NotFiniteError{int(w.Row)}
	}
	switch {
	case w.Allowed != nil && w.TopK <= most && w.knows(r.Top):
		r.Top = slices.DeleteFunc(r.Top, func(c Candidate) bool { return !w.Allowed.Has(c.ID) })
	case w.TopK > most || w.Allowed != nil:
		r.Top = TopOf(logits, max(w.TopK, 1), bars, w.Allowed)
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

// TopOf takes the k best candidates from a row of logits, the lower id first on a tie:
// of the ids that are not barred and, where allowed is not nil, allowed. What is no
// number is worse than all numbers.
func TopOf(logits []float32, k int, bars Bars, allowed IDSet) []Candidate {
	better := func(a, b float32) bool { return a > b || b != b && a == a }
	best := make([]Candidate, 0, k+1)
	for id, v := range logits[:bars.Ids(len(logits))] {
		if len(best) == k && (k == 0 || !better(v, best[k-1].Logit)) ||
			int32(id) == bars.Except || allowed != nil && !allowed.Has(int32(id)) {
			continue
		}
		i := len(best)
		for i > 0 && better(v, best[i-1].Logit) {
			i--
		}
		best = slices.Insert(best, i, Candidate{ID: int32(id), Logit: v})
		best = best[:min(len(best), k)]
	}
	return best
}
