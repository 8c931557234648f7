package eval

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"unicode/utf8"

	"windrow/decoder"
	"windrow/internal/atomicfile"
)

//go:embed report.html
var reportHTML string

var reportTemplate = template.Must(template.New("report").Parse(reportHTML))

// Bounds of the report's table of failures: a model out of its depth fails
// nearly everywhere, and a page of more than some megabytes opens slowly.
const (
	maxFailures   = 300
	maxAnswerText = 4000 // bytes
)

// reportPage is what the template shows.
type reportPage struct {
	Report           *Report
	Heading          string
	Header           []string
	Rows             [][]string
	Notes            []string
	Palette          []int
	Plot             *plot
	Answered, Failed int
	LeftOut          bool
	Failures         []failure
}

// failure is a problem that at least one setting has wrong.
type failure struct {
	Index               int
	Question, Reference string
	Answers             []givenAnswer
}

// givenAnswer is an answer and the settings that gave it: the first few, how
// many more, and all.
type givenAnswer struct {
	Settings           string
	More               int
	All                string
	Prediction, Text   string
	Correct, Truncated bool
}

// WriteHTML writes the report as one HTML page that needs no other file and
// no network: a summary, a plot of accuracy over tokens per forward, and the
// failures.
func WriteHTML(w io.Writer, r *Report) error {
	page := reportPage{Report: r, Heading: r.heading(), Notes: r.notes(), Plot: newPlot(r.Settings)}
	page.Header, page.Rows = r.columns()
	for i := range palette {
		page.Palette = append(page.Palette, i)
	}
	for items := r.Items; len(items) > 0; {
		n := 1
		for n < len(items) && items[n].Index == items[0].Index {
			n++
		}
		page.Answered++
		if f := newFailure(items[:n]); f != nil {
			page.Failed++
			if len(page.Failures) < maxFailures {
				page.Failures = append(page.Failures, *f)
			}
		}
		items = items[n:]
	}
	page.LeftOut = page.Failed > len(page.Failures)
	return reportTemplate.Execute(w, page)
}

// newFailure gathers the answers to one problem, equal ones once; nil if all
// are right.
func newFailure(items []Item) *failure {
	f := &failure{Index: items[0].Index, Question: items[0].Question, Reference: items[0].Reference}
	wrong := false
	var names [][]string
	for _, it := range items {
		wrong = wrong || !it.Correct
		a := givenAnswer{
			Prediction: it.Prediction, Text: clip(it.Text), Correct: it.Correct,
			Truncated: it.FinishReason == decoder.FinishLength,
		}
		at := -1
		for i := range f.Answers {
			if f.Answers[i] == a {
				at = i
			}
		}
		if at < 0 {
			at = len(f.Answers)
			f.Answers, names = append(f.Answers, a), append(names, nil)
		}
		names[at] = append(names[at], it.Name())
	}
	if !wrong {
		return nil
	}
	for i := range f.Answers {
		a := &f.Answers[i]
		a.All = strings.Join(names[i], ", ")
		a.Settings = a.All
		if n := len(names[i]); n == len(items) && n > 1 {
			a.Settings = "all settings"
		} else if n > 3 {
			a.Settings, a.More = strings.Join(names[i][:2], ", "), n-2
		}
	}
	return f
}

// clip cuts a text that is too long for the page, between characters.
func clip(s string) string {
	if len(s) <= maxAnswerText {
		return s
	}
	n := maxAnswerText
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + " …"
}

// MiddleX and MiddleY are where the axes' names stand.
func (p *plot) MiddleX() float64 { return pixel((p.Left + p.Right) / 2) }
func (p *plot) MiddleY() float64 { return pixel((p.Top + p.Bottom) / 2) }

// SaveHTML writes the report beside path and renames it, so that a failure
// leaves an earlier report as it was.
func SaveHTML(path string, r *Report) error {
	if err := atomicfile.Write(path, func(w io.Writer) error { return WriteHTML(w, r) }); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
