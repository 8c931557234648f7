package eval

import (
	"context"
	"errors"
	"strings"

	"windrow/decoder"
)

// GSM8K says what to evaluate and how.
type GSM8K struct {
	// Data is the whole data set; Offset and Limit (0: all) choose from it.
	Data          *Dataset
	Offset, Limit int
	// Settings are compared with the first of them.
	Settings []Setting
	// Options hold for all settings, but for what a Setting replaces. The
	// sampling seed of problem i is Seed + i.
	Options decoder.Options
	// FewShot is how many problems of the training set, 8 at most, are shown
	// as earlier turns.
	FewShot int
	// System is the system message; empty: none.
	System string
	// Raw asks in plain text ("Question: …\nAnswer:") and not in chat turns:
	// for base models.
	Raw bool
	// Model names the model, and Arithmetic what else may change a token
	// (backend, kernels, KV type): both go into the report, and an output file
	// made with others is refused.
	Model, Arithmetic string
	// Output is the path of the output file; empty: none. If it exists, the
	// run resumes from it.
	Output string
	// Progress may be nil.
	Progress Progress
}

// rawStop ends an answer in raw mode, where a base model would go on with a
// question of its own.
const rawStop = "\nQuestion:"

// RunGSM8K answers the problems in every setting, problem by problem, so that
// timings of settings are taken in the same minutes.
//
// If ctx is cancelled or an answer fails, it returns the report of what was
// done so far together with the error; the report is nil only if nothing could
// begin.
func RunGSM8K(ctx context.Context, r Runner, c GSM8K) (report *Report, err error) {
	run, err := newRun(c)
	if err != nil {
		return nil, err
	}
	var columns []*column
	byName := map[string]*column{}
	for _, s := range run.Settings {
		col := run.column(s.Name(), r, s)
		columns, byName[col.name] = append(columns, col), col
	}
	run.total, run.note = len(run.problems)*len(columns), tally
	if c.Output != "" {
		out, err := openOutput(c.Output, c.Data, run.id)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, out.Close()) }()
		run.resume(out.resumed, byName)
		run.keep = out.append
	}
	resumed := run.done
	run.tell("")
	err = run.fill(ctx, columns, nil)
	report = run.report(columns)
	report.Resumed, report.Complete = resumed, err == nil
	return report, err
}

// resume takes over earlier answers, but for those to problems and in settings
// that are not asked for: an output file may hold more.
func (r *run) resume(items []Item, columns map[string]*column) {
	place := map[int]int{} // among the problems, by index
	for i, p := range r.problems {
		place[p.Index] = i
	}
	for _, it := range items {
		i, asked := place[it.Index]
		if c := columns[it.Name()]; asked && c != nil {
			c.answers[i] = &it
			r.done++
		}
	}
}

// fingerprint covers what the answers depend on besides the setting.
func (c GSM8K) fingerprint(o decoder.Options) (string, error) {
	return fingerprint(c.Data, c.Model+"\n"+c.Arithmetic, struct {
		FewShot     int
		System      string
		Raw         bool
		MaxTokens   int
		StopIDs     []int32
		StopStrings []string
		Sampling    decoder.Sampling
		Vocabulary  decoder.Vocabulary
	}{c.FewShot, c.System, c.Raw, o.MaxTokens, o.StopIDs, o.StopStrings, o.Sampling, o.Vocabulary})
}

// prompt asks one problem after the examples.
func prompt(c GSM8K, shots []Problem, p Problem) Prompt {
	if c.Raw {
		var b strings.Builder
		if c.System != "" {
			b.WriteString(c.System + "\n\n")
		}
		for _, s := range shots {
			b.WriteString("Question: " + s.Question + "\nAnswer: " + s.Answer + "\n\n")
		}
		b.WriteString("Question: " + p.Question + "\nAnswer:")
		return Prompt{Raw: b.String()}
	}
	var m []Message
	if c.System != "" {
		m = append(m, Message{Role: "system", Content: c.System})
	}
	for _, s := range shots {
		m = append(m, Message{Role: "user", Content: s.Question}, Message{Role: "assistant", Content: s.Answer})
	}
	return Prompt{Messages: append(m, Message{Role: "user", Content: p.Question})}
}
