package schedule

import (
	"windrow/decoder"
	"windrow/model"
)

// shares say what rows cost in forwards that sequences share, so that the rows of all
// windows are chosen together: for the most tokens a second of all.
//
// A row has one price, in tokens, for everybody; each sequence feeds the rows that its
// own text makes worth it (decoder.Price). What sequences do at some price is known on
// average from the texts before (decoder.Experience), what a forward of so many rows
// takes from c(rows): so the price is the one at which all of them are expected to make
// the most.
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
	pass    shared
}

// shared is what the forward being planned has.
type shared struct {
	prompts int // rows of prompts
	steps   int // sequences that step
	fixed   int // rows of those that do not choose them
	elastic int // sequences that do
	rows    int // of all steps, as planned
	price   *decoder.Price
}

const (
	// sharedMasks is how many masks are weighed for a step in a shared forward.
	sharedMasks = 16
	// offersAge is after how many forwards offers are made anew.
	offersAge = 64
	// slack is what drafts may cost of the tokens in a model without masks, where there is
	// nothing to make up by: so they are tried again.
	slack = 0.02
	// mayLose is how many tokens windows may cost before they prove to be worth it, and
	// maySave how many they may have saved up for that.
	mayLose, maySave = 16, 256
)

// begin starts the planning of a forward.
func (x *shares) begin() { x.pass = shared{} }

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
func (x *shares) elastic(o *decoder.Options) {
	x.pass.elastic++
	x.pass.steps++
	if x.cost != o.Cost || x.experience != o.Experience && o.Experience != nil || x.experience == nil {
		x.cost, x.experience = o.Cost, o.Experience
		if x.experience == nil {
			x.experience = decoder.NewExperience()
		}
		x.offers, x.balance, x.extra = nil, mayLose, 0
		if x.masks = sharedMasks; o.Vocabulary.MaskID < 0 {
			x.masks = 0
		}
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
	}
	// A prompt that rides along is there anyway: what steps may take beside it is what
	// brings as much as a forward without it.
	best, rate := x.best(0, 0) // tokens a second, without prompts
	if p.prompts > 0 {
		best, _ = x.best(p.prompts, rate)
	}
	price := x.offers[best].Price
	price.Forward = rate * x.cost.Seconds(1)
	if x.balance < 0 {
		price.Masks = 0
		if x.masks == 0 { // nothing is worth a row until it is made up for
			price = x.offers[len(x.offers)-1].Price
		}
	}
	p.price = &price
}

// best is the offer that brings the most tokens a second or, beside rows of prompts,
// the most beyond what the time is worth at such a rate; and the rate.
func (x *shares) best(prompts int, worth float64) (best int, rate float64) {
	p := &x.pass
	most := 0.0
	for i, o := range x.offers {
		tokens := float64(p.steps-p.elastic) + float64(p.elastic)*o.Tokens
		time := x.time(float64(prompts+p.fixed) + float64(p.elastic)*o.Rows)
		gain := tokens / time
		if worth > 0 {
			gain = tokens - worth*time
		}
		if i == 0 || gain > most {
			most, best, rate = gain, i, tokens/time
		}
	}
	return best, rate
}

// time is that of a forward of so many rows on average.
func (x *shares) time(rows float64) float64 {
	whole := int(rows)
	t := x.cost.Seconds(whole)
	t += (x.cost.Seconds(whole+1) - t) * (rows - float64(whole))
	return t + max(x.extra, -t/2)
}

// plan has an elastic sequence plan its step.
func (x *shares) plan(j *job, b *model.Batch) {
	j.sequence.Share(x.pass.price)
	before := len(b.Tokens)
	j.sequence.Plan(b, 0)
	x.pass.rows += len(b.Tokens) - before
}

// took notes what the planned forward came to.
func (x *shares) took(tokens int, seconds float64) {
	p := &x.pass
	if p.price == nil || p.prompts > 0 {
		return
	}
	x.extra += (seconds - x.cost.Seconds(p.rows) - x.extra) * (1 - fading)
	single := float64(p.steps) * x.time(float64(p.rows)) / x.time(float64(p.fixed+p.elastic))
	gain := float64(tokens) - single
	if x.masks == 0 {
		gain += slack * float64(tokens)
	}
	x.balance = min(maySave, x.balance+gain)
}
