package decoder

import (
	"context"
	"fmt"

	"windrow/model"
)

// ModelDrafts are what a smaller model drafts with.
type ModelDrafts struct {
	// Engine runs its forwards. Cache is empty and the sequence's own; its capacity bounds
	// the text that is drafted for.
	Engine Engine
	Cache  *model.Cache
	// Seconds is what a forward of one row takes, and PrefillRows how many rows of a
	// prompt go together (default 512).
	Seconds     float64
	PrefillRows int
	// Free frees the cache.
	Free func(*model.Cache)
}

// NewModelDrafter drafts what a smaller model of the same vocabulary says.
func NewModelDrafter(m ModelDrafts) Drafter {
	if m.PrefillRows == 0 {
		m.PrefillRows = defaultPrefillRows
	}
	return &modelDrafter{ModelDrafts: m}
}

type modelDrafter struct {
	ModelDrafts
	text []int32 // what is certain
	held []int32 // what the cache holds: the beginning of text, and drafts
}

func (d *modelDrafter) Kind() DrafterKind { return ModelDrafter }
func (d *modelDrafter) Seconds() float64  { return d.ModelDrafts.Seconds }

func (d *modelDrafter) Follow(tokens []int32, _ []model.Result) { d.text = append(d.text, tokens...) }

func (d *modelDrafter) Close() {
	if d.Cache != nil && d.Free != nil {
		d.Free(d.Cache)
	}
	d.Cache = nil
}

// Propose feeds what the cache lacks of the text, then draft by draft. Drafts are kept in
// the cache as if they were certain: what of them fell is cut off the next time.
func (d *modelDrafter) Propose(ctx context.Context, p *Proposal) error {
	if !p.Pays() || len(d.text)+len(p.Ahead()) > d.Cache.Capacity() {
		return nil
	}
	// The newest token is fed again, where it was a draft: its row is what comes next.
	keep := min(CommonPrefix(d.held, d.text), len(d.text)-1)
	reached, err := d.Cache.Truncate(keep)
	if err != nil {
		return err
	}
	d.held = d.held[:reached]
	// A text that it has not read is read a chunk a step, so that nobody waits for it.
	if n := d.chunk(); len(d.text)-reached > n {
		if p.turn != nil {
			p.turn.unweighed = true
		}
		_, err := d.feed(ctx, p.turn, d.text[reached:reached+n], nil)
		return err
	}
	for feed := append(d.text[reached:len(d.text):len(d.text)], p.Ahead()...); ; {
		want := p.Wants()
		row, err := d.feed(ctx, p.turn, feed, &want)
		if err != nil {
			return err
		}
		// A prompt's rows are what any model takes once, not a draft's price.
		before := len(p.Ahead())
		more, err := p.Draw(row, len(feed))
		feed = p.Ahead()[before:]
		if err != nil || !more || !p.Pays() || len(d.held)+len(feed) > d.Cache.Capacity() {
			return err
		}
	}
}

// unread is how many tokens it has not been fed with, the newest among them.
func (d *modelDrafter) unread() int { return min(max(1, len(d.text)-len(d.held)), d.chunk()) }

// chunk is how many rows are fed at once.
func (d *modelDrafter) chunk() int { return min(d.PrefillRows, d.Cache.MaxRows()) }

// readPrompt implements promptDrafter: a chunk, or more where the smaller model has fewer
// rows than the one whose prompt it is.
func (d *modelDrafter) readPrompt(ctx context.Context, t *turn, done []int32) error {
	if len(d.text) > 0 || len(done) > d.Cache.Capacity() {
		return nil // what is run again was read
	}
	n := min(len(done)-len(d.held), max(d.chunk(), defaultPrefillRows))
	if n <= 0 {
		return nil
	}
	_, err := d.feed(ctx, t, done[len(d.held):len(d.held)+n], nil)
	return err
}

// feed runs tokens, and returns what the last row says, where that is wanted.
func (d *modelDrafter) feed(ctx context.Context, t *turn, tokens []int32, want *model.Wanted) (model.Result, error) {
	for {
		n := min(len(tokens), d.chunk())
		b := &model.Batch{Tokens: tokens[:n], Spans: []model.Span{{Cache: d.Cache, Rows: n}}}
		for i := range n {
			b.Positions = append(b.Positions, int32(len(d.held)+i))
		}
		if n == len(tokens) && want != nil {
			w := *want
			w.Row = int32(n - 1)
			b.Want = []model.Wanted{w}
		}
		results, err := t.forward(ctx, &modelForward{d.Engine, d.ModelDrafts.Seconds, b})
		if err == nil {
			err = d.Cache.Commit(n)
		}
		if err != nil {
			return model.Result{}, err
		}
		d.held = append(d.held, tokens[:n]...)
		if tokens = tokens[n:]; len(tokens) > 0 {
			continue
		}
		if want == nil {
			return model.Result{}, nil
		}
		if len(results) != 1 || results[0].Argmax < 0 {
			return model.Result{}, fmt.Errorf("the smaller model gave %d results of a row, want one with a token", len(results))
		}
		return results[0], nil
	}
}
