package decoder

import (
	"fmt"

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

// constrainedTop is how many candidates of a mask's row are tried for a draft.
const constrainedTop = 16

// constrained is what a sampler keeps for a constraint: the place behind the emitted
// tokens, and the ids that each result of the last plan may choose.
type constrained struct {
	at   Constraint // nil: all is allowed
	ids  int        // of the vocabulary
	sets []model.IDSet
	err  error // of a place that nothing may follow
}

// after is the set of ids that may follow at, for result i of the plan; nil where all
// may, or where nothing follows since the text has ended.
func (c *constrained) after(i int, at Constraint) model.IDSet {
	for len(c.sets) <= i {
		c.sets = append(c.sets, model.NewIDSet(c.ids))
	}
	if err := at.Mask(c.sets[i]); err != nil {
		c.err = fmt.Errorf("constraint: %w", err)
		return nil
	}
	return c.sets[i]
}

// allow adds to the want of the row that was added last what may follow at; ended says
// that its result is of no use.
func (r *rows) allow(c *constrained, at Constraint, ended bool) {
	if at == nil {
		return
	}
	var set model.IDSet
	if !ended {
		set = c.after(len(r.allowed), at)
	}
	r.batch.Want[len(r.batch.Want)-1].Allowed = set
	r.allowed = append(r.allowed, set)
}

// allowedOf is the set of a result; nil: there is none.
func allowedOf(sets []model.IDSet, i int) model.IDSet {
	if i >= len(sets) {
		return nil
	}
	return sets[i]
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
