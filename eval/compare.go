package eval

import (
	"context"
	"errors"
	"fmt"

	"windrow/decoder"
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

// FormReport sums up one form. Accuracy and its 95 % Wilson interval are
// shares from 0 to 1; forwards and rows are those after prefill.
type FormReport struct {
	Name string `json:"name"`
	// Kept says why the form is the source itself; it is then not measured.
	Kept string `json:"kept,omitempty"`
	Size
	N                int     `json:"n"`
	Correct          int     `json:"correct"`
	Accuracy         float64 `json:"accuracy"`
	AccuracyLow      float64 `json:"accuracy_low"`
	AccuracyHigh     float64 `json:"accuracy_high"`
	Tokens           int     `json:"tokens"`
	Forwards         int     `json:"forwards"`
	Rows             int     `json:"rows"`
	TokensPerForward float64 `json:"tokens_per_forward"`
	TokensPerSecond  float64 `json:"tokens_per_second"`
	// Truncated counts answers that max tokens cut off.
	Truncated int `json:"truncated"`
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

// formsRun is the state of a comparison.
type formsRun struct {
	c           GSM8K
	options     decoder.Options
	setting     Setting
	problems    []Problem
	shots       []Problem
	source      Variant
	answers     []*Item // the source's
	done, total int     // answers
}

// runForms measures groups of forms; those of a group are in memory together.
func runForms(ctx context.Context, source Form, groups [][]Form, c GSM8K) (r *FormsReport, err error) {
	run, r, err := newFormsRun(c)
	if err != nil {
		return nil, err
	}
	run.total = len(run.problems)
	for _, g := range groups {
		run.total += len(g) * len(run.problems)
	}
	run.tell(source.Name)
	v, size, err := source.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source.Name, err)
	}
	defer v.Close()
	run.source, run.answers = v, make([]*Item, len(run.problems))
	r.Forms = append(r.Forms, FormReport{Name: source.Name, Size: size})
	for _, g := range groups {
		reports, groupErr := run.group(ctx, source.Name, g)
		r.Forms = append(r.Forms, reports...)
		if err = groupErr; err != nil {
			break
		}
	}
	r.Forms[0].sum(run.setting, run.answers)
	if r.Complete = err == nil; !r.Complete && r.Forms[0].N == 0 {
		return nil, err
	}
	return r, err
}

func newFormsRun(c GSM8K) (*formsRun, *FormsReport, error) {
	settings, err := checkSettings(c.Settings)
	if err != nil {
		return nil, nil, err
	}
	if len(settings) != 1 || c.Output != "" {
		return nil, nil, errors.New("a comparison of forms takes one setting and no output file")
	}
	if c.Data == nil {
		return nil, nil, errors.New("no data set to evaluate on")
	}
	run := &formsRun{c: c, setting: settings[0]}
	if run.problems, err = c.Data.Slice(c.Offset, c.Limit); err != nil {
		return nil, nil, err
	}
	if run.shots, err = FewShotExamples(c.FewShot); err != nil {
		return nil, nil, err
	}
	o := c.Options
	if o.MaxTokens == 0 {
		o.MaxTokens = DefaultMaxTokens
	}
	if c.Raw {
		o.StopStrings = append(o.StopStrings[:len(o.StopStrings):len(o.StopStrings)], rawStop)
	}
	run.options = run.setting.Options(o)
	return run, &FormsReport{
		Model: c.Model, Arithmetic: c.Arithmetic, Data: c.Data.Name, DataProblems: len(c.Data.Problems),
		Offset: c.Offset, Selected: len(run.problems), FewShot: c.FewShot, MaxTokens: o.MaxTokens,
		Setting: run.setting.Name(), temperature: o.Sampling.Temperature,
	}, nil
}

// tell reports progress.
func (run *formsRun) tell(note string) {
	if run.c.Progress != nil {
		run.c.Progress(run.done, run.total, note)
	}
}

// openForm is a form that is being measured.
type openForm struct {
	Variant
	name       string
	report     int // its place in the reports
	answers    []*Item
	divergence Divergence
}

// group measures some forms problem by problem, and the source where it has
// not yet answered.
func (run *formsRun) group(ctx context.Context, sourceName string, forms []Form) (reports []FormReport, err error) {
	var open []*openForm
	for _, f := range forms {
		run.tell("making " + f.Name)
		v, size, err := f.Open(ctx)
		var kept *KeptError
		if errors.As(err, &kept) {
			reports = append(reports, FormReport{Name: f.Name, Kept: kept.Reason, Size: size})
			run.done += len(run.problems)
			continue
		}
		if err != nil {
			return reports, fmt.Errorf("%s: %w", f.Name, err)
		}
		defer v.Close()
		open = append(open, &openForm{Variant: v, name: f.Name, report: len(reports), answers: make([]*Item, len(run.problems))})
		reports = append(reports, FormReport{Name: f.Name, Size: size})
	}
	for i, p := range run.problems {
		if err = run.problem(ctx, i, p, sourceName, open); err != nil {
			err = fmt.Errorf("problem %d: %w", p.Index, err)
			break
		}
	}
	for _, f := range open {
		f.divergence.finish()
		reports[f.report].sum(run.setting, f.answers)
		reports[f.report].ToSource = compareForm(run.answers, f.answers, run.setting, f.divergence)
	}
	return reports, err
}

// problem has one problem answered, and its reference answer fed, by the
// source and by forms.
func (run *formsRun) problem(ctx context.Context, i int, p Problem, sourceName string, forms []*openForm) (err error) {
	asked := prompt(run.c, run.shots, p)
	if run.answers[i] == nil {
		if run.answers[i], err = run.answer(ctx, run.source, sourceName, p, asked); err != nil {
			return err
		}
	}
	if len(forms) == 0 {
		return nil
	}
	for _, f := range forms {
		if f.answers[i], err = run.answer(ctx, f, f.name, p, asked); err != nil {
			return err
		}
	}
	tokens, err := run.source.Encode(ctx, asked, p.Answer)
	if err != nil {
		return err
	}
	return diverge(ctx, run.source, forms, tokens)
}

func (run *formsRun) answer(ctx context.Context, r Runner, name string, p Problem, asked Prompt) (*Item, error) {
	o := run.options
	o.Sampling.Seed += uint64(p.Index)
	sum, err := r.Run(ctx, asked, o)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil && sum.FinishReason == decoder.FinishCancelled {
		err = context.Canceled
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	it := newItem(p, run.setting, sum, "")
	run.done++
	run.tell(name)
	return &it, nil
}

// sum fills in the counters of a form's answers.
func (f *FormReport) sum(s Setting, answers []*Item) {
	r := summarise(s, answers)
	f.N, f.Correct, f.Accuracy, f.AccuracyLow, f.AccuracyHigh = r.N, r.Correct, r.Accuracy, r.AccuracyLow, r.AccuracyHigh
	f.Tokens, f.Forwards, f.Rows, f.Truncated = r.Tokens, r.Forwards, r.Rows, r.Truncated
	f.TokensPerForward, f.TokensPerSecond = r.TokensPerForward, r.TokensPerSecond
}

// compareForm pairs a form's answers with the source's.
func compareForm(source, this []*Item, s Setting, d Divergence) *FormComparison {
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
	if first := summarise(s, a).TokensPerForward; first > 0 {
		c.TokensPerForwardChange = rounded(summarise(s, b).TokensPerForward/first - 1)
	}
	return c
}
