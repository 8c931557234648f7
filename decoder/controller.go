package decoder

import (
	"math"
	"sync"
)

// A control decides how many rows a verified step feeds. It is told what came
// of each step; it sees no clock, so equal results lead to equal choices.
// Whatever it chooses, verified's output stays ar's.
type control interface {
	// drafted tells of what the masks of a step have drafted, once that is known.
	drafted(drafts []class)
	// choose returns how many of the drafts at hand to feed, in order, and how many masks
	// behind them, at most most. p is what rows cost in a forward that others
	// share, nil in one of the sequence's own; with a limit, which only matters beside a
	// price, a step has up to so many rows, whatever they cost. It may be called again
	// before the step is made: the last choice is the one.
	choose(drafts []class, most int, p *Price, limit int) (feed, masks int)
	// observe tells of the step just made.
	observe(s observation)
	// chance is how likely a draft stands where those before it do.
	chance(c class) float64
	// prefers reports whether drafts by others than masks are to be fed in place of the
	// masks'.
	prefers(others, masks []class) bool
	// pays reports whether one more draft is worth a forward of a drafter that takes so
	// many seconds: behind so many of its forwards, and drafts, which all stand with a
	// chance.
	pays(sure float64, forwards, drafts int, seconds float64, p *Price) bool
	// likely is the chance that one more draft stands, by what is known before it is
	// proposed, where that is what decides.
	likely(sure float64, forwards int) (chance float64, decides bool)
	// proposed tells of a draft that took a drafter's forward, behind so many others.
	proposed(forwards int, c class, seconds float64)
	// hope is how many drafts of a drafter's, so many at most, are expected to stand.
	hope(most int) float64
}

// observation is what a verified step showed.
type observation struct {
	drafts   []class // of those fed
	accepted int     // the leading run of them that stood
	masks    int     // fed
	tokens   int     // committed
}

// fixedControl feeds every draft and the whole window.
type fixedControl struct{}

func (fixedControl) drafted([]class)              {}
func (fixedControl) observe(observation)          {}
func (fixedControl) chance(c class) float64       { return trustPrior[c] }
func (fixedControl) proposed(int, class, float64) {}

func (fixedControl) hope(most int) (n float64) {
	sure := 1.0
	for range most {
		sure *= prior
		n += sure
	}
	return n
}

// mostBlind is how many drafts of others than masks are fed where nothing is known of
// what rows cost, and leastBlind the chance from which on.
const (
	mostBlind  = 8
	leastBlind = .5
)

func (fixedControl) choose(drafts []class, most int, _ *Price, _ int) (int, int) {
	feed := len(drafts)
	if feed > 0 && !drafts[0].ofMask() {
		feed = min(feed, mostBlind)
	}
	return feed, most
}

func (f fixedControl) prefers(others, masks []class) bool {
	return len(others) > 0 && f.chance(others[0]) >= leastBlind && expected(f, others) >= expected(f, masks)
}

func (fixedControl) pays(sure float64, _, drafts int, _ float64, _ *Price) bool {
	return drafts < mostBlind && sure >= leastBlind
}

func (fixedControl) likely(float64, int) (float64, bool) { return 0, false }

// expected is how many of the drafts are expected to stand.
func expected(c control, drafts []class) (n float64) {
	sure := 1.0
	for _, d := range drafts {
		sure *= c.chance(d)
		n += sure
	}
	return n
}

// Constants of the adaptive window. Costs are in one-row forwards.
const (
	// maxAdaptive bounds the masks that are weighed: solving for 24 takes some
	// 15 µs, and its cube grows with the bound's.
	maxAdaptive = 24
	// Over N tokens all steps together cost at most N·(1+slack) + credit, and what drafts
	// failed to bring that was counted on.
	slack  = 0.02
	credit = 3.0
	// prior is the rate assumed where nothing was seen: bold enough to try
	// what would pay if text were as easy as at its best.
	prior = 0.92
	// memory is what an older observation weighs beside the one after it: the
	// last 8 or so count.
	memory = 0.88
	// halfLife is the number of tokens after which evidence counts half: with
	// it gone, the prior tries again. Phases of text are about that long.
	halfLife = 48
	// surest is the chance that the text goes on as it does after a step whose
	// drafts all stood.
	surest = 0.98
	// boldest is the prior of masks in place of drafts of a head or a lookup, or beside
	// them: these bring something, and so pay for a look.
	boldest = 0.98
	// forgotten is the evidence under which a text may be as easy as any: none yet, or
	// 200 tokens old.
	forgotten = 0.05
	// counted is how much of what drafts are expected to bring may be spent before they
	// are checked. On steep tables nothing would ever be tried without.
	counted = 0.6
	// clearly is by how many tokens drafts of others must promise more than the masks'
	// to be fed in their place: where they fall, the masks behind them are lost.
	clearly = 0.5
)

// ledger keeps the promise that an adaptive window never costs much more than
// one row a token: choices that might break it, were nothing accepted, are not
// allowed. It counts by the cost table.
type ledger struct {
	mutex         sync.Mutex // generations of one Experience share theirs
	balance, most float64
}

// newLedger also bounds what good phases may save up for bad ones, to what two
// of the dearest steps cost.
func newLedger(dearest float64) *ledger {
	return &ledger{balance: credit, most: max(credit, 2*dearest)}
}

// widen makes room for what two steps of such a cost may save up.
func (l *ledger) widen(dearest float64) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.most = max(l.most, 2*dearest)
}

// allows reports whether a step may cost extra more than one row.
func (l *ledger) allows(extra float64) bool { return extra <= l.left() }

// left is what may be spent beyond a row a token.
func (l *ledger) left() float64 {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.balance
}

// begin starts with what was saved before, if that is more than there is.
func (l *ledger) begin(saved float64) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.balance = max(l.balance, saved)
	l.most = max(l.most, l.balance)
}

func (l *ledger) book(tokens int, cost float64) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.balance = min(l.most, l.balance+float64(tokens)*(1+slack)-cost)
}

// rates estimates a chance for each index from faded counts. An index with
// little evidence leans on what is expected of it, or on the one before it, the
// first then on prior.
type rates struct {
	yes, seen []float64
}

func newRates(n int) rates { return rates{make([]float64, n), make([]float64, n)} }

// observe counts an event: 1 where it came true, 0 where not, or its chance.
func (r *rates) observe(i int, x float64) { r.weigh(i, x, memory) }

// weigh counts an event beside older ones that weigh so much of it.
func (r *rates) weigh(i int, x, older float64) {
	r.yes[i] = r.yes[i]*older + x
	r.seen[i] = r.seen[i]*older + 1
}

func (r *rates) fade(tokens int) { r.forget(tokens, halfLife) }

// forget lets evidence count half after so many tokens.
func (r *rates) forget(tokens int, half float64) {
	f := math.Exp2(-float64(tokens) / half)
	for i := range r.seen {
		r.yes[i] *= f
		r.seen[i] *= f
	}
}

// each calls f with every index's rate. expected has what to lean on by index,
// negative or missing: on the one before.
func (r *rates) each(expected []float64, f func(i int, rate float64)) { r.estimate(expected, 0, f) }

// together is each, but by as much as a text differs, in log odds, from what was expected
// of one index it is expected to differ at the next: a text is easier than others, not
// one of its masks.
func (r *rates) together(expected []float64, f func(i int, rate float64)) {
	r.estimate(expected, 1, f)
}

func (r *rates) estimate(expected []float64, share float64, f func(i int, rate float64)) {
	rate, differs := prior, 0.0
	for i := range r.seen {
		lean := rate
		known := i < len(expected) && expected[i] >= 0
		if known {
			lean = expected[i]
		}
		if known && differs != 0 {
			lean = chanceOf(oddsOf(lean) + differs)
		}
		rate = (r.yes[i] + lean) / (r.seen[i] + 1)
		if known && share != 0 {
			differs = share * (oddsOf(rate) - oddsOf(expected[i]))
		}
		f(i, rate)
	}
}

// oddsOf is the logarithm of the odds of a chance, which is kept from 0 and 1; chanceOf
// is the chance of such odds.
func oddsOf(p float64) float64 {
	p = min(max(p, .005), .995)
	return math.Log(p / (1 - p))
}

func chanceOf(odds float64) float64 { return 1 / (1 + math.Exp(-odds)) }
