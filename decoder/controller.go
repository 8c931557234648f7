package decoder

import "math"

// A control decides how many rows a verified step feeds. It is told what came
// of each step; it sees no clock, so equal results lead to equal choices.
// Whatever it chooses, verified's output stays ar's.
type control interface {
	// choose returns how many of the drafts at hand to feed, in order, and how
	// many masks behind them, at most most. Drafts are given by the entropies
	// that they were drawn at.
	choose(drafts []float32, most int) (feed, masks int)
	// observe tells of the step just made.
	observe(s observation)
}

// observation is what a verified step showed.
type observation struct {
	drafts   []float32 // entropies of those fed
	accepted int       // the leading run of them that stood
	masks    int       // fed
	tokens   int       // committed
}

// fixedControl feeds every draft and the whole window.
type fixedControl struct{}

func (fixedControl) choose(drafts []float32, most int) (int, int) { return len(drafts), most }
func (fixedControl) observe(observation)                          {}

// Constants of the adaptive window. Costs are in one-row forwards.
const (
	// maxAdaptive bounds the masks that are weighed: solving for 24 takes some
	// 15 µs, and its cube grows with the bound's.
	maxAdaptive = 24
	// Over N tokens all steps together cost at most N·(1+slack) + credit.
	slack  = 0.02
	credit = 2.0
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
)

// ledger keeps the promise that an adaptive window never costs much more than
// one row a token: choices that might break it, were nothing accepted, are not
// allowed. It counts by the cost table.
type ledger struct {
	balance, most float64
}

// newLedger also bounds what good phases may save up for bad ones, to what two
// of the dearest steps cost.
func newLedger(dearest float64) ledger {
	return ledger{balance: credit, most: max(credit, 2*dearest)}
}

// allows reports whether a step may cost extra more than one row.
func (l *ledger) allows(extra float64) bool { return extra <= l.balance }

func (l *ledger) book(tokens int, cost float64) {
	l.balance = min(l.most, l.balance+float64(tokens)*(1+slack)-cost)
}

// rates estimates a chance for each index from faded counts. An index with
// little evidence leans on the one before it, the first on prior.
type rates struct {
	yes, seen []float64
}

func newRates(n int) rates { return rates{make([]float64, n), make([]float64, n)} }

// observe counts an event: 1 where it came true, 0 where not, or its chance.
func (r *rates) observe(i int, x float64) {
	r.yes[i] = r.yes[i]*memory + x
	r.seen[i] = r.seen[i]*memory + 1
}

func (r *rates) fade(tokens int) {
	f := math.Exp2(-float64(tokens) / halfLife)
	for i := range r.seen {
		r.yes[i] *= f
		r.seen[i] *= f
	}
}

// each calls f with every index's rate.
func (r *rates) each(f func(i int, rate float64)) {
	rate := prior
	for i := range r.seen {
		rate = (r.yes[i] + rate) / (r.seen[i] + 1)
		f(i, rate)
	}
}
