package decoder

import (
	"fmt"
	"math/bits"

	"windrow/model"
)

// Constraint says which tokens an output may have: where one sequence stands in a
// grammar. Ids that end the text are allowed where it may end.
type Constraint interface {
	// Mask writes to dst the ids that may come next, bit id%64 of word id/64, and no
	// others. Its error says that none may.
	Mask(dst []uint64) error
	// Allowed reports whether a token may come next.
	Allowed(token int32) bool
	// Advance takes a token, and reports whether it was allowed; where it was not, the
	// constraint stays where it is.
	Advance(token int32) bool
	// Clone stands at the same place; both go on alone.
	Clone() Constraint
}

// Opener is a [Constraint] that knows where it bars nothing. A row whose next token may be
// any is asked for no more than one of a free text.
type Opener interface {
	Constraint
	// Open reports whether any token may come next.
	Open() bool
}

// choices are the ids that a row may choose: all, where it is zero.
type choices struct {
	ids model.IDSet // nil: all, or one alone
	// one says that only may come next. Nothing of the row decides on it, so that a device
	// looks for no candidates, and no logits leave it.
	one  bool
	only int32
}

// constrainedTop is how many candidates of a mask's row are tried for a draft.
const constrainedTop = 16

// constrained is what a sampler keeps for a constraint: the place behind the emitted
// tokens, and the ids that each result of the last plan may choose.
type constrained struct {
	at   Constraint // nil: all is allowed
	ids  int        // of the vocabulary
	sets []model.IDSet
	bars model.Bars // of ids that are never chosen
	err  error      // of a place that nothing may follow
}

// open reports whether anything may follow at.
func open(at Constraint) bool {
	x, ok := at.(Opener)
	return ok && x.Open()
}

// set is room for what result i of the plan may choose.
func (c *constrained) set(i int) model.IDSet {
	for len(c.sets) <= i {
		c.sets = append(c.sets, model.NewIDSet(c.ids))
	}
	return c.sets[i]
}

// after is what may follow at, which is not open, for result i of the plan; all, where
// nothing follows since the text has ended.
func (c *constrained) after(i int, at Constraint) choices {
	set := c.set(i)
	if err := at.Mask(set); err != nil {
		c.err = fmt.Errorf("constraint: %w", err)
		return choices{}
	}
	if id, ok := onlyOf(set); ok && id < c.bars.Limit && id != c.bars.Except {
		return choices{one: true, only: id}
	}
	return choices{ids: set}
}

// onlyOf is the id of a set that has no other; false where it has several, or none.
func onlyOf(set model.IDSet) (id int32, ok bool) {
	for i, w := range set {
		if w == 0 {
			continue
		}
		if ok || w&(w-1) != 0 {
			return 0, false
		}
		id, ok = int32(64*i+bits.TrailingZeros64(w)), true
	}
	return id, ok
}

// allow adds to the want of the row that was added last what may follow at, which stands
// still until the results are there; ended says that its result is of no use. Where what
// is wanted does not depend on it, it is made while a device works.
func (r *rows) allow(s *sampler, at Constraint, ended bool) {
	if at == nil {
		return
	}
	i, b, want := len(r.allowed), r.batch, len(r.batch.Want)-1
	r.allowed = append(r.allowed, choices{})
	fill := func() {
		may := s.after(i, at)
		r.allowed[i], b.Want[want].Allowed = may, may.ids
	}
	switch {
	case ended || open(at):
	case r.logits || s.tell != nil:
		if fill(); r.allowed[i].one {
			b.Want[want].Logits = false
		}
	default:
		b.Want[want].Allowed = s.set(i)
		b.Defer(fill)
	}
}

// lastAllowed is what the row that was added last may choose.
func (r *rows) lastAllowed() choices { return allowedOf(r.allowed, len(r.allowed)-1) }

// allowedOf is what a result may choose; all, where there is no constraint.
func allowedOf(list []choices, i int) choices {
	if i < 0 || i >= len(list) {
		return choices{}
	}
	return list[i]
}

// firstAllowed is the best candidate of a row that a constraint allows; false where it
// is not among those that are known.
func firstAllowed(r model.Result, at Constraint) (int32, bool) {
	for _, c := range r.Top {
		if at.Allowed(c.ID) {
			return c.ID, true
		}
	}
	return 0, false
}
