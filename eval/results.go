package eval

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

// SettingReport sums up one setting.
type SettingReport struct {
	Name string `json:"name"`
	Setting
	Score
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

// report sums up the columns of settings.
func (r *run) report(columns []*column) *Report {
	y := &Report{
		Model: r.Model, Arithmetic: r.Arithmetic, Data: r.Data.Name, DataProblems: len(r.Data.Problems),
		Offset: r.Offset, Selected: len(r.problems), FewShot: r.FewShot,
		MaxTokens: r.options.MaxTokens, Temperature: r.options.Sampling.Temperature,
	}
	for i, c := range columns {
		s := SettingReport{Name: c.name, Setting: c.setting, Score: newScore(c.answers)}
		if i > 0 {
			s.ToFirst = compare(columns[0].answers, c.answers)
		}
		y.Settings = append(y.Settings, s)
	}
	markFrontier(y.Settings)
	for p := range r.problems {
		for _, c := range columns {
			if it := c.answers[p]; it != nil {
				y.Items = append(y.Items, *it)
			}
		}
	}
	return y
}
