package eval

import (
	"fmt"
	"io"
	"slices"
)

// WriteForms writes a comparison of forms as plain aligned text: a heading,
// one line a form, and notes. first is the heading of the forms' names.
func WriteForms(w io.Writer, r *FormsReport, first string) error {
	t := table{left: 1}
	t.row(first, "weights", "bits/weight", "correct", "accuracy", "95 % interval", "+ −", "p", "tokens/forward", "change", "tokens/s", "KL mean", "KL max", "same argmax")
	var notes []string
	for _, f := range r.Forms {
		row := []string{f.Name, fmt.Sprintf("%.2f MB", float64(f.Bytes)/1e6), fmt.Sprintf("%.3f", f.BitsPerWeight)}
		switch c := f.ToSource; {
		case f.Kept != "":
			notes = append(notes, fmt.Sprintf("%s: nothing to quantise: %s.", f.Name, f.Kept))
		default:
			row = append(row, fmt.Sprintf("%d/%d", f.Correct, f.N), percent(f.Accuracy), fmt.Sprintf("%.1f–%.1f", 100*f.AccuracyLow, 100*f.AccuracyHigh), "", "",
				fmt.Sprintf("%.2f", f.TokensPerForward), "", fmt.Sprintf("%.1f", f.TokensPerSecond))
			if c != nil {
				row[6], row[7], row[9] = discordant(c.McNemar), pValue(c.McNemar), fmt.Sprintf("%+.1f %%", 100*c.TokensPerForwardChange)
				row = append(row, nats(c.Divergence.Mean), nats(c.Divergence.Max), percent(c.Divergence.SameArgmax))
			}
		}
		t.row(row...)
	}
	_, err := io.WriteString(w, r.heading()+"\n\n"+t.String()+"\n"+paragraph(append(notes, r.notes()...)))
	return err
}

// nats prints a divergence in three digits.
func nats(v float64) string {
	if v != 0 && v < 0.001 {
		return fmt.Sprintf("%.2e", v)
	}
	return fmt.Sprintf("%.3g", v)
}

func (r *FormsReport) heading() string {
	all := Report{Model: r.Model, Arithmetic: r.Arithmetic, Data: r.Data, DataProblems: r.DataProblems, Offset: r.Offset,
		Selected: r.Selected, FewShot: r.FewShot, MaxTokens: r.MaxTokens, Temperature: r.temperature}
	return all.heading() + " · " + r.Setting
}

// notes say what the table's columns do not.
func (r *FormsReport) notes() []string {
	var notes []string
	if !r.Complete {
		notes = append(notes, "Interrupted: only the answers so far count.")
	}
	if len(r.Forms) > 1 && r.Forms[1].ToSource != nil {
		notes = append(notes, fmt.Sprintf("+ −: problems that only this form, or only %s, has right; p: McNemar's test of them.", r.Forms[0].Name))
	}
	i := slices.IndexFunc(r.Forms, func(f FormReport) bool { return f.ToSource != nil && f.ToSource.Divergence.Positions > 0 })
	if i >= 0 {
		notes = append(notes, fmt.Sprintf("KL: divergence from %s in nats, over %d positions of prompts and reference answers.",
			r.Forms[0].Name, r.Forms[i].ToSource.Divergence.Positions))
	}
	if slices.ContainsFunc(r.Forms, func(f FormReport) bool { return f.Truncated > 0 }) {
		notes = append(notes, fmt.Sprintf("Some answers reached the limit of %d tokens.", r.MaxTokens))
	}
	return notes
}
