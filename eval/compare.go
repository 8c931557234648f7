package eval

import (
	"context"
	"errors"
	"fmt"
)

// Variant is a model in one numeric format: it answers prompts as a [Runner],
// and it can be fed a given text. It is called by one goroutine at a time.
type Variant interface {
	Runner
	// Encode returns the ids of a prompt and of the answer that follows it.
	Encode(ctx context.Context, p Prompt, answer string) ([]int32, error)
	// Force begins a text of n tokens.
	Force(ctx context.Context, n int) (ForcedText, error)
	// Close frees the weights.
	Close()
}

// ForcedText feeds tokens that are given to a model (teacher forcing).
type ForcedText interface {
	// Logits feeds the text's next tokens and returns what the model expects
	// after each of them, [len(tokens)][vocabulary]; valid until the next call.
	Logits(ctx context.Context, tokens []int32) ([][]float32, error)
	Close()
}

// Form is one numeric format of a model.
type Form struct {
	// Name is how tables call it: "bf16", "4-bit selective g64", "q_proj".
	Name string
	// Open makes the weights; a *KeptError says that the format changes none
	// of them.
	Open func(ctx context.Context) (Variant, Size, error)
}

// Size is what a form's weights take.
type Size struct {
	// Bytes are those of all weights, scales and biases included.
	Bytes int64 `json:"bytes"`
	// BitsPerWeight is their effective width, over all weights.
	BitsPerWeight float64 `json:"bits_per_weight"`
}

// KeptError says why a form would leave every weight as it is.
type KeptError struct{ Reason string }

func (e *KeptError) Error() string { return "nothing to quantise: " + e.Reason }

// FormsReport compares forms of a model with the first of them, its source.
type FormsReport struct {
	Model        string `json:"model"`
	Arithmetic   string `json:"arithmetic,omitempty"`
	Data         string `json:"data"`
	DataProblems int    `json:"data_problems"`
	Offset       int    `json:"offset"`
	Selected     int    `json:"selected"`
	FewShot      int    `json:"few_shot"`
	MaxTokens    int    `json:"max_tokens"`
	// Setting is how all forms decoded, in words.
	Setting string `json:"setting"`
	// Complete is false for a run that was interrupted.
	Complete bool         `json:"complete"`
	Forms    []FormReport `json:"forms"`

	temperature float32
}

// FormReport sums up one form.
type FormReport struct {
	Name string `json:"name"`
	// Kept says why the form is the source itself; it is then not measured.
	Kept string `json:"kept,omitempty"`
	Size
	Score
	// ToSource compares with the source; nil in the source itself.
	ToSource *FormComparison `json:"to_source,omitempty"`
}

// FormComparison pairs a form's answers with the source's, over the problems
// that both have answered.
type FormComparison struct {
	Comparison
	// AccuracyChange is a share, −0.01 for one point lost, with its 95 %
	// interval.
	AccuracyChange     float64 `json:"accuracy_change"`
	AccuracyChangeLow  float64 `json:"accuracy_change_low"`
	AccuracyChangeHigh float64 `json:"accuracy_change_high"`
	// TokensPerForwardChange is relative, −0.05 for 5 % fewer.
	TokensPerForwardChange float64 `json:"tokens_per_forward_change"`
	// Divergence is over prompts and reference answers, at every position.
	Divergence Divergence `json:"divergence"`
}

// CompareForms answers the problems with the source and with each of the
// others, problem by problem, so that timings are taken in the same minutes,
// and measures how far their distributions over prompt and reference answer
// are from the source's. All forms are in memory at once.
//
// c must have one setting and no output file. As [RunGSM8K], it returns what
// was done so far beside an error, and nil if nothing was.
func CompareForms(ctx context.Context, source Form, others []Form, c GSM8K) (*FormsReport, error) {
	return runForms(ctx, source, [][]Form{others}, c)
}

// runForms measures groups of forms; those of a group are in memory together.
func runForms(ctx context.Context, source Form, groups [][]Form, c GSM8K) (r *FormsReport, err error) {
	run, err := newRun(c)
	if err != nil {
		return nil, err
	}
	if len(run.Settings) != 1 || c.Output != "" {
		return nil, errors.New("a comparison of forms takes one setting and no output file")
	}
	run.total, run.note = len(run.problems), func(c *column) string { return c.name }
	for _, g := range groups {
		run.total += len(g) * len(run.problems)
	}
	r = &FormsReport{
		Model: c.Model, Arithmetic: c.Arithmetic, Data: c.Data.Name, DataProblems: len(c.Data.Problems), Offset: c.Offset,
		Selected: len(run.problems), FewShot: c.FewShot, MaxTokens: run.options.MaxTokens, Setting: run.Settings[0].Name(),
		temperature: run.options.Sampling.Temperature,
	}
	run.tell(source.Name)
	v, size, err := source.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source.Name, err)
	}
	defer v.Close()
	first := &openForm{Variant: v, column: run.column(source.Name, v, run.Settings[0])}
	r.Forms = append(r.Forms, FormReport{Name: source.Name, Size: size})
	for _, g := range groups {
		var reports []FormReport
		reports, err = run.group(ctx, first, g)
		r.Forms = append(r.Forms, reports...)
		if err != nil {
			break
		}
	}
	r.Forms[0].Score = newScore(first.answers)
	if r.Complete = err == nil; !r.Complete && r.Forms[0].N == 0 {
		return nil, err
	}
	return r, err
}

// openForm is a form that is being measured.
type openForm struct {
	Variant
	*column
	report     int // its place in the reports
	divergence Divergence
}

// group measures some forms problem by problem, and the source where it has
// not yet answered.
func (r *run) group(ctx context.Context, source *openForm, forms []Form) (reports []FormReport, err error) {
	var open []*openForm
	columns := []*column{source.column}
	for _, f := range forms {
		r.tell("making " + f.Name)
		v, size, err := f.Open(ctx)
		var kept *KeptError
		if errors.As(err, &kept) {
			reports = append(reports, FormReport{Name: f.Name, Kept: kept.Reason, Size: size})
			r.done += len(r.problems)
			continue
		}
		if err != nil {
			return reports, fmt.Errorf("%s: %w", f.Name, err)
		}
		defer v.Close()
		open = append(open, &openForm{Variant: v, column: r.column(f.Name, v, source.setting), report: len(reports)})
		columns = append(columns, open[len(open)-1].column)
		reports = append(reports, FormReport{Name: f.Name, Size: size})
	}
	err = r.fill(ctx, columns, func(p Problem, asked Prompt) error {
		if len(open) == 0 {
			return nil
		}
		tokens, err := source.Encode(ctx, asked, p.Answer)
		if err != nil {
			return err
		}
		return diverge(ctx, source, open, tokens)
	})
	for _, f := range open {
		f.divergence.finish()
		reports[f.report].Score = newScore(f.answers)
		reports[f.report].ToSource = compareForm(source.answers, f.answers, f.divergence)
	}
	return reports, err
}

// compareForm pairs a form's answers with the source's.
func compareForm(source, this []*Item, d Divergence) *FormComparison {
	var a, b []*Item
	for i := range source {
		if source[i] != nil && this[i] != nil {
			a, b = append(a, source[i]), append(b, this[i])
		}
	}
	c := &FormComparison{Comparison: *compare(a, b), Divergence: d}
	low, high := pairedInterval(c.McNemar.OnlyFirst, c.McNemar.OnlyThis, c.N)
	c.AccuracyChangeLow, c.AccuracyChangeHigh = rounded(low), rounded(high)
	if c.N > 0 {
		c.AccuracyChange = rounded(float64(c.McNemar.OnlyThis-c.McNemar.OnlyFirst) / float64(c.N))
	}
	if first := newScore(a).TokensPerForward; first > 0 {
		c.TokensPerForwardChange = rounded(newScore(b).TokensPerForward/first - 1)
	}
	return c
}
