package decoder

import (
	"context"
	"slices"

	"windrow/model"
)

// lookup drafts what followed the longest suffix of prompt and output where that
// occurred before: for copies, edits and quotes. It runs no forward.
type lookup struct {
	history *history
	read    chan struct{} // closed when the prompt has been
}

const (
	// lookupTokens is how many tokens are searched at least (history): some 40 MB in a
	// context of so many and more.
	lookupTokens = 128 << 10
	// leastMatch is how many tokens must have occurred before. One token is followed by
	// the same one now and then, and that is not worth a row.
	leastMatch = 2
)

// newLookup reads the prompt, and has room for some tokens behind it. It takes 0.2 µs a
// token: while the model reads the prompt, too.
func newLookup(prompt []int32, tokens int) *lookup {
	l := &lookup{newHistory(lookupTokens), make(chan struct{})}
	prompt = slices.Clone(prompt) // the caller may be gone before it is read
	go func() {
		defer close(l.read)
		l.history.now.grow(min(len(prompt)+min(tokens, 1024), lookupTokens))
		for _, t := range prompt {
			l.history.extend(t)
		}
	}()
	return l
}

// Kind implements Drafter.
func (l *lookup) Kind() DrafterKind { return LookupDrafter }

// Follow implements Drafter. The prompt it has, once it has been read.
func (l *lookup) Follow(tokens []int32, _ []model.Result) {
	<-l.read
	for _, t := range tokens {
		l.history.extend(t)
	}
}

// Propose implements Drafter.
func (l *lookup) Propose(_ context.Context, p *Proposal) error {
	h := l.history
	if h.length < leastMatch {
		return nil
	}
	// Behind the newest token goes on what is proposed: a text that repeats itself.
	next := func(i int) (int32, bool) {
		if j := h.end + 1 + i - h.len(); j >= 0 {
			ahead := p.Ahead()
			return ahead[j], true
		}
		return h.at(h.end + 1 + i)
	}
	for i := 0; ; i++ {
		ahead := p.Ahead()
		token, ok := next(i)
		switch {
		case !ok:
			return nil
		case i < len(ahead):
			if ahead[i] != token { // a constraint forced another one
				return nil
			}
		case !p.add(token, lookupClass(h.length+i)):
			return nil
		}
	}
}

// Seconds implements Drafter.
func (l *lookup) Seconds() float64 { return 0 }

// Close implements Drafter.
func (l *lookup) Close() {}
