package eval

import (
	"fmt"
	"math"

	"windrow/decoder"
)

// Report is the outcome of an evaluation.
type Report struct {
	Model      string `json:"model"`
	Arithmetic string `json:"arithmetic,omitempty"`
	Data       string `json:"data"`
	// DataProblems is the size of the data set, Selected how many of it, from
	// Offset on, were to be answered.
	DataProblems int     `json:"data_problems"`
	Offset       int     `json:"offset"`
	Selected     int     `json:"selected"`
	FewShot      int     `json:"few_shot"`
	MaxTokens    int     `json:"max_tokens"`
	Temperature  float32 `json:"temperature"`
	// Resumed is how many answers came from the output file.
	Resumed int `json:"resumed"`
	// Complete is false for a run that was interrupted.
	Complete bool            `json:"complete"`
	Settings []SettingReport `json:"settings"`
	// Items are all answers, by problem, then by setting.
	Items []Item `json:"-"`
}

// SettingReport sums up one setting. Accuracy and its 95 % Wilson interval
// are shares from 0 to 1; forwards and rows are those after prefill.
type SettingReport struct {
	Name string `json:"name"`
	Setting
	N                int     `json:"n"`
	Correct          int     `json:"correct"`
	Accuracy         float64 `json:"accuracy"`
	AccuracyLow      float64 `json:"accuracy_low"`
	AccuracyHigh     float64 `json:"accuracy_high"`
	Tokens           int     `json:"tokens"`
	Forwards         int     `json:"forwards"`
	Rows             int     `json:"rows"`
	Drafts           int     `json:"drafts,omitempty"`
	Accepted         int     `json:"accepted,omitempty"`
	TokensPerForward float64 `json:"tokens_per_forward"`
	PCache           float64 `json:"p_cache"`
	MeanRows         float64 `json:"mean_rows"`
	DecodeSeconds    float64 `json:"decode_seconds"`
	TokensPerSecond  float64 `json:"tokens_per_second"`
	// Truncated counts answers that max tokens cut off.
	Truncated int `json:"truncated"`
	// Frontier is true if no other setting is both more accurate and has more
	// tokens per forward.
	Frontier bool `json:"frontier"`
	// ToFirst compares with the first setting; nil in the first itself.
	ToFirst *Comparison `json:"to_first,omitempty"`
}

// Comparison pairs a setting's answers with the first setting's, over the N
// problems that both have answered.
type Comparison struct {
	N int `json:"n"`
	// EqualOutputs counts answers that are equal token for token.
	EqualOutputs int     `json:"equal_outputs"`
	McNemar      McNemar `json:"mcnemar"`
}

// results collects items by setting and problem.
type results struct {
	index    map[int]int // problem's index: its place among those selected
	setting  map[string]int
	items    [][]*Item // [setting][problem]
	done     int
	selected int
}

func newResults(problems []Problem, settings []Setting) *results {
	a := &results{index: map[int]int{}, setting: map[string]int{}, selected: len(problems)}
	for i, p := range problems {
		a.index[p.Index] = i
	}
	for i, s := range settings {
		a.setting[s.Name()] = i
		a.items = append(a.items, make([]*Item, len(problems)))
	}
	return a
}

// add takes an item, unless its problem or its setting is not among those
// asked for: an output file may hold more.
func (a *results) add(it Item) {
	p, ok := a.index[it.Index]
	if !ok {
		return
	}
	s, ok := a.setting[it.Name()]
	if !ok || a.items[s][p] != nil {
		return
	}
	a.items[s][p] = &it
	a.done++
}

// fill asks for every missing answer, problem by problem.
func (a *results) fill(problems []Problem, settings []Setting, ask func(Problem, Setting) (Item, error), progress Progress) error {
	total := len(problems) * len(settings)
	if progress != nil {
		progress(a.done, total, "")
	}
	for p := range problems {
		for s := range settings {
			if a.items[s][p] != nil {
				continue
			}
			it, err := ask(problems[p], settings[s])
			if err != nil {
				return err
			}
			a.add(it)
			if progress != nil {
				progress(a.done, total, a.note(s))
			}
		}
	}
	return nil
}

// note is a setting's accuracy so far.
func (a *results) note(setting int) string {
	n, correct, name := 0, 0, ""
	for _, it := range a.items[setting] {
		if it != nil {
			n++
			name = it.Name()
			if it.Correct {
				correct++
			}
		}
	}
	return fmt.Sprintf("%s %d/%d", name, correct, n)
}

func (a *results) report(settings []Setting) *Report {
	r := &Report{}
	for i, s := range settings {
		sr := summarise(s, a.items[i])
		if i > 0 {
			sr.ToFirst = compare(a.items[0], a.items[i])
		}
		r.Settings = append(r.Settings, sr)
	}
	markFrontier(r.Settings)
	for p := range a.selected {
		for s := range settings {
			if it := a.items[s][p]; it != nil {
				r.Items = append(r.Items, *it)
			}
		}
	}
	return r
}

func summarise(s Setting, items []*Item) SettingReport {
	r := SettingReport{Name: s.Name(), Setting: s}
	for _, it := range items {
		if it == nil {
			continue
		}
		r.N++
		if it.Correct {
			r.Correct++
		}
		if it.FinishReason == decoder.FinishLength {
			r.Truncated++
		}
		r.Tokens += it.Tokens
		r.Forwards += it.Forwards
		r.Rows += it.Rows
		r.Drafts += it.Drafts
		r.Accepted += it.Accepted
		r.DecodeSeconds += it.DecodeSeconds
	}
	total := decoder.Stats{Tokens: r.Tokens, Forwards: r.Forwards, Rows: r.Rows, DecodeSeconds: r.DecodeSeconds}
	r.TokensPerForward, r.PCache = total.TokensPerForward(), total.PCache()
	r.MeanRows, r.TokensPerSecond = total.MeanRows(), total.TokensPerSecond()
	if r.N > 0 {
		r.Accuracy = float64(r.Correct) / float64(r.N)
	}
	r.AccuracyLow, r.AccuracyHigh = Wilson(r.Correct, r.N)
	for _, v := range []*float64{
		&r.Accuracy, &r.AccuracyLow, &r.AccuracyHigh, &r.TokensPerForward, &r.PCache,
		&r.MeanRows, &r.DecodeSeconds, &r.TokensPerSecond,
	} {
		*v = rounded(*v)
	}
	return r
}

// rounded keeps six decimals: what is left out differs between machines that
// fuse multiply and add and those that do not.
func rounded(v float64) float64 { return math.Round(v*1e6) / 1e6 }

func compare(first, this []*Item) *Comparison {
	c := &Comparison{}
	onlyFirst, onlyThis := 0, 0
	for i := range first {
		f, t := first[i], this[i]
		if f == nil || t == nil {
			continue
		}
		c.N++
		if f.Tokens == t.Tokens && f.TokensHash == t.TokensHash {
			c.EqualOutputs++
		}
		switch {
		case f.Correct && !t.Correct:
			onlyFirst++
		case t.Correct && !f.Correct:
			onlyThis++
		}
	}
	c.McNemar = McNemarTest(onlyFirst, onlyThis)
	return c
}
