package eval

import (
	"context"
	"errors"
	"fmt"

	"windrow/decoder"
)

// column is one way to answer that is compared with others: a setting of a model,
// or a form of it.
type column struct {
	name    string
	runner  Runner
	setting Setting
	answers []*Item // by problem; nil: none yet
}

// run is one evaluation: problems, which columns answer.
type run struct {
	GSM8K    // with its settings in canonical form
	options  decoder.Options
	problems []Problem
	shots    []Problem
	id       string // what answers of this run have in common: see fingerprint
	// keep, where set, is given each new answer; note is what Progress says of
	// the column that gave it.
	keep        func(Item) error
	note        func(*column) string
	done, total int // answers
}

// newRun checks what is to be evaluated.
func newRun(c GSM8K) (*run, error) {
	settings, err := checkSettings(c.Settings)
	if err != nil {
		return nil, err
	}
	c.Settings = settings
	if c.Data == nil {
		return nil, errors.New("no data set to evaluate on")
	}
	r := &run{GSM8K: c, options: c.Options}
	if r.problems, err = c.Data.Slice(c.Offset, c.Limit); err != nil {
		return nil, err
	}
	if r.shots, err = FewShotExamples(c.FewShot); err != nil {
		return nil, err
	}
	if r.options.MaxTokens == 0 {
		r.options.MaxTokens = DefaultMaxTokens
	}
	if c.Raw {
		r.options.StopStrings = append(r.options.StopStrings[:len(r.options.StopStrings):len(r.options.StopStrings)], rawStop)
	}
	r.id, err = c.fingerprint(r.options)
	return r, err
}

// column makes a column without answers.
func (r *run) column(name string, runner Runner, s Setting) *column {
	return &column{name, runner, s, make([]*Item, len(r.problems))}
}

// fill has all missing answers given, problem by problem, so that timings of
// columns are taken in the same minutes. after, where it is not nil, is called
// when all columns have answered a problem.
func (r *run) fill(ctx context.Context, columns []*column, after func(Problem, Prompt) error) error {
	for i, p := range r.problems {
		asked := prompt(r.GSM8K, r.shots, p)
		for _, c := range columns {
			if c.answers[i] != nil {
				continue
			}
			it, err := r.answer(ctx, c, p, asked)
			if err != nil {
				return err
			}
			c.answers[i] = it
			r.done++
			r.tell(r.note(c))
		}
		if after == nil {
			continue
		}
		if err := after(p, asked); err != nil {
			return fmt.Errorf("problem %d: %w", p.Index, err)
		}
	}
	return nil
}

// answer has a column answer a problem, and judges it.
func (r *run) answer(ctx context.Context, c *column, p Problem, asked Prompt) (*Item, error) {
	o := c.setting.Options(r.options)
	o.Sampling.Seed += uint64(p.Index)
	sum, err := ask(ctx, c.runner, asked, o)
	if err != nil {
		return nil, fmt.Errorf("problem %d (%s): %w", p.Index, c.name, err)
	}
	it := newItem(p, c.setting, sum, r.id)
	if r.keep != nil {
		err = r.keep(it)
	}
	return &it, err
}

// ask is Run whose cancelled generations are errors.
func ask(ctx context.Context, r Runner, p Prompt, o decoder.Options) (decoder.Summary, error) {
	sum, err := r.Run(ctx, p, o)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil && sum.FinishReason == decoder.FinishCancelled {
		err = context.Canceled
	}
	return sum, err
}

// tell passes progress on.
func (r *run) tell(note string) {
	if r.Progress != nil {
		r.Progress(r.done, r.total, note)
	}
}

// tally is a column's accuracy so far.
func tally(c *column) string {
	n, correct := 0, 0
	for _, it := range c.answers {
		if it != nil {
			n++
			if it.Correct {
				correct++
			}
		}
	}
	return fmt.Sprintf("%s %d/%d", c.name, correct, n)
}
