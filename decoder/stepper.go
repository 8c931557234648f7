package decoder

import (
	"slices"

	"windrow/model"
)

// A stepper is one mode's state for one sequence. It knows slots, not caches:
// a slot's number counts from the cache's base.
//
// start is called once after prefill. Then, until an emit returns false, come
// pairs of plan and absorb, one pair a forward. plan changes nothing, so that
// a forward that was cancelled may be planned again.
type stepper interface {
	// start begins with the result of the prompt's last row; needsPrompt says
	// whether that result is wanted, else it is zero.
	start(last model.Result, allowed choices, emit emitter) error
	needsPrompt() bool
	// plan appends the rows of the next forward.
	plan(r *rows)
	// absorb takes one result for each wanted row, in order.
	absorb(results []model.Result, emit emitter) (outcome, error)
}

// An emitter takes the next generated token, and how likely it was where somebody asks.
// It returns false when that token ends the generation: whatever would follow is dropped.
type emitter func(token int32, p *Logprobs) bool

// outcome is what a stepper made of a forward.
type outcome struct {
	// commit is how many of the first rows become permanent.
	commit int
	// The rest is for Step, as described there.
	entropy          []float32
	filled           []Fill
	drafts, accepted int
	by               Drafters
}

// rows collects one sequence's rows of a forward, in packed order.
type rows struct {
	base, mask int32
	logits     bool // are wanted of each wanted row
	batch      *model.Batch
	// slots and at are the rows' slots and their numbers; wanted counts wants.
	slots    []Slot
	at       []int
	allowed  []choices // of each want, where there is a constraint
	wanted   int
	wantedAt []int32 // logical positions
	bare     int     // of the first wanted rows: of those nothing but hidden states is wanted
}

// reset begins another forward in the memory of the one before.
func (r *rows) reset(base, mask int32, logits bool, b *model.Batch) {
	*r = rows{base: base, mask: mask, logits: logits, batch: b, slots: r.slots[:0], at: r.at[:0], wantedAt: r.wantedAt[:0]}
}

// add appends the row of slot number i, at logical position base + i.
func (r *rows) add(i int, s Slot, want bool) {
	token := s.Token
	if !s.Filled {
		token = r.mask
	}
	if want {
		r.batch.Want = append(r.batch.Want, model.Wanted{Row: int32(len(r.batch.Tokens)), Logits: r.logits})
		r.wanted++
		r.wantedAt = append(r.wantedAt, r.base+int32(i))
	}
	r.batch.Tokens = append(r.batch.Tokens, token)
	r.batch.Positions = append(r.batch.Positions, r.base+int32(i))
	r.slots = append(r.slots, s)
	r.at = append(r.at, i)
}

// window is the rows in logical order. A slot between them that was not fed is
// a mask.
func (r *rows) window() []Slot {
	w := make([]Slot, slices.Max(r.at)+1)
	for row, i := range r.at {
		w[i] = r.slots[row]
	}
	return w
}
