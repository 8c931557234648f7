package engine

import (
	"context"
	"iter"

	"windrow/decoder"
	"windrow/tokenizer"
)

// Answer generates from a prompt's ids, in a cache of its own. The options are
// completed as by [Engine.Complete]; where Window is 0, verified's window adapts
// ([Engine.Adaptive]).
//
// A context that ends stops the generation with decoder.FinishCancelled, what was
// generated so far, and no error. A hook is called by the goroutine that called
// Answer, and may use the engine.
//
// Errors: those of Complete, else what a forward or a hook returned; the summary
// then holds what came before it.
func (e *Engine) Answer(ctx context.Context, prompt []int32, o decoder.Options, h decoder.Hooks) (decoder.Summary, error) {
	o, err := e.prepare(ctx, prompt, o)
	if err != nil {
		return decoder.Summary{}, err
	}
	capacity, rows := decoder.CacheSize(len(prompt), o)
	cache, err := e.NewCache(ctx, capacity, rows)
	if err != nil && ctx.Err() != nil {
		return decoder.Summary{FinishReason: decoder.FinishCancelled}, nil
	}
	if err != nil {
		return decoder.Summary{}, err
	}
	defer e.FreeCache(cache)
	return decoder.Generate(ctx, e, cache, prompt, o, e.detokenizer(), h)
}

// Generate answers a conversation, whose last message is the user's, and yields
// what happens: decoder.Prefilled, Token, Text, Step, and last Finished. An error
// is yielded beside a nil event and ends the loop; so does the context's end, with
// its cause. A loop that is left early stops the generation.
//
// It keeps nothing for the next turn: for a conversation of several turns, and
// for the counters, see [Conversation].
func (e *Engine) Generate(ctx context.Context, messages []tokenizer.Message, o decoder.Options) iter.Seq2[decoder.Event, error] {
	return e.events(ctx, messages, o, e.Answer)
}

// events runs answer and yields what its hooks are called with.
func (e *Engine) events(ctx context.Context, messages []tokenizer.Message, o decoder.Options,
	answer func(context.Context, []int32, decoder.Options, decoder.Hooks) (decoder.Summary, error)) iter.Seq2[decoder.Event, error] {
	return func(yield func(decoder.Event, error) bool) {
		run, stop := context.WithCancel(ctx)
		defer stop()
		left := false
		show := func(event decoder.Event) {
			if !left && !yield(event, nil) {
				left = true
				stop()
			}
		}
		prompt, err := e.Encode(run, Prompt{Messages: messages})
		var sum decoder.Summary
		if err == nil {
			sum, err = answer(run, prompt, o, decoder.Hooks{
				Text:    func(piece string) error { show(decoder.Text(piece)); return nil },
				Token:   func(id int32) { show(decoder.Token(id)) },
				Prefill: func(done, total int) { show(decoder.Prefilled{Done: done, Total: total}) },
				Step:    func(s decoder.Step) { show(s) },
			})
		}
		if err == nil && sum.FinishReason == decoder.FinishCancelled {
			err = context.Cause(ctx)
		}
		switch {
		case left:
		case err != nil:
			yield(nil, err)
		default:
			yield(decoder.Finished{Reason: sum.FinishReason}, nil)
		}
	}
}

// prepare completes options for a prompt; the zero window of verified adapts.
func (e *Engine) prepare(ctx context.Context, prompt []int32, o decoder.Options) (decoder.Options, error) {
	adaptive := o.Window == 0 && o.Cost == nil
	o, err := e.Complete(o, len(prompt))
	if err == nil && adaptive && o.Mode == decoder.Verified {
		o = e.Adaptive(ctx, o)
	}
	return o, err
}

// detokenizer turns an answer's ids into text; nil where there is no tokenizer.
func (e *Engine) detokenizer() decoder.Detokenizer {
	if e.tokens == nil {
		return nil
	}
	return e.tokens.NewStream(true)
}
