package schedule

import (
	"context"
	"time"

	"windrow/decoder"
	"windrow/model"
)

// job is a request on its way.
type job struct {
	request  Request
	ctx      context.Context
	stream   *Stream
	number   int64 // of arrival
	sequence *decoder.Sequence
	cache    *model.Cache // nil: none yet, or taken away
	whole    int          // tokens that were computed as a prompt's chunks are
	waits    func() bool  // nil: for nothing but its turn
	follows  bool         // it waits for another request
	lookedUp bool         // among what is on disk
	seal     bool         // nobody's: see Seal
	rows     int          // of the last pass
	timings  Timings
	arrived  time.Time
	admitted time.Time
	prefilled,
	ended time.Time
}

// cost is what a request has got: rows of its prompt, and four times the tokens.
func cost(j *job) float64 {
	st := j.sequence.Summary().Stats
	return float64(st.PromptTokens-st.CachedTokens) + 4*float64(st.Tokens)
}

// tellsPrompt reports whether all of the prompt is run, as its tokens' logprobs are asked
// for: in smaller chunks than those of others, whose bits are their own where rows are not
// the same in any batch.
func (j *job) tellsPrompt() bool { return j.request.Options.PromptLogprobs != nil }

// left is how many rows of its prompt, or of what is run again, are to come.
func (j *job) left() int { return j.sequence.Left() }

// unread is how many of them are of its prompt.
func (j *job) unread() int { return len(j.request.Prompt) - j.cache.Base() }

// measured completes the timings.
func (j *job) measured() Timings {
	t := j.timings
	switch {
	case j.admitted.IsZero():
		t.Queued = j.ended.Sub(j.arrived)
	case j.prefilled.IsZero():
		t.Queued, t.Prefill = j.admitted.Sub(j.arrived), j.ended.Sub(j.admitted)
	default:
		t.Queued, t.Prefill, t.Decode = j.admitted.Sub(j.arrived), j.prefilled.Sub(j.admitted), j.ended.Sub(j.prefilled)
	}
	return t
}
