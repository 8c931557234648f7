package decoder

import (
	"context"
	"errors"
	"fmt"
	"math"

	"windrow/model"
)

// HeadDrafts are what a model's own head for drafts (multi-token prediction) drafts with.
type HeadDrafts struct {
	// Engine runs the forwards of the head, over the caches of the sequences.
	Engine HeadEngine
	// Width is that of a hidden state, and Seconds what a forward of one row takes.
	Width   int
	Seconds float64
	// Chain is what generations of the model learn of drafts behind the first one; nil:
	// the head is fed with its own output.
	Chain *Chain
	// PrefillRows is how many rows of a prompt go together (default 512).
	PrefillRows int
}

// HeadEngine runs forwards of a head for drafts: a *model.Model with one, or a script.
type HeadEngine interface {
	Draft(ctx context.Context, b *model.DraftBatch) ([]model.Result, error)
}

// headRows is how many hidden states of positions that the head has not seen are kept at
// most, where nobody has it run; those of a prompt's last chunk are kept whole until it
// could have. Positions without theirs are fed as zeros.
const headRows = 1024

// fedRows is how many states the head is fed at once: a GPU gets them by way of page-locked
// memory.
const fedRows = 2048

// headDrafter drafts with the model's own head. What that keeps of the text lies in the
// sequence's cache, whose permanent tokens it follows: it is fed each position's hidden
// state with the token behind it, from where it was fed last, by the next proposal.
type headDrafter struct {
	HeadDrafts
	cache *model.Cache // the sequence's
	text  []int32      // prompt and what is certain behind it
	// states are the hidden ones of positions from on.
	from   int
	states [][]float32
	// output is what the head gave for position at; nil: nothing.
	output []float32
	at     int
	// Of the last proposal: its drafts behind the text of so many tokens, how the chain
	// was fed, and whether there was one.
	drafted []int32
	behind  int
	mapped  bool
}

func newHeadDrafter(h HeadDrafts, prompt []int32) *headDrafter {
	if h.PrefillRows == 0 {
		h.PrefillRows = defaultPrefillRows
	}
	return &headDrafter{HeadDrafts: h, text: prompt[:len(prompt):len(prompt)]}
}

// Kind implements Drafter.
func (d *headDrafter) Kind() DrafterKind { return HeadDrafter }

// Seconds implements Drafter.
func (d *headDrafter) Seconds() float64 { return d.HeadDrafts.Seconds }

// Close implements Drafter: the cache is the sequence's.
func (d *headDrafter) Close() {}

// Follow implements Drafter. It has the prompt since it was made.
func (d *headDrafter) Follow(tokens []int32, rows []model.Result) {
	if rows == nil {
		return
	}
	for i, token := range tokens {
		d.state(len(d.text)-1, rows[i].Hidden)
		d.text = append(d.text, token)
	}
	// The second draft was looked at where the first one stood.
	if n := len(d.text) - d.behind; len(d.drafted) > 1 && n >= 2 && d.text[d.behind] == d.drafted[0] {
		d.Chain.observe(d.mapped, d.text[d.behind+1] == d.drafted[1])
	}
	d.drafted = nil
}

// state takes the hidden state of a position: the next one, or, where tokens are run
// again, one that was there.
func (d *headDrafter) state(position int, hidden []float32) {
	if n := position - d.from; n >= 0 && n <= len(d.states) {
		d.states = d.states[:n]
	} else {
		d.from, d.states = position, d.states[:0]
	}
	d.states = append(d.states, hidden)
	d.keep(max(headRows, d.PrefillRows))
}

// keep drops all states but the newest.
func (d *headDrafter) keep(newest int) {
	if n := len(d.states) - newest; n > 0 {
		d.from, d.states = d.from+n, append(d.states[:0], d.states[n:]...)
	}
}

// prompted takes the results of a prompt's rows from a position on.
func (d *headDrafter) prompted(position int, rows []model.Result) {
	for i, r := range rows {
		d.state(position+i, r.Hidden)
	}
}

// feed runs positions up to to, which have a token behind them, that the head has not
// been fed with, and returns what the last row says, as want has it; the last one is run
// again where it was.
func (d *headDrafter) feed(ctx context.Context, t *turn, to int, want *model.Wanted) (row model.Result, rows int, err error) {
	from := d.cache.Drafted()
	if want != nil {
		from = min(from, to-1)
	}
	for from < to {
		n := d.fed(from, to)
		learning := d.Chain.learning(d.Width)
		f := &headForward{engine: d.Engine, row: d.HeadDrafts.Seconds, n: n, make: func() *model.DraftBatch { return d.pairs(from, n, learning, to, want) }}
		results, err := t.forward(ctx, f)
		if err == nil && len(results) != f.wanted() {
			err = fmt.Errorf("the head for drafts gave %d results, want %d", len(results), f.wanted())
		}
		if err == nil {
			err = d.cache.KeepDrafts(max(d.cache.Drafted(), from+n))
		}
		if err != nil {
			return row, rows, err
		}
		for i, r := range results {
			if err := sound(r, f.batch.Want[i]); err != nil {
				return row, rows, err
			}
			at := from + int(f.batch.Want[i].Row)
			if state := d.stateOf(at); learning && state != nil && d.output != nil && d.at == at-1 {
				d.Chain.learn(d.output, state)
			}
			d.output, d.at, row = r.Hidden, at, r
			if d.stateOf(at) == nil {
				d.output = nil // of zeros
			}
		}
		if learning && t != nil {
			t.costs.Learned()
		}
		rows += n
		from += n
	}
	// The last state is kept: its row is run again where a proposal is begun anew.
	if n := to - 1 - d.from; n > 0 && n < len(d.states) {
		d.from, d.states = d.from+n, append(d.states[:0], d.states[n:]...)
	}
	return row, rows, nil
}

// unread is how many positions the first forward of a proposal feeds.
func (d *headDrafter) unread() int {
	base := len(d.text) - 1
	return d.fed(min(d.cache.Drafted(), base-1), base)
}

// fed is how many of the positions from one on to another are fed at once.
func (d *headDrafter) fed(from, to int) int {
	return min(to-from, d.PrefillRows, fedRows, d.cache.MaxRows())
}

// pairs are n positions from one on with the tokens behind them; of the one before to the
// row is wanted as want says, where that is not nil, of others the head's output, to learn.
func (d *headDrafter) pairs(from, n int, learning bool, to int, want *model.Wanted) *model.DraftBatch {
	b := &model.DraftBatch{
		Tokens: d.text[from+1 : from+1+n], Hidden: make([]float32, n*d.Width), Spans: []model.DraftSpan{{Cache: d.cache, At: from, Rows: n}},
	}
	for i := range n {
		copy(b.Hidden[i*d.Width:(i+1)*d.Width], d.stateOf(from+i))
		w := model.Wanted{Row: int32(i), Hidden: true, Bare: true}
		if last := want != nil && from+i == to-1; last {
			w = *want
			w.Row, w.Hidden = int32(i), true
		} else if !learning {
			continue
		}
		b.Want = append(b.Want, w)
	}
	return b
}

// stateOf is the hidden state of a position; nil: it is not known.
func (d *headDrafter) stateOf(position int) []float32 {
	if i := position - d.from; i >= 0 && i < len(d.states) {
		return d.states[i]
	}
	return nil
}

// readPrompt implements promptDrafter: it feeds what there is of a prompt, where that is
// much.
func (d *headDrafter) readPrompt(ctx context.Context, t *turn, _ []int32) error {
	to := min(d.cache.Base(), len(d.text)-1)
	if to-d.cache.Drafted() < min(d.PrefillRows, headRows)/2 || d.stateOf(to-1) == nil {
		return nil
	}
	_, _, err := d.feed(ctx, t, to, nil)
	return err
}

// Propose implements Drafter.
func (d *headDrafter) Propose(ctx context.Context, p *Proposal) (err error) {
	base := len(d.text) - 1
	// A text that goes on in a cache without the last state is drafted for from the next
	// step on.
	if base != d.cache.Base() || d.stateOf(base-1) == nil || !p.Pays() {
		d.keep(headRows)
		return nil
	}
	d.behind, d.drafted, d.mapped = len(d.text), nil, d.Chain.choose(d.Width)
	defer func() {
		if err == nil || errors.Is(err, errEnough) {
			d.drafted = p.Ahead()
		}
	}()
	want := p.Wants()
	var row model.Result
	var rows int
	row, rows, err = d.feed(ctx, p.turn, base, &want)
	for at := base; err == nil; {
		feed := p.Ahead()[at-base:] // forced ones, and the newest draft
		for _, token := range feed {
			want := p.Wants()
			if row, err = d.next(ctx, p.turn, at, token, row.Hidden, want); err != nil {
				return err
			}
			rows, at = rows+1, at+1
		}
		var more bool
		if more, err = p.Draw(row, rows); err != nil || !more || !p.Pays() {
			break
		}
		rows = 0
	}
	return err
}

// next feeds a token that is proposed at a position's end, behind what the head gave for
// the one before.
func (d *headDrafter) next(ctx context.Context, t *turn, at int, token int32, output []float32, want model.Wanted) (model.Result, error) {
	if d.mapped {
		output = d.Chain.mapped(output)
	}
	want.Row, want.Hidden = 0, true
	b := &model.DraftBatch{
		Tokens: []int32{token}, Hidden: output, Spans: []model.DraftSpan{{Cache: d.cache, At: at, Rows: 1}}, Want: []model.Wanted{want},
	}
	results, err := t.forward(ctx, &headForward{engine: d.Engine, row: d.HeadDrafts.Seconds, n: 1, batch: b})
	if err == nil && len(results) != 1 {
		err = fmt.Errorf("the head for drafts gave %d results of a row", len(results))
	}
	if err == nil {
		err = sound(results[0], want)
	}
	if err != nil {
		return model.Result{}, err
	}
	return results[0], nil
}

// sound refuses a row of the head that says nothing, as of weights that are not numbers.
func sound(r model.Result, w model.Wanted) error {
	if !w.Bare && (math.IsNaN(float64(r.Entropy)) || r.Argmax < 0) {
		return &model.NotFiniteError{Row: int(w.Row)}
	}
	return nil
}
