package decoder

import (
	"context"
	"fmt"
	"time"

	"windrow/model"
)

// Generate continues prompt by up to o.MaxTokens tokens: it drives a [Sequence]
// to its end, alone in its forwards.
//
// The cache's permanent tokens must be prompt[:cache.Base()]: a chat passes
// the cache of its earlier turns, and only the rest is prefilled. When
// Generate returns, also with an error, the permanent tokens are
// (prompt + Summary.Tokens)[:cache.Base()].
//
// detok may be nil: then there is no text, and no stop string is possible. A
// context that ends stops the generation between or inside forwards with
// FinishCancelled, what was generated so far, and no error.
//
// Errors: those of [NewSequence], else what the engine or a hook returned; the
// summary then holds what came before it.
func Generate(ctx context.Context, eng Engine, cache *model.Cache, prompt []int32, o Options, detok Detokenizer, h Hooks) (Summary, error) {
	s, err := NewSequence(cache, prompt, o, detok)
	if err != nil {
		return Summary{}, err
	}
	defer s.Close()
	return s.run(ctx, eng, h)
}

// run is Generate of a sequence.
func (s *Sequence) run(ctx context.Context, eng Engine, h Hooks) (Summary, error) {
	start := time.Now()
	s.quiet = h.Step == nil
	var prefill time.Duration
	var err error
	for err == nil && !s.Done() {
		prefilling := s.Prefilling()
		var events []Event
		events, err = s.forward(ctx, eng)
		if bad := h.call(events); err == nil {
			err = bad
		}
		if prefilling && !s.Prefilling() {
			prefill = time.Since(start)
		}
	}
	reason := FinishReason("")
	if err != nil && ctx.Err() != nil && !s.Done() {
		reason, err = FinishCancelled, nil
	}
	if bad := h.call(s.Stop(reason)); err == nil {
		err = bad
	}
	sum := s.Summary()
	all := time.Since(start)
	if s.Prefilling() {
		prefill = all
	}
	sum.Stats.PrefillSeconds, sum.Stats.DecodeSeconds = prefill.Seconds(), (all - prefill).Seconds()
	return sum, err
}

// forward plans, runs and absorbs one forward of this sequence alone.
func (s *Sequence) forward(ctx context.Context, eng Engine) ([]Event, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := s.Draft(ctx); err != nil {
		return nil, err
	}
	b := &s.batch
	*b = model.Batch{Tokens: b.Tokens[:0], Positions: b.Positions[:0], Spans: b.Spans[:0], Want: b.Want[:0]}
	s.Plan(b, 0)
	results, err := eng.Forward(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("forward of %d rows at %d: %w", len(b.Tokens), s.cache.Base(), err)
	}
	return s.Absorb(results)
}

// call hands events to the hooks. After an error of the text hook no more text
// is shown to it.
func (h *Hooks) call(events []Event) (first error) {
	for _, e := range events {
		switch e := e.(type) {
		case Prefilled:
			if h.Prefill != nil {
				h.Prefill(e.Done, e.Total)
			}
		case Token:
			if h.Token != nil {
				h.Token(int32(e))
			}
		case Text:
			if h.Text == nil {
				break
			}
			if err := h.Text(string(e)); err != nil {
				first, h.Text = err, nil
			}
		case Step:
			if h.Step != nil && first == nil {
				h.Step(e)
			}
		}
	}
	return first
}
