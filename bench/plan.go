package bench

import (
	"context"
	"fmt"
	"slices"

	"windrow/decoder"
	"windrow/engine"
	"windrow/tokenizer"
)

// Plan is what to measure.
type Plan struct {
	// Repetitions is how often everything is measured.
	Repetitions int
	// Prefill are prompt sizes, and Rows those of steps at Context tokens,
	// ascending. The first of Rows must be 1: c(rows) is relative to it.
	Prefill, Rows []int
	Context       int
	// Timeline adds when the kernels of each prompt of Prefill, and of a step of each of Rows
	// and Batches run, on an NVIDIA GPU whose engine was opened with engine.Options.Timeline.
	Timeline bool
	// Contexts are those of further steps of one row.
	Contexts []int
	// Batches are steps that serve several sequences at Context.
	Batches []Batch
	// Texts are what the Modes answer.
	Texts []Text
	Modes []Mode
	// Cost is c(rows) of the adaptive windows; nil: none.
	Cost *decoder.CostModel
}

// Batch is a step of some rows for each of several sequences.
type Batch struct{ Sequences, Rows int }

// String is "SEQUENCESxROWS".
func (b Batch) String() string { return fmt.Sprintf("%dx%d", b.Sequences, b.Rows) }

// Text is a set of prompts.
type Text struct {
	Name    string
	Prompts [][]int32
}

// Mode is a mode with its window.
type Mode struct {
	Name    string
	Options decoder.Options
}

// FitError is a measurement that the model's context cannot hold.
type FitError struct{ Tokens, Rows, Context int }

func (e *FitError) Error() string {
	return fmt.Sprintf("%d tokens and %d rows: the model's context is %d", e.Tokens, e.Rows, e.Context)
}

// Fit returns a *FitError where a context of so many tokens is too small.
func (p *Plan) Fit(context int) error {
	rows := 1
	if len(p.Rows) > 0 {
		rows = p.Rows[len(p.Rows)-1]
	}
	for _, n := range slices.Concat(p.Prefill, p.Contexts, []int{p.Context}) {
		if n+rows > context {
			return &FitError{n, rows, context}
		}
	}
	for _, b := range p.Batches {
		if p.Context+b.Rows > context {
			return &FitError{p.Context, b.Rows, context}
		}
	}
	return nil
}

// AddModes plans some modes, or all that the model can run, with the options o.
// Verified comes with an adaptive window too, and wedlm where that is asked for.
func (p *Plan) AddModes(ctx context.Context, e *engine.Engine, o decoder.Options, modes []decoder.Mode, adaptWeDLM bool) error {
	if len(modes) == 0 {
		modes = []decoder.Mode{decoder.AR}
		if e.Defaults(o).Vocabulary.MaskID >= 0 {
			if e.Config().Delta == nil { // else it has to go in order
				modes = append(modes, decoder.WeDLM)
			}
			modes = append(modes, decoder.Verified)
		}
	}
	for _, m := range modes {
		o.Mode = m
		fixed := e.Defaults(o)
		if err := e.Check(fixed); err != nil {
			return err
		}
		p.Modes = append(p.Modes, Mode{string(m), fixed})
		if m == decoder.Verified || m == decoder.WeDLM && adaptWeDLM {
			if adaptive := e.Adaptive(ctx, fixed); adaptive.Cost != nil {
				p.Modes = append(p.Modes, Mode{string(m) + " (auto)", adaptive})
				p.Cost = adaptive.Cost
			}
		}
	}
	return nil
}

// AddText plans questions, in the chat template where the model has one. A prompt
// that does not fit with what the modes generate is an *engine.ContextError.
func (p *Plan) AddText(ctx context.Context, e *engine.Engine, name string, questions []string) error {
	text := Text{Name: name}
	for _, q := range questions {
		prompt := engine.Prompt{Raw: q}
		if t := e.Tokenizer(); t != nil && t.HasChatTemplate() {
			prompt = engine.Prompt{Messages: []tokenizer.Message{{Role: "user", Content: q}}}
		}
		ids, err := e.Encode(ctx, prompt)
		if err != nil {
			return err
		}
		for _, mode := range p.Modes {
			if _, err := e.Complete(mode.Options, len(ids)); err != nil {
				return err
			}
		}
		text.Prompts = append(text.Prompts, ids)
	}
	p.Texts = append(p.Texts, text)
	return nil
}
