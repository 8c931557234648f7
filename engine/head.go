package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"windrow/cpu"
	"windrow/decoder"
	"windrow/model"
)

// HeadError is a model that has no head for drafts of its own, or not on this device.
type HeadError struct {
	Model string
	// Backend is the one that lacks what such a head takes; "": the model has none.
	Backend string
	// Broken is why the head that there is cannot draft.
	Broken error
}

func (e *HeadError) Error() string {
	if e.Backend != "" {
		return fmt.Sprintf("draft mtp: backend %s does not run heads for drafts", e.Backend)
	}
	if e.Broken != nil {
		return fmt.Sprintf("draft mtp: the head for drafts of %s is broken: %v", e.Model, e.Broken)
	}
	return fmt.Sprintf("draft mtp: %s has no head for drafts", e.Model)
}

// ownHead is what drafting with a model's own head takes besides the model.
type ownHead struct {
	turn
	known   bool
	seconds float64 // of a forward of one row; 0: not measured
	chain   *decoder.Chain
}

func newOwnHead() ownHead { return ownHead{turn: newTurn(), chain: decoder.NewChain(cpu.AddRows)} }

// headBits is what drafts multiply the model's head in: it is most of what they read.
const headBits = 4

// headOptions has the model's head for drafts loaded where there is one, and the device
// runs it.
func (e *Engine) headOptions() []model.Option {
	bits := headBits
	switch f := e.device.features; {
	case !f.HiddenRows || e.options.NoHead:
		return nil
	case e.options.Exact: // weights in 4 bits would be widened
		bits = 0
	}
	list := []model.Option{model.DraftHead(bits)}
	if !e.options.NeedHead {
		list = append(list, model.HeadMayFail(e.leaveHead))
	}
	return list
}

// leaveHead has the model's own head draft no more, and says so once, where it is no error
// that does.
func (e *Engine) leaveHead(why error) {
	if e.headless.CompareAndSwap(nil, &why) && e.options.Note != nil && !e.options.NeedHead {
		e.options.Note(fmt.Sprintf("%s: its head for drafts is not used: %v", e.name, why))
	}
}

// drafts reports whether the model's own head can draft.
func (e *Engine) drafts() bool { return e.model.Drafts() && e.headless.Load() == nil }

// lacksHead is why the model's own head does not draft; nil: it does.
func (e *Engine) lacksHead() error {
	switch why := e.headless.Load(); {
	case why != nil:
		return &HeadError{Model: e.name, Broken: *why}
	case e.model.Drafts():
		return nil
	case e.Config().MTPLayers > 0 && !e.device.features.HiddenRows:
		return &HeadError{Model: e.name, Backend: e.BackendName()}
	}
	return &HeadError{Model: e.name}
}

// Draft runs a forward of the model's head for drafts when it is its turn, as
// model.Model's Draft does: it makes the Engine a decoder.HeadEngine. A head whose logits
// are not finite drafts for no later generation.
func (e *Engine) Draft(ctx context.Context, b *model.DraftBatch) ([]model.Result, error) {
	if err := e.device.take(ctx); err != nil {
		return nil, err
	}
	defer e.device.give()
	return e.draft(ctx, b)
}

// draft is Draft, when it is the engine's turn.
func (e *Engine) draft(ctx context.Context, b *model.DraftBatch) ([]model.Result, error) {
	results, err := e.model.Draft(ctx, b)
	if errors.As(err, new(*model.NotFiniteError)) {
		e.leaveHead(err)
	}
	return results, err
}

// headDrafts is what the head drafts with; nil: there is none. What a forward of it takes
// is known once it was measured.
func (e *Engine) headDrafts() *decoder.HeadDrafts {
	if !e.drafts() || e.head.take(context.Background()) != nil {
		return nil
	}
	defer e.head.give()
	return &decoder.HeadDrafts{Engine: e, Width: e.Config().HiddenSize, Seconds: e.head.seconds, Chain: e.head.chain, PrefillRows: e.Features().PrefillRows}
}

// measureHead measures what a forward of the head takes, once: some ten of them, of two
// rows, as what was certain is fed with a draft. Each comes behind one of the model, which
// leaves the head's weights as far away as a step does; the median counts.
func (e *Engine) measureHead(ctx context.Context) {
	if !e.drafts() || e.head.take(ctx) != nil {
		return
	}
	defer e.head.give()
	if e.head.known || e.device.take(ctx) != nil {
		return
	}
	defer e.device.give()
	const rounds, rows = 11, 2
	if e.Config().MaxPositions < rounds+rows {
		return
	}
	c, err := e.newCache(rounds, rows)
	if err != nil {
		return
	}
	defer c.Close()
	b := &model.DraftBatch{
		Tokens: make([]int32, rows), Hidden: make([]float32, rows*e.Config().HiddenSize),
		Spans: []model.DraftSpan{{Cache: c, Rows: rows}}, Want: []model.Wanted{{Row: rows - 1, Hidden: true}},
	}
	random := rand.New(rand.NewPCG(rounds, rows))
	var times []time.Duration
	for i := range rounds {
		for j := range b.Hidden { // rows that differ: a mixture's choose experts of their own
			b.Hidden[j] = float32(random.NormFloat64())
		}
		for r := range rows {
			b.Tokens[r] = int32((i*389 + r*97) % e.Config().VocabSize)
		}
		if _, err := e.model.Forward(ctx, batch(wantAll, span{c, b.Tokens})); err != nil {
			return
		}
		start := time.Now()
		if _, err := e.draft(ctx, b); err != nil {
			return
		}
		if i > 0 { // the first one makes the head's copy
			times = append(times, time.Since(start))
		}
	}
	slices.Sort(times)
	e.head.seconds = max(times[len(times)/2], time.Nanosecond).Seconds() + e.head.chain.Seconds(e.Config().HiddenSize)
	e.head.known = true
}
