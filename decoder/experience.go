package decoder

import "sync"

// Experience is what adaptive windows of [Verified] have learned of a model: how often
// drafts stood, by the entropy that they were drawn at, and how good the drafts of each
// mask are. A generation with it begins where earlier ones left off, and all together
// keep the promise that one keeps alone: never to cost much more than a row a token. It
// changes speed, never text. It is safe for concurrent use.
type Experience struct {
	mutex   sync.Mutex
	lessons lessons
	found   found
	next    rates // the chances of the drafts of drafters that run forwards, in order
	ledger  *ledger
	tokens  int
}

// longMemory is what an older observation weighs beside the one after it: the last 200
// or so count, of many texts, where a generation's own last 8 do. longHalfLife is the
// number of tokens after which they count half.
const (
	longMemory   = 0.995
	longHalfLife = 4096
)

// NewExperience has seen nothing.
func NewExperience() *Experience {
	return &Experience{lessons: newLessons(maxAdaptive, longMemory, longHalfLife), ledger: newLedger(0), next: newRates(mostBlind)}
}

// observe counts what a step showed of its drafts, and what drafters other than masks
// had to offer it; nil: nothing. Older evidence weighs less then: when
// a model's texts have become easier, that is noticed by trying again.
func (e *Experience) observe(s observation, found []float64) {
	if e == nil {
		return
	}
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.tokens += s.tokens
	e.found.add(found)
	e.lessons.observe(s)
	e.lessons.fade(s.tokens)
}

// Tokens is how many tokens it has seen made since it began.
func (e *Experience) Tokens() int {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	return e.tokens
}

// drafted counts the chances of masks' drafts.
func (e *Experience) drafted(chances []float64) {
	if e == nil {
		return
	}
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.lessons.drafted(chances)
}

// proposed counts the chance of a draft of a drafter that runs forwards, behind so many.
func (e *Experience) proposed(behind int, chance float64) {
	if e == nil || behind >= mostBlind {
		return
	}
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.next.weigh(behind, chance, longMemory)
}

// hopes are the chances of such drafts, in order, before a text has shown anything; nil:
// nothing is known.
func (e *Experience) hopes() (list []float64) {
	if e == nil {
		return nil
	}
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.next.each(nil, func(_ int, chance float64) { list = append(list, chance) })
	return list
}

// sawMasks reports whether masks have shown how good their drafts are, not too long ago.
func (e *Experience) sawMasks() bool {
	if e == nil {
		return false
	}
	e.mutex.Lock()
	defer e.mutex.Unlock()
	return e.lessons.promise.seen[0] >= forgotten
}

// chances are what a draft of each class of entropy, and the draft of each mask, are
// expected to be before a text has shown anything; negative: as the one before.
func (e *Experience) chances(trust, promise []float64) {
	if e == nil {
		copy(trust, trustPrior)
		for i := range promise {
			promise[i] = -1
		}
		return
	}
	e.mutex.Lock()
	defer e.mutex.Unlock()
	for i := range trust {
		trust[i] = (e.lessons.trust.yes[i] + trustPrior[i]) / (e.lessons.trust.seen[i] + 1)
	}
	e.lessons.promise.each(nil, func(i int, rate float64) {
		if i < len(promise) {
			promise[i] = rate
		}
	})
}

// account is the ledger of a generation whose dearest step costs so much.
func (e *Experience) account(dearest float64) *ledger {
	if e == nil {
		return newLedger(dearest)
	}
	e.ledger.widen(dearest)
	return e.ledger
}
