package schedule

import "windrow/decoder"

// shares say what rows cost in forwards that sequences share, so that the rows of all
// windows are chosen together: for the most tokens a second of all.
//
// A row has one price, in tokens, for everybody; each sequence feeds the rows that its
// own text makes worth it (decoder.Price). What sequences do at some price is known on
// average from the texts before (decoder.Experience), what a forward of so many rows
// takes from c(rows): so the price is the one at which all of them are expected to make
// the most. By it each says what more rows are worth to it in the forward at hand, and so
// many are dealt out as pay for the time that they take there (division).
type shares struct {
	cost       *decoder.CostModel // c(rows); nil: not known
	experience *decoder.Experience
	offers     []decoder.Offer // by price
	masks      int             // that are weighed for a step; 0: the model has none
	age        int             // forwards since the offers were made
	// extra is the time of a forward beyond c(rows), faded: long contexts, and the host.
	extra float64
	// balance is by how many tokens the recent forwards were better than with one row
	// for everyone, and what may be lost by trying.
	balance float64
	// gains are what each offer would have brought in the recent forwards, faded, in
	// tokens beyond what their time was worth.
	gains []float64
	// last is the last price, and rate what was expected of the best, in tokens a second;
	// worth is that of those who wait, too.
	last        *decoder.Price
	rate, worth float64
	// division deals out the rows of a forward, by where rows get dearer.
	division division
	edges    []int
	// drafters are those that run forwards of their own.
	drafters drafters
	pass     shared
}

// shared is what the forward being planned has.
type shared struct {
	prompts int // rows of prompts
	steps   int // sequences that step
	fixed   int // rows of those that do not choose them
	elastic int // sequences that do
	rows    int // of all steps, as planned
	drafts  int // sequences whose drafters run forwards, which they share
	waiting int // sequences that will step when their prompts are read
	price   *decoder.Price
}

const (
	// sharedMasks is how many masks are weighed for a step in a shared forward.
	sharedMasks = 16
	// offersAge is after how many forwards offers are made anew.
	offersAge = 64
	// lasting is what a forward weighs beside the one after it when a price is chosen.
	lasting = 0.85
	// leastGain is by how many tokens dearer rows must be better: what is left of what was
	// once, where nothing makes a difference any more, is less.
	leastGain = 0.01
	// slack is what drafts may cost of the tokens where there is nothing to make up by: in a
	// model without masks, and while masks are not fed. So they are tried again.
	slack = 0.02
	// mayLose is how many tokens windows may cost before they prove to be worth it, and
	// maySave how many they may have saved up for that.
	mayLose, maySave = 32, 256
)

// begin starts the planning of a forward, while so many sequences read their prompts.
func (x *shares) begin(reading int) {
	x.pass = shared{waiting: reading}
	x.division.begin()
}

// fixed counts a span whose rows nobody chooses here.
func (x *shares) fixed(rows int, prompt bool) {
	if prompt {
		x.pass.prompts += rows
		return
	}
	x.pass.fixed += rows
	x.pass.rows += rows
	x.pass.steps++
}

// elastic counts a sequence that chooses its rows.
func (x *shares) elastic(o *decoder.Options, q *decoder.Sequence) {
	x.pass.elastic++
	x.pass.steps++
	if x.cost != o.Cost || x.experience != o.Experience && o.Experience != nil || x.experience == nil {
		x.cost, x.experience = o.Cost, o.Experience
		if x.experience == nil {
			x.experience = decoder.NewExperience()
		}
		x.edges = edges(x.cost)
		x.offers, x.gains, x.balance, x.extra = nil, nil, mayLose, 0
		x.last, x.masks, x.drafters = nil, 0, drafters{balance: mayLose, late: 1}
	}
	if x.masks == 0 && o.Vocabulary.MaskID >= 0 && !q.HasDrafter() { // who has one has no masks
		x.masks, x.offers = sharedMasks, nil
	}
}

// drafts counts a sequence that steps, where it has a drafter with forwards of its own.
func (x *shares) drafts(q *decoder.Sequence) {
	if q.HasDrafter() && !q.Prefilling() {
		x.pass.drafts++
	}
}

// settle finds the price of a row, when all are counted.
func (x *shares) settle() {
	p := &x.pass
	if p.elastic == 0 || p.steps == 1 && p.prompts == 0 {
		return // a forward of its own
	}
	if x.age++; x.offers == nil || x.age > offersAge {
		x.offers, x.age = x.experience.Offers(x.masks), 0
		if len(x.gains) != len(x.offers) {
			x.gains = make([]float64, len(x.offers))
		}
	}
	best := x.best()
	price := x.offers[best].Price
	if x.balance < 0 {
		price.Masks = 0
		if x.masks == 0 { // nothing is worth a row until it is made up for
			price.Row = x.offers[len(x.offers)-1].Row
		}
	}
	p.price, x.last = &price, &price
}

// best is the offer that would have brought the most in this forward and the recent ones.
// What a forward has beside its steps changes from one to the next, but masks pay in the
// forward after: a price that follows each one gains less than one that stays. It sets the
// tokens a second that the best offer for this forward alone brings, without rows of
// prompts.
//
// A prompt that rides along is there anyway, and each forward brings those who wait nearer
// to their steps: its time is worth what all of them would make.
func (x *shares) best() (best int) {
	p := &x.pass
	x.rate, x.worth = x.most(p.elastic), x.most(p.elastic+p.waiting)
	recent := lasting
	if x.masks == 0 { // drafts are there before the price is made
		recent = 0
	}
	for i, o := range x.offers {
		tokens, time := x.brings(o, p.elastic, p.prompts)
		x.gains[i] = x.gains[i]*recent + tokens - x.worth*time
		if x.gains[i] > x.gains[best]+leastGain { // of equals the one that tries the most
			best = i
		}
	}
	return best
}

// most is the most tokens a second of a forward without prompts in which so many choose
// their rows.
func (x *shares) most(elastic int) (rate float64) {
	for _, o := range x.offers {
		tokens, time := x.brings(o, elastic, 0)
		rate = max(rate, tokens/time)
	}
	return rate
}

// brings is what a forward brings and takes in which so many choose their rows, all by
// one offer, beside so many rows of prompts.
func (x *shares) brings(o decoder.Offer, elastic, prompts int) (tokens, time float64) {
	p := &x.pass
	tokens = float64(p.steps-p.elastic) + float64(elastic)*o.Tokens
	return tokens, x.time(float64(prompts+p.fixed) + float64(elastic)*o.Rows)
}

// time is that of a forward of so many rows on average.
func (x *shares) time(rows float64) float64 {
	whole := int(rows)
	t := x.cost.Seconds(whole)
	t += (x.cost.Seconds(whole+1) - t) * (rows - float64(whole))
	return x.withExtra(t)
}

// seconds is that of a forward of so many rows.
func (x *shares) seconds(rows int) float64 { return x.withExtra(x.cost.Seconds(rows)) }

// withExtra adds to what c(rows) says what forwards take beyond it, or less: half at least.
func (x *shares) withExtra(t float64) float64 { return t + max(x.extra, -t/2) }

// took notes what the planned forward came to: what it took itself, which is not typical
// where something was prepared for it, and drafting before that.
func (x *shares) took(tokens int, seconds, drafting float64, prepared bool) {
	p := &x.pass
	if p.drafts > 0 { // what is not tried, as it looked slow, is tried again
		x.drafters.late += (1 - x.drafters.late) * forgetting
	}
	if p.price == nil {
		return
	}
	stepping := x.time(float64(p.rows)) // without rows of prompts
	if p.prompts == 0 && !prepared {
		x.extra += (seconds - x.cost.Seconds(p.rows) - x.extra) * (1 - fading)
		stepping = seconds
	}
	single := float64(p.steps) * x.time(float64(p.rows)) / x.time(float64(p.fixed+p.elastic))
	gain := float64(tokens) - single
	if p.drafts > 0 {
		x.drafters.passed(tokens, gain, stepping, drafting)
	}
	if p.prompts > 0 || drafting > 0 {
		return
	}
	if x.masks == 0 || x.balance < 0 { // where no masks are fed nothing would ever change
		gain += slack * float64(tokens)
	}
	x.balance = min(maySave, x.balance+gain)
}
