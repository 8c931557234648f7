package decoder

import (
	"fmt"
	"math"
)

// Known is what an [Experience] has seen of drafts, for keeping: how often those of each
// class stood, and how good the drafts of each mask were.
type Known struct {
	Classes []Chance `json:"classes"`
	Masks   []Chance `json:"masks,omitempty"`
	// Saved is how many one-row forwards windows have saved that may be spent on trying.
	Saved float64 `json:"saved,omitempty"`
}

// Chance is an estimate: Stood of Seen events came true. Neither need be whole.
type Chance struct {
	Seen  float64 `json:"seen"`
	Stood float64 `json:"stood"`
}

// Rate is Stood of Seen; 0 where nothing was seen.
func (c Chance) Rate() float64 { return ratio(c.Stood, c.Seen) }

// knownWeight is as how many observations what was kept counts, at most: what is seen
// from then on can change it.
const knownWeight = 200

// mostSaved bounds what can be kept as saved: two steps of the dearest kind are some tens.
const mostSaved = 1000

// NewRecord is an Experience that forgets nothing: for measuring.
func NewRecord() *Experience {
	return &Experience{lessons: newLessons(maxAdaptive, 1, math.Inf(1)), ledger: newLedger(0), next: newRates(mostBlind)}
}

// Known is what was seen so far.
func (e *Experience) Known() (k Known) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	return Known{e.lessons.trust.chances(), e.lessons.promise.chances(), e.ledger.left()}
}

// Learn begins with what was kept. Its error is about numbers that cannot be; then
// nothing is learned.
func (e *Experience) Learn(k Known) error {
	if len(k.Classes) != allClasses || len(k.Masks) > maxAdaptive {
		return fmt.Errorf("%d classes of drafts and %d masks: want %d and at most %d", len(k.Classes), len(k.Masks), allClasses, maxAdaptive)
	}
	for _, list := range [][]Chance{k.Classes, k.Masks} {
		for i, c := range list {
			if !(c.Seen >= 0 && c.Seen < 1e15 && c.Stood >= 0 && c.Stood <= c.Seen) {
				return fmt.Errorf("chance %d: %v of %v: want numbers from 0, the first not more than the second", i, c.Stood, c.Seen)
			}
		}
	}
	if !(k.Saved >= -mostSaved && k.Saved <= mostSaved) {
		return fmt.Errorf("%v forwards saved: want a number up to %v", k.Saved, mostSaved)
	}
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.ledger.begin(k.Saved)
	e.lessons.trust.learn(k.Classes)
	e.lessons.promise.learn(k.Masks)
	return nil
}

func (r *rates) chances() []Chance {
	list := make([]Chance, len(r.seen))
	for i := range list {
		list[i] = Chance{r.seen[i], r.yes[i]}
	}
	return list
}

func (r *rates) learn(list []Chance) {
	for i, c := range list {
		r.seen[i] = min(c.Seen, knownWeight)
		r.yes[i] = r.seen[i] * c.Rate()
	}
}

// ClassName is what the drafts of a class of Known have in common, for people.
func ClassName(i int) string {
	c := class(i)
	switch {
	case c < 0 || c >= allClasses:
		return "unknown"
	case c.ofMask():
		return "mask, " + entropyName(i)
	case c < maskClasses+lookupClasses:
		i -= maskClasses
		low := leastMatch
		if i > 0 {
			low = lookupBelow[i-1]
		}
		if i == len(lookupBelow) {
			return fmt.Sprintf("lookup, match of %d tokens and more", low)
		}
		if high := lookupBelow[i] - 1; high > low {
			return fmt.Sprintf("lookup, match of %d to %d tokens", low, high)
		}
		return fmt.Sprintf("lookup, match of %d tokens", low)
	}
	if i -= maskClasses + lookupClasses; i < modelClasses {
		return "model, " + entropyName(i)
	}
	if i -= modelClasses; i < headClasses/2 {
		return "mtp, first, " + entropyName(i)
	}
	return "mtp, later, " + entropyName(i-headClasses/2)
}

func entropyName(i int) string {
	if i == len(trustBelow) {
		return fmt.Sprintf("entropy from %v nats", trustBelow[i-1])
	}
	return fmt.Sprintf("entropy below %v nats", trustBelow[i])
}

// recordingControl feeds what a fixed window does, and lookups whatever is expected of
// them, and has an Experience see it.
type recordingControl struct {
	fixedControl
	known  *Experience
	expect struct{ trust, promise []float64 }
}

func newRecordingControl(e *Experience) *recordingControl {
	c := &recordingControl{known: e}
	c.expect.trust, c.expect.promise = make([]float64, allClasses), make([]float64, maxAdaptive)
	return c
}

func (c *recordingControl) observe(s observation) { c.known.observe(s, nil) }

func (c *recordingControl) prefers(others, _ []class) bool { return len(others) > 0 }

func (c *recordingControl) drafted(drafts []class) {
	c.known.chances(c.expect.trust, c.expect.promise)
	chances := make([]float64, len(drafts))
	for i, d := range drafts {
		chances[i] = c.expect.trust[d]
	}
	c.known.drafted(chances)
}
