package decoder

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"windrow/model"
)

// Generate continues prompt by up to o.MaxTokens tokens.
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
// Errors: *OptionError for an option out of range or an empty prompt,
// *ContextError where prompt and MaxTokens exceed the cache, else what the
// engine or a hook returned; the summary then holds what came before it.
func Generate(ctx context.Context, eng Engine, cache *model.Cache, prompt []int32, o Options, detok Detokenizer, h Hooks) (Summary, error) {
	s, err := newSequence(cache, prompt, o, detok, h)
	if err != nil {
		return Summary{}, err
	}
	return s.run(ctx, eng)
}

// sequence is one generation: the cache, the mode's state, the output.
type sequence struct {
	cache   *model.Cache
	prompt  []int32
	o       Options
	detok   Detokenizer
	hooks   Hooks
	sampler *sampler
	stepper stepper
	rows    rows // of the step at hand
	sum     Summary
	text    strings.Builder
	stops   stopMatcher
	emitted []emission // since the last call of the hooks
	deaf    bool       // the text hook failed: it is not called again
}

// emission is a token for the hooks, with the text that it makes visible.
type emission struct {
	token  int32
	piece  string
	hidden bool // a stop id
}

func newSequence(cache *model.Cache, prompt []int32, o Options, detok Detokenizer, h Hooks) (*sequence, error) {
	if err := o.check(prompt, cache.Base(), cache.Capacity(), cache.MaxRows(), detok != nil); err != nil {
		return nil, err
	}
	s := &sequence{cache: cache, prompt: prompt, o: o, detok: detok, hooks: h, stops: stopMatcher{stops: o.StopStrings}}
	s.sampler = newSampler(o.Sampling, o.Vocabulary, prompt)
	switch o.Mode {
	case WeDLM:
		s.stepper = newWeDLM(o, s.sampler)
	case Verified:
		s.stepper = newVerified(o, s.sampler)
	default:
		s.stepper = &autoregressive{s: s.sampler}
	}
	return s, nil
}

func (s *sequence) run(ctx context.Context, eng Engine) (Summary, error) {
	start := time.Now()
	err := s.prefill(ctx, eng)
	s.sum.Stats.PrefillSeconds = time.Since(start).Seconds()
	start = time.Now()
	for err == nil && !s.ended() {
		err = s.step(ctx, eng)
	}
	if err != nil && ctx.Err() != nil && !s.ended() {
		s.sum.FinishReason, err = FinishCancelled, nil
	}
	if flushed := s.flush(); err == nil {
		err = flushed
	}
	s.sum.Stats.DecodeSeconds = time.Since(start).Seconds()
	s.sum.Stats.Tokens = len(s.sum.Tokens)
	s.sum.Text = s.text.String()
	return s.sum, err
}

func (s *sequence) ended() bool { return s.sum.FinishReason != "" }

// prefill makes the rest of the prompt permanent, in chunks, and starts the
// stepper.
func (s *sequence) prefill(ctx context.Context, eng Engine) error {
	if s.stepper.needsPrompt() && s.cache.Base() == len(s.prompt) {
		if err := s.cache.Truncate(len(s.prompt) - 1); err != nil {
			return fmt.Errorf("rerun the prompt's last token: %w", err)
		}
	}
	cached := s.cache.Base()
	s.sum.Stats.PromptTokens, s.sum.Stats.CachedTokens = len(s.prompt), cached
	chunk := min(s.o.prefillRows(), s.cache.MaxRows())
	var last model.Result
	for from := cached; from < len(s.prompt); from = s.cache.Base() {
		n := min(chunk, len(s.prompt)-from)
		b := s.batch()
		s.rows = rows{base: int32(from), batch: b}
		for i, token := range s.prompt[from : from+n] {
			s.rows.add(i, Slot{Token: token, Filled: true}, s.stepper.needsPrompt() && from+i == len(s.prompt)-1)
		}
		results, err := s.forward(ctx, eng, b)
		if err != nil {
			return err
		}
		if len(results) > 0 {
			last = results[0]
		}
		if err := s.cache.Commit(n); err != nil {
			return err
		}
		if s.hooks.Prefill != nil {
			s.hooks.Prefill(from+n-cached, len(s.prompt)-cached)
		}
	}
	err := s.stepper.start(last, s.emit)
	if hook := s.callHooks(); err == nil {
		err = hook
	}
	return err
}

// step is one decode forward. Until the forward has succeeded it changes
// nothing, so a step whose forward failed may be taken again.
func (s *sequence) step(ctx context.Context, eng Engine) error {
	b := s.batch()
	base := s.cache.Base()
	s.rows = rows{base: int32(base), mask: s.o.Vocabulary.MaskID, batch: b}
	s.stepper.plan(&s.rows)
	results, err := s.forward(ctx, eng, b)
	if err != nil {
		return err
	}
	s.count()

	out, err := s.stepper.absorb(results, s.emit)
	if bad := s.cache.Commit(out.commit); bad != nil {
		return bad
	}
	s.sum.Stats.Drafts += out.drafts
	s.sum.Stats.Accepted += out.accepted
	if hook := s.callHooks(); err == nil {
		err = hook
	}
	if s.hooks.Step != nil && err == nil {
		window := s.rows.window()
		committed := make([]int32, out.commit)
		for i := range committed {
			committed[i] = window[i].Token
		}
		s.hooks.Step(Step{
			Slots: window, Base: base, Committed: committed,
			Entropy: out.entropy, Filled: out.filled, Drafts: out.drafts, Accepted: out.accepted,
		})
	}
	return err
}

// count adds the forward of s.rows to the counters.
func (s *sequence) count() {
	masks := 0
	for _, slot := range s.rows.slots {
		if !slot.Filled {
			masks++
		}
	}
	t := &s.sum.Stats
	if t.Forwards == 0 {
		t.LeastMasks = masks
	}
	t.LeastMasks, t.MostMasks = min(t.LeastMasks, masks), max(t.MostMasks, masks)
	t.Masks += masks
	t.Rows += len(s.rows.slots)
	t.Forwards++
}

// batch is an empty forward with what this sequence wants of its rows.
func (s *sequence) batch() *model.Batch {
	except := s.o.Vocabulary.MaskID
	if except < 0 {
		except = -1
	}
	return &model.Batch{Want: model.Want{Logits: s.sampler.needsLogits(), Limit: s.o.Vocabulary.Size, Except: except}}
}

// forward runs the rows of s.rows and checks that the results can be used.
func (s *sequence) forward(ctx context.Context, eng Engine, b *model.Batch) ([]model.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.Spans = []model.Span{{Cache: s.cache, First: 0, Rows: len(b.Tokens)}}
	results, err := eng.Forward(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("forward of %d rows at %d: %w", len(b.Tokens), s.cache.Base(), err)
	}
	if len(results) != s.rows.wanted {
		return nil, fmt.Errorf("forward of %d rows at %d: %d results, want %d", len(b.Tokens), s.cache.Base(), len(results), s.rows.wanted)
	}
	for i, r := range results {
		if math.IsNaN(float64(r.Entropy)) || r.Argmax < 0 {
			return nil, fmt.Errorf("position %d: the model's logits are not numbers (entropy %v, argmax %d)",
				b.Positions[b.Want.Rows[i]], r.Entropy, r.Argmax)
		}
	}
	return results, nil
}

// emit is the stepper's emitter: it decides whether the generation ends here.
func (s *sequence) emit(token int32) bool {
	if s.ended() {
		return false
	}
	s.sum.Tokens = append(s.sum.Tokens, token)
	s.sampler.observe(token)
	e := emission{token: token, hidden: slices.Contains(s.o.StopIDs, token)}
	var stopped bool
	if !e.hidden && s.detok != nil {
		e.piece, stopped = s.stops.push(s.detok.Push(token))
	}
	switch {
	case e.hidden || stopped:
		s.sum.FinishReason = FinishStop
	case len(s.sum.Tokens) >= s.o.MaxTokens:
		s.sum.FinishReason = FinishLength
	}
	s.emitted = append(s.emitted, e)
	if stopped {
		s.detok = nil // what follows the stop string is not shown
	}
	return !s.ended()
}

// callHooks tells the hooks what was emitted, after it is permanent. A hook's
// error ends the generation.
func (s *sequence) callHooks() error {
	emitted := s.emitted
	s.emitted = s.emitted[:0]
	var first error
	for _, e := range emitted {
		s.text.WriteString(e.piece)
		if s.hooks.Token != nil {
			s.hooks.Token(e.token)
		}
		if !e.hidden && first == nil {
			first = s.show(e.piece)
		}
	}
	return first
}

// flush makes visible what waited for the end of a character or of a possible
// stop string.
func (s *sequence) flush() error {
	if s.detok == nil {
		return nil
	}
	piece, stopped := s.stops.push(s.detok.Flush())
	if stopped {
		s.sum.FinishReason = FinishStop
	} else {
		piece += s.stops.flush()
	}
	s.text.WriteString(piece)
	if piece == "" {
		return nil
	}
	return s.show(piece)
}

// show gives a piece to the text hook.
func (s *sequence) show(piece string) error {
	if s.hooks.Text == nil || s.deaf {
		return nil
	}
	err := s.hooks.Text(piece)
	s.deaf = err != nil
	return err
}
