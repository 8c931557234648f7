package schedule

import (
	"context"
	"math/bits"
	"time"

	"windrow/decoder"
)

// drafters are what is known of drafters that run forwards of their own: heads and smaller
// models (decoder.DraftTogether).
type drafters struct {
	// balance is by how many tokens the passes with their drafts were better than without,
	// and what may be lost by trying: below 0 nobody drafts until that is made up for.
	balance float64
	// late is what their forwards take, in what they are told to, as was seen; seen are the
	// sizes that there were, by powers of two.
	late float64
	seen [64]bool
	// pace is what recent steps brought, and what they took, drafts included: faded.
	pace struct{ tokens, seconds float64 }
	// plain is the rate of all that run, were all to step, without drafts: tokens a second.
	plain float64
}

const (
	// learning is how much of what one forward shows counts, which is at most steadily
	// times what is known; forgetting is how much of that fades in a pass.
	learning, steadily, forgetting = .15, 2, .001
	// mostRows is how many rows a sequence has in a forward that drafts.
	mostRows = 8
)

// passed notes a pass: its tokens, by how many they were more than those of one row for
// everyone, and the seconds of its steps and of drafting before them.
func (x *drafters) passed(tokens int, gain, stepping, drafting float64) {
	x.pace.tokens, x.pace.seconds = x.pace.tokens*fading+float64(tokens), x.pace.seconds*fading+stepping+drafting
	x.balance += slack / 2 * float64(tokens)
	if drafting > 0 {
		x.balance += gain - x.plain*drafting
	}
	x.balance = min(maySave, x.balance)
}

// drafting implements decoder.Drafting for a pass.
type drafting struct {
	*drafters
	cost *decoder.CostModel // nil: not known
	most int                // rows of a forward
	base int                // rows of the pass without drafts
	rate float64            // tokens a second that time is worth
	now  func() time.Time
	// since is when the last forward ended, and took what all of them typically take.
	since time.Time
	took  float64
}

// drafting is what drafters' forwards take and cost before a pass of so many rows besides
// drafts, and the price of rows for who drafts; nil: the pass is one sequence's own, or
// nothing is known yet.
func (s *Scheduler) drafting(rows int) (*drafting, *decoder.Price) {
	x, running := &s.shares, len(s.running)
	d := &drafting{drafters: &x.drafters, cost: x.cost, most: s.o.Chunk, base: rows, now: s.now, since: s.now()}
	if running == 1 || x.cost == nil || x.last == nil {
		return d, nil
	}
	// Whose prompts wait would step, too.
	d.plain = max(x.rate, float64(running)/x.time(float64(running)))
	d.rate = d.plain
	if d.pace.seconds > 0 {
		d.rate = max(d.rate, d.pace.tokens/d.pace.seconds)
	}
	return d, x.last
}

// Rows implements decoder.Drafting.
func (d *drafting) Rows() int { return d.most }

// Seconds implements decoder.Drafting. Rows of drafters are taken to cost as the model's do.
func (d *drafting) Seconds(rows int, alone float64) float64 {
	if d.cost == nil {
		return alone
	}
	return d.late * alone * d.cost.Ratio(rows)
}

// Ran implements decoder.Drafting: what it took says what the next ones take.
func (d *drafting) Ran(sequences, rows int, alone float64, prepared bool) {
	now := d.now()
	took := now.Sub(d.since).Seconds()
	d.since = now
	if alone <= 0 || d.cost == nil {
		return
	}
	// What is made at the first forward of a size says nothing of the others, and reading a
	// prompt little of drafting.
	if size := bits.Len(uint(rows)); prepared || !d.seen[size] || rows > mostRows*sequences {
		d.seen[size] = true
		d.took += d.Seconds(rows, alone)
		return
	}
	d.took += took
	x := took / (alone * d.cost.Ratio(rows))
	d.late += (min(max(x, d.late/steadily), d.late*steadily) - d.late) * learning
}

// Learned implements decoder.Drafting.
func (d *drafting) Learned() { d.since = d.now() }

// Tokens implements decoder.Drafting: what all make in that time.
func (d *drafting) Tokens(seconds float64, drafts, more int) float64 {
	checked := d.base + drafts
	return d.rate * (seconds + d.cost.Seconds(checked+more) - d.cost.Seconds(checked))
}

// draft has drafters that run forwards of their own propose for the next steps. Who lacks
// the memory for one, or whose request has ended, goes on without. It returns the seconds
// that such forwards typically take.
func (s *Scheduler) draft(ctx context.Context, list []chosen) float64 {
	var sequences []*decoder.Sequence
	var each []context.Context
	// What time is worth to all is known from the first pass on.
	weighed := len(s.running) == 1 || s.shares.last != nil && s.shares.drafters.balance >= 0
	rows := 0
	for _, c := range list {
		if c.job.sequence.Prefilling() {
			rows += c.rows
		} else {
			rows++
		}
		if c.job.sequence.Drafts() && (weighed || !c.job.sequence.Elastic()) {
			sequences, each = append(sequences, c.job.sequence), append(each, c.job.ctx)
		}
	}
	if len(sequences) == 0 {
		return 0
	}
	costs, price := s.drafting(rows)
	for _, q := range sequences {
		if q.Elastic() {
			q.Share(price)
		}
	}
	decoder.DraftTogether(ctx, sequences, each, costs)
	return costs.took
}
