package decoder

// Forcer is a [Constraint] that knows where only one text can follow. What it forces
// is drafted by [Verified], which needs no mask for it, nor any window: only drafted,
// since a model may cut the same text into other tokens, and its choice counts.
type Forcer interface {
	Constraint
	// Forced returns the tokens of the text that must come next, as the tokenizer
	// cuts it; none where there is a choice.
	Forced() []int32
}

// mostReach is how many tokens of a forced text are drafted at once, at most.
const mostReach = 32

// forcing is what verified knows of forced text.
type forcing struct {
	// reach is how many forced tokens are drafted at once. One that is rejected shows
	// that the model cuts texts in another way: then fewer are, until they stand.
	reach int
	// stood of tried forced drafts held, of late.
	stood, tried float64
}

const (
	// forcedPrior are forced drafts of which nearly all held, before there were any.
	forcedPrior, forcedHeld = 8, 7.6
	// forcedMemory is after how many the past counts half.
	forcedMemory = 256
)

// chance is that of a forced draft to stand where the one before it does: less than 1, as
// models cut texts in their own way.
func (f *forcing) chance() float64 { return (f.stood + forcedHeld) / (f.tried + forcedPrior) }

// worth is how many of a fill's tokens, of so many that are to be fed, are worth their
// rows: where a row has a price, a forced draft is fed as long as it is expected to bring
// as much. What stands behind one that is not cannot be checked. Of the chosen drafts
// between them the control has seen to that.
func (f *forcing) worth(fill []draft, fed int, price *Price) int {
	if price == nil {
		return fed
	}
	chance := 1.0
	for i, d := range fill[1:fed] {
		if d.by != ConstraintDrafter {
			continue
		}
		if chance *= f.chance(); chance < price.Row {
			return 1 + i
		}
	}
	return fed
}

// drafts are the tokens to draft at a place; none where nothing is forced.
func (f *forcing) drafts(at Constraint) []int32 {
	x, ok := at.(Forcer)
	if !ok {
		return nil
	}
	ids := x.Forced()
	return ids[:min(len(ids), f.reach)]
}

// observe takes the drafts that were fed, of which so many stood.
func (f *forcing) observe(fed []draft, accepted int) {
	run := 0
	for i, d := range fed[:min(len(fed), accepted+1)] {
		if d.by != ConstraintDrafter {
			continue
		}
		if f.tried++; i < accepted {
			f.stood++
		}
		if f.tried > forcedMemory {
			f.tried, f.stood = f.tried/2, f.stood/2
		}
	}
	for i, d := range fed {
		switch {
		case d.by != ConstraintDrafter:
			run = 0
		case i < accepted:
			run++
			f.reach = min(mostReach, max(f.reach, 2*run))
		case i == accepted:
			f.reach = max(1, run)
			return
		default:
			return
		}
	}
}

// through is how many of a fill's tokens are fed with the first so many chosen drafts.
func through(fill []draft, feed int) int {
	for i, d := range fill[1:] {
		if d.by == ConstraintDrafter {
			continue
		}
		if feed == 0 {
			return 1 + i
		}
		feed--
	}
	return len(fill)
}

// seen is what a step showed of the chosen drafts: as if the forced ones and their
// tokens had not been. What stands behind a rejected one was not looked at.
func seen(fed []draft, accepted, masks, tokens int) observation {
	o := observation{drafts: classes(fed), accepted: len(classes(fed[:accepted])), masks: masks}
	if accepted < len(fed) && fed[accepted].by == ConstraintDrafter {
		o.drafts = o.drafts[:o.accepted]
	}
	o.tokens = tokens - (accepted - o.accepted)
	return o
}
