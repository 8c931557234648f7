package decoder

// Stats counts what one or more generations did: the one set of counters, which
// reports embed. Forwards and rows are those after prefill.
type Stats struct {
	PromptTokens int `json:"prompt_tokens"`
	// CachedTokens are those of the prompt that the cache held before.
	CachedTokens int `json:"cached_tokens,omitempty"`
	Tokens       int `json:"tokens"`
	Forwards     int `json:"forwards"`
	Rows         int `json:"rows"`
	// Drafts are those that verified checked, Accepted those of them that stood.
	Drafts   int `json:"drafts"`
	Accepted int `json:"accepted"`
	// Drafters say the same by who proposed them, and what that took.
	Drafters Drafters `json:"drafters,omitzero"`
	// Masks are all masks fed; LeastMasks and MostMasks are those of one step.
	// Reports show them as StepMasks.
	Masks          int     `json:"-"`
	LeastMasks     int     `json:"-"`
	MostMasks      int     `json:"-"`
	PrefillSeconds float64 `json:"prefill_seconds"`
	DecodeSeconds  float64 `json:"decode_seconds"`
}

// Add adds another generation's counters. The masks of its steps count where it
// has had steps.
func (s *Stats) Add(o Stats) {
	switch {
	case o.Forwards == 0:
	case s.Forwards == 0:
		s.LeastMasks, s.MostMasks = o.LeastMasks, o.MostMasks
	default:
		s.LeastMasks, s.MostMasks = min(s.LeastMasks, o.LeastMasks), max(s.MostMasks, o.MostMasks)
	}
	s.PromptTokens += o.PromptTokens
	s.CachedTokens += o.CachedTokens
	s.Tokens += o.Tokens
	s.Forwards += o.Forwards
	s.Rows += o.Rows
	s.Drafts += o.Drafts
	s.Accepted += o.Accepted
	s.Drafters.Add(&o.Drafters)
	s.Masks += o.Masks
	s.PrefillSeconds += o.PrefillSeconds
	s.DecodeSeconds += o.DecodeSeconds
}

// TokensPerForward is N_gen / forwards after prefill. In ar it is N/(N-1): the
// prefill gives the first token.
func (s Stats) TokensPerForward() float64 { return ratio(float64(s.Tokens), float64(s.Forwards)) }

// PCache is N_gen / N_fwd, where N_fwd counts every row processed after
// prefill (arXiv 2512.22737).
func (s Stats) PCache() float64 { return ratio(float64(s.Tokens), float64(s.Rows)) }

// MeanRows is the mean number of rows of a decode forward.
func (s Stats) MeanRows() float64 { return ratio(float64(s.Rows), float64(s.Forwards)) }

// StepMasks is the number of masks of a decode forward: what an adaptive window
// chose.
type StepMasks struct {
	Mean float64 `json:"mean"`
	Min  int     `json:"min"`
	Max  int     `json:"max"`
}

// StepMasks sums up the masks of all decode forwards.
func (s Stats) StepMasks() StepMasks { return StepMasks{s.MeanMasks(), s.LeastMasks, s.MostMasks} }

// MeanMasks is the mean number of masks of a decode forward.
func (s Stats) MeanMasks() float64 { return ratio(float64(s.Masks), float64(s.Forwards)) }

// TokensPerSecond is generated tokens over decode time.
func (s Stats) TokensPerSecond() float64 { return ratio(float64(s.Tokens), s.DecodeSeconds) }

// PrefillTokensPerSecond is prompt tokens computed over prefill time.
func (s Stats) PrefillTokensPerSecond() float64 {
	return ratio(float64(s.PromptTokens-s.CachedTokens), s.PrefillSeconds)
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
