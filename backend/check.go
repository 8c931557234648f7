package backend

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// What every backend checks the operations of a pass against, with one wording.

// CheckEmbed compares tokens, one a row, with their table [out, in] and the
// target's width.
func CheckEmbed(rows, width int, table Matrix, tokens []int32) error {
	if width != table.In() || len(tokens) != rows {
		return fmt.Errorf("embed: %d tokens of width %d into %d rows of width %d", len(tokens), table.In(), rows, width)
	}
	for r, id := range tokens {
		if id < 0 || int(id) >= table.Out() {
			return fmt.Errorf("embed: token %d in row %d, want 0 to %d", id, r, table.Out()-1)
		}
	}
	return nil
}

// Check compares the widths of queries, keys and values, and the angles, with
// the rows of a pass and their storage.
func (h *Heads) Check(rows, q, k, v int, l KVLayout) error {
	if k != l.KVHeads*l.HeadDim || v != k || q%k != 0 || len(h.Cos) != rows*l.HeadDim/2 || len(h.Sin) != len(h.Cos) {
		return fmt.Errorf("rotate: widths q %d, k %d, v %d, %d angles for %d rows of %d heads of %d", q, k, v, len(h.Cos), rows, l.KVHeads, l.HeadDim)
	}
	return nil
}

// CheckAttend compares the widths of attention's buffers with its storage.
func CheckAttend(dst, q int, l KVLayout) error {
	if dst != q || q%(l.KVHeads*l.HeadDim) != 0 {
		return fmt.Errorf("attend: widths %d and %d for %d kv heads of %d", dst, q, l.KVHeads, l.HeadDim)
	}
	return nil
}

// CheckAlike refuses spans whose storage differs in more than its size, for
// backends that serve all spans of a pass by one launch.
func CheckAlike(spans []Span) error {
	for i, s := range spans {
		l, f := s.KV.Layout(), spans[0].KV.Layout()
		if l.Layers != f.Layers || l.KVHeads != f.KVHeads || l.HeadDim != f.HeadDim || l.DType != f.DType {
			return fmt.Errorf("span %d has kv %+v, the first %+v", i, l, f)
		}
	}
	return nil
}

// LogitsOf is row i of logits [rows, vocabulary]; nil where there are none.
func LogitsOf(logits []float32, i, vocabulary int) []float32 {
	if logits == nil {
		return nil
	}
	return logits[i*vocabulary : (i+1)*vocabulary : (i+1)*vocabulary]
}

// Finish completes the result of a wanted row whose statistics are known, and
// whose Top holds up to most candidates, at least one where one may be chosen.
// Where more are wanted they are taken from the logits.
func (w *Want) Finish(r *Result, row int32, logits []float32, limit, most int) error {
	if l := float64(r.LogSumExp); math.IsNaN(l) || math.IsInf(l, 0) || math.IsNaN(float64(r.Entropy)) {
		return fmt.Errorf("the logits of row %d are not finite: the weights hold NaN or infinite values, or overflow", row)
	}
	if len(r.Top) == 0 {
		return fmt.Errorf("results: no id may be chosen")
	}
	r.Argmax = r.Top[0].ID
	switch {
	case w.TopK > most:
		r.Top = topOf(logits, w.TopK, limit, w.Except)
	case w.TopK == 0:
		r.Top = nil
	}
	if w.Logits {
		r.Logits = logits
	}
	return nil
}

// topOf takes the k best candidates from a row of logits.
func topOf(logits []float32, k, limit int, except int32) []Candidate {
	all := make([]Candidate, 0, limit)
	for id, v := range logits[:limit] {
		if int32(id) != except {
			all = append(all, Candidate{ID: int32(id), Logit: v})
		}
	}
	slices.SortStableFunc(all, func(a, b Candidate) int { return cmp.Compare(b.Logit, a.Logit) })
	return all[:min(k, len(all))]
}
