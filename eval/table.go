package eval

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"windrow/decoder"
)

// WriteTable writes a report as plain aligned text: a heading, one line a
// setting, and notes on what the columns do not say.
func WriteTable(w io.Writer, r *Report) error {
	t := table{left: 1}
	header, rows := r.columns()
	t.row(header...)
	for _, row := range rows {
		t.row(row...)
	}
	_, err := io.WriteString(w, r.heading()+"\n\n"+t.String()+"\n"+paragraph(r.notes()))
	return err
}

// columns are the summary's header and its rows, one a setting.
func (r *Report) columns() (header []string, rows [][]string) {
	header = []string{"setting", "correct", "accuracy", "95 % interval", "tokens/forward", "p_cache", "rows/forward", "tokens/s"}
	truncated := slices.ContainsFunc(r.Settings, func(s SettingReport) bool { return s.Truncated > 0 })
	if truncated {
		header = append(header, "cut off")
	}
	if len(r.Settings) > 1 {
		header = append(header, "equal to "+r.Settings[0].Name, "+ −", "p")
	}
	for _, s := range r.Settings {
		row := []string{
			s.Name + frontierMark(s, len(r.Settings)),
			fmt.Sprintf("%d/%d", s.Correct, s.N),
			percent(s.Accuracy), s.interval(),
			fmt.Sprintf("%.2f", s.TokensPerForward), fmt.Sprintf("%.3f", s.PCache),
			fmt.Sprintf("%.1f", s.MeanRows), fmt.Sprintf("%.1f", s.TokensPerSecond),
		}
		if truncated {
			row = append(row, fmt.Sprint(s.Truncated))
		}
		if c := s.ToFirst; c != nil {
			row = append(row, fmt.Sprintf("%d/%d", c.EqualOutputs, c.N), discordant(c.McNemar), pValue(c.McNemar))
		}
		for len(row) < len(header) {
			row = append(row, "")
		}
		rows = append(rows, row)
	}
	return header, rows
}

// WritePCacheTable writes a p_cache report as plain aligned text: for each
// setting a line for every category and one for all.
func WritePCacheTable(w io.Writer, r *PCacheReport) error {
	t := table{left: 2}
	t.row("setting", "category", "prompts", "tokens", "tokens/forward", "p_cache", "rows/forward", "tokens/s")
	for _, s := range r.Settings {
		for i, c := range append(s.Categories[:len(s.Categories):len(s.Categories)], s.All) {
			name := ""
			if i == 0 {
				name = s.Name
			}
			t.row(name, c.Category, fmt.Sprint(c.Prompts), fmt.Sprint(c.Tokens),
				fmt.Sprintf("%.2f", c.TokensPerForward), fmt.Sprintf("%.3f", c.PCache),
				fmt.Sprintf("%.1f", c.MeanRows), fmt.Sprintf("%.1f", c.TokensPerSecond))
		}
	}
	_, err := io.WriteString(w, r.heading()+"\n\n"+t.String()+"\n"+paragraph(r.notes()))
	return err
}

// heading is one line: what was asked of whom.
func (r *Report) heading() string {
	parts := []string{r.Model}
	if r.Arithmetic != "" {
		parts = append(parts, r.Arithmetic)
	}
	problems := fmt.Sprintf("%s: %d of %d problems", r.Data, r.Selected, r.DataProblems)
	if r.Offset > 0 {
		problems += fmt.Sprintf(" from %d on", r.Offset)
	}
	parts = append(parts, problems)
	if r.FewShot > 0 {
		parts = append(parts, fmt.Sprintf("%d-shot", r.FewShot))
	}
	if r.Temperature == 0 {
		parts = append(parts, "greedy")
	} else {
		parts = append(parts, "temperature "+shortFloat(r.Temperature))
	}
	parts = append(parts, fmt.Sprintf("at most %d tokens", r.MaxTokens))
	return strings.Join(parts, " · ")
}

// notes say what the table's columns do not.
func (r *Report) notes() []string {
	var notes []string
	if !r.Complete {
		notes = append(notes, "Interrupted: only the answers so far count.")
	}
	if r.Resumed > 0 {
		notes = append(notes, fmt.Sprintf("Answers taken from the output file: %d.", r.Resumed))
	}
	if slices.ContainsFunc(r.Settings, func(s SettingReport) bool { return s.Truncated > 0 }) {
		notes = append(notes, fmt.Sprintf("cut off: answers that reached the limit of %d tokens.", r.MaxTokens))
	}
	if len(r.Settings) > 1 {
		notes = append(notes, fmt.Sprintf("+ − : problems that only this setting has right, and that only %s has; p: McNemar's paired test on them.", r.Settings[0].Name))
	}
	if len(r.Settings) > 2 {
		notes = append(notes, "*: no other setting is better in accuracy or tokens per forward without losing in the other.")
	}
	for _, s := range r.Settings {
		notes = append(notes, draftNotes(s.Name, s.Setting, s.Stats)...)
	}
	return notes
}

// draftNotes say who drafted in a setting that chose, a line each.
func draftNotes(name string, s Setting, stats decoder.Stats) (notes []string) {
	if s.Draft == "" {
		return nil
	}
	stats.Drafters.Each(func(kind decoder.DrafterKind, x decoder.DrafterStats) {
		notes = append(notes, fmt.Sprintf("%s: %s: %s.", name, kind, x))
	})
	return notes
}

// frontierMark marks the settings worth choosing, where there is a choice.
func frontierMark(s SettingReport, settings int) string {
	if settings > 2 && s.Frontier {
		return " *"
	}
	return ""
}

func (s SettingReport) interval() string {
	return fmt.Sprintf("%.1f–%.1f", 100*s.AccuracyLow, 100*s.AccuracyHigh)
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

func discordant(m McNemar) string { return fmt.Sprintf("+%d −%d", m.OnlyThis, m.OnlyFirst) }

func pValue(m McNemar) string {
	if m.PValue < 0.001 {
		return fmt.Sprintf("%.1e", m.PValue)
	}
	return fmt.Sprintf("%.3f", m.PValue)
}

func paragraph(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return "\n" + strings.Join(lines, "\n") + "\n"
}

// table aligns cells: the first columns to the left, the others, which hold
// numbers, to the right (text/tabwriter can only align all one way).
type table struct {
	left   int
	rows   [][]string
	widths []int
}

func (t *table) row(cells ...string) {
	for i, c := range cells {
		if i == len(t.widths) {
			t.widths = append(t.widths, 0)
		}
		t.widths[i] = max(t.widths[i], utf8.RuneCountInString(c))
	}
	t.rows = append(t.rows, cells)
}

// String is the table without a newline at its end.
func (t *table) String() string {
	var lines []string
	for _, cells := range t.rows {
		var b strings.Builder
		for i, c := range cells {
			if i > 0 {
				b.WriteString("  ")
			}
			pad := strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(c))
			if i < t.left {
				b.WriteString(c + pad)
			} else {
				b.WriteString(pad + c)
			}
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	return strings.Join(lines, "\n")
}
