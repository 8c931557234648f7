package decoder

import "math"

// lessons are what steps showed of drafts: of one text, or of all of a model.
type lessons struct {
	trust   trust
	promise rates // of the draft of mask i+1
	// older is what an observation weighs beside the one after it, and half the number
	// of tokens after which evidence counts half.
	older, half float64
}

func newLessons(masks int, older, half float64) lessons {
	return lessons{trust{newRates(len(trustPrior))}, newRates(masks), older, half}
}

// observe counts which drafts of a step stood. What lies behind the first that fell was
// not looked at.
func (l *lessons) observe(s observation) {
	for i, c := range s.drafts[:min(s.accepted+1, len(s.drafts))] {
		x := 0.0
		if i < s.accepted {
			x = 1
		}
		l.trust.weigh(int(c), x, l.older)
	}
}

// drafted counts the chances of masks' drafts, in order.
func (l *lessons) drafted(chances []float64) {
	for i, p := range chances[:min(len(chances), len(l.promise.seen))] {
		l.promise.weigh(i, p, l.older)
	}
}

// fade makes evidence weigh less after so many tokens.
func (l *lessons) fade(tokens int) {
	if math.IsInf(l.half, 1) {
		return
	}
	l.trust.forget(tokens, l.half)
	l.promise.forget(tokens, l.half)
}
