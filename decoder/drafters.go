package decoder

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// Drafters are the counters of all kinds of drafters. In JSON they are an object by
// name, without those that did nothing.
type Drafters [drafterKinds]DrafterStats

// DrafterStats count what one kind of drafter did.
type DrafterStats struct {
	// Drafts were checked, and Accepted of them stood.
	Drafts   int `json:"drafts"`
	Accepted int `json:"accepted"`
	// Rows are those that were fed to propose: masks, or rows of the smaller model.
	// Seconds is what the latter took, by what a forward of it was measured to take.
	Rows    int     `json:"rows,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	// Cost is what proposing and checking took, in one-row forwards of the model, by
	// c(rows); 0 where that is not known.
	Cost float64 `json:"cost,omitempty"`
}

// String is the counters for people.
func (s DrafterStats) String() string {
	text := fmt.Sprintf("%d checked, %d accepted", s.Drafts, s.Accepted)
	if s.Drafts > 0 {
		text += fmt.Sprintf(" (%.0f %%)", 100*float64(s.Accepted)/float64(s.Drafts))
	}
	if s.Rows > 0 {
		text += fmt.Sprintf("; %d rows to propose", s.Rows)
	}
	if s.Cost > 0 && s.Accepted > 0 {
		text += fmt.Sprintf("; an accepted one cost %.2f forwards of a row", s.Cost/float64(s.Accepted))
	} else if s.Cost > 0 {
		text += fmt.Sprintf("; cost %.1f forwards of a row", s.Cost)
	}
	return text
}

// Add adds other counters.
func (s *Drafters) Add(o *Drafters) {
	for i := range s {
		x, y := &s[i], &o[i]
		x.Drafts += y.Drafts
		x.Accepted += y.Accepted
		x.Rows += y.Rows
		x.Seconds += y.Seconds
		x.Cost += y.Cost
	}
}

// count adds a step's drafts, of which so many stood, by who proposed them.
func (s *Drafters) count(fed []draft, accepted int) {
	for i, d := range fed {
		s[d.by].Drafts++
		if i < accepted {
			s[d.by].Accepted++
		}
	}
}

// Each calls f with every kind that did something.
func (s *Drafters) Each(f func(kind DrafterKind, x DrafterStats)) {
	for i, x := range s {
		if x != (DrafterStats{}) {
			f(DrafterKind(i), x)
		}
	}
}

// MarshalJSON implements json.Marshaler.
func (s Drafters) MarshalJSON() ([]byte, error) {
	m := map[string]DrafterStats{}
	s.Each(func(kind DrafterKind, x DrafterStats) { m[kind.String()] = x })
	return json.Marshal(m)
}

// UnmarshalJSON implements json.Unmarshaler. Its error is about a name that no drafter
// has, or a number that cannot be.
func (s *Drafters) UnmarshalJSON(data []byte) error {
	var m map[string]DrafterStats
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	*s = Drafters{}
	for name, x := range m {
		i := slices.Index(drafterNames[:], name)
		if i < 0 {
			return fmt.Errorf("drafter %.40q: want one of %q", name, drafterNames)
		}
		if x.Drafts < 0 || x.Accepted < 0 || x.Accepted > x.Drafts || x.Rows < 0 || x.Drafts > math.MaxInt32 || x.Rows > math.MaxInt32 ||
			!(x.Seconds >= 0 && x.Seconds < 1e12) || !(x.Cost >= 0 && x.Cost < 1e12) {
			return fmt.Errorf("drafter %s: %d drafts, %d accepted, %d rows, %v s, cost %v: want counts from 0", name, x.Drafts, x.Accepted, x.Rows, x.Seconds, x.Cost)
		}
		s[i] = x
	}
	return nil
}
