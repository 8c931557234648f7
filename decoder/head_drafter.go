package decoder

import (
	"context"
	"fmt"

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
// most, where nobody has it run. Positions without theirs are fed as zeros.
const headRows = 1024

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
	if n := len(d.states) - headRows; n > 0 {
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
func (d *headDrafter) feed(ctx context.Context, to int, want *model.Wanted) (row model.Result, rows int, err error) {
	from := d.cache.Drafted()
	if want != nil {
		from = min(from, to-1)
	}
	for from < to {
		n := min(to-from, d.PrefillRows, d.cache.MaxRows())
		b := &model.DraftBatch{
			Tokens: d.text[from+1 : from+1+n], Hidden: make([]float32, n*d.Width), Spans: []model.DraftSpan{{Cache: d.cache, At: from, Rows: n}},
		}
		learning := d.Chain.learning(d.Width)
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
		results, err := d.Engine.Draft(ctx, b)
		if err == nil && len(results) != len(b.Want) {
			err = fmt.Errorf("the head for drafts gave %d results, want %d", len(results), len(b.Want))
		}
		if err == nil {
			err = d.cache.KeepDrafts(max(d.cache.Drafted(), from+n))
		}
		if err != nil {
			return row, rows, err
		}
		for i, r := range results {
			at := from + int(b.Want[i].Row)
			if state := d.stateOf(at); learning && state != nil && d.output != nil && d.at == at-1 {
				d.Chain.learn(d.output, state)
			}
			d.output, d.at, row = r.Hidden, at, r
			if d.stateOf(at) == nil {
				d.output = nil // of zeros
			}
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

// stateOf is the hidden state of a position; nil: it is not known.
func (d *headDrafter) stateOf(position int) []float32 {
	if i := position - d.from; i >= 0 && i < len(d.states) {
		return d.states[i]
	}
	return nil
}

// follow feeds what there is of a prompt that is being computed, where that is much.
func (d *headDrafter) follow(ctx context.Context) error {
	to := min(d.cache.Base(), len(d.text)-1)
	if to-d.cache.Drafted() < min(d.PrefillRows, headRows)/2 || d.stateOf(to-1) == nil {
		return nil
	}
	_, _, err := d.feed(ctx, to, nil)
	return err
}

// Propose implements Drafter.
func (d *headDrafter) Propose(ctx context.Context, p *Proposal) error {
	base := len(d.text) - 1
	// A text that goes on in a cache without the last state is drafted for from the next
	// step on.
	if base != d.cache.Base() || d.stateOf(base-1) == nil || !p.Pays() {
		return nil
	}
	d.behind, d.drafted, d.mapped = len(d.text), nil, d.Chain.choose(d.Width)
	want := p.Wants()
	row, rows, err := d.feed(ctx, base, &want)
	for at := base; err == nil; {
		feed := p.Ahead()[at-base:] // forced ones, and the newest draft
		for _, token := range feed {
			want := p.Wants()
			if row, err = d.next(ctx, at, token, row.Hidden, want); err != nil {
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
	d.drafted = p.Ahead()
	return err
}

// next feeds a token that is proposed at a position's end, behind what the head gave for
// the one before.
func (d *headDrafter) next(ctx context.Context, at int, token int32, output []float32, want model.Wanted) (model.Result, error) {
	if d.mapped {
		output = d.Chain.mapped(output)
	}
	want.Row, want.Hidden = 0, true
	results, err := d.Engine.Draft(ctx, &model.DraftBatch{
		Tokens: []int32{token}, Hidden: output, Spans: []model.DraftSpan{{Cache: d.cache, At: at, Rows: 1}}, Want: []model.Wanted{want},
	})
	if err == nil && len(results) != 1 {
		err = fmt.Errorf("the head for drafts gave %d results of a row", len(results))
	}
	if err != nil {
		return model.Result{}, err
	}
	return results[0], nil
}
