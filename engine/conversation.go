package engine

import (
	"context"
	"iter"
	"slices"

	"windrow/decoder"
	"windrow/model"
	"windrow/tokenizer"
)

// Conversation answers prompts that grow turn by turn, and keeps the keys and
// values of what they have in common: only the rest is prefilled. The text does
// not depend on what was kept.
//
// One Engine serves many conversations at a time; a Conversation is for one
// goroutine at a time. It must be closed before its Engine.
type Conversation struct {
	engine *Engine
	cache  *model.Cache // nil: none yet
	held   []int32      // the ids whose keys and values are permanent in cache
	last   decoder.Summary
}

// NewConversation begins an empty conversation. It takes memory when it is used.
func (e *Engine) NewConversation() *Conversation { return &Conversation{engine: e} }

// Generate is Engine.Generate; the messages are those of the whole conversation.
func (c *Conversation) Generate(ctx context.Context, messages []tokenizer.Message, o decoder.Options) iter.Seq2[decoder.Event, error] {
	return func(yield func(decoder.Event, error) bool) {
		c.last = decoder.Summary{}
		c.engine.events(ctx, messages, o, c.Answer)(yield)
	}
}

// Answer is Engine.Answer; the prompt is that of the whole conversation.
func (c *Conversation) Answer(ctx context.Context, prompt []int32, o decoder.Options, h decoder.Hooks) (decoder.Summary, error) {
	c.last = decoder.Summary{}
	o, err := c.engine.prepare(ctx, prompt, o)
	if err == nil {
		err = c.reuse(ctx, prompt, o)
	}
	if err != nil && ctx.Err() != nil {
		c.last.FinishReason = decoder.FinishCancelled
		return c.last, nil
	}
	if err != nil {
		return c.last, err
	}
	c.last, err = decoder.Generate(ctx, c.engine, c.cache, prompt, o, c.engine.detokenizer(), h)
	c.held = slices.Concat(prompt, c.last.Tokens)[:c.cache.Base()]
	return c.last, err
}

// Summary is what the last answer came to, also one that failed or was stopped.
func (c *Conversation) Summary() decoder.Summary { return c.last }

// Held is how many tokens have their keys and values kept, and Bytes what these
// take.
func (c *Conversation) Held() int { return len(c.held) }

// Bytes is what the kept keys and values take.
func (c *Conversation) Bytes() int64 {
	if c.cache == nil {
		return 0
	}
	return c.cache.Bytes()
}

// Close frees the keys and values. The conversation may be used on: it begins
// anew.
func (c *Conversation) Close() {
	if c.cache != nil {
		c.engine.FreeCache(c.cache)
	}
	c.cache, c.held = nil, nil
}

// reuse makes the cache hold the longest common start of ids and what it held.
// Templates may change earlier turns (they drop the thinking part), and text may
// encode differently than it was generated, so this is by id.
func (c *Conversation) reuse(ctx context.Context, ids []int32, o decoder.Options) error {
	e := c.engine
	// A step feeds two windows at most.
	rows := max(e.Features().PrefillRows, 2*max(o.Window, adaptiveWindow))
	if c.cache != nil && c.cache.MaxRows() < rows {
		c.Close()
	}
	if c.cache == nil {
		// Storage grows with the tokens held, so the whole context costs nothing.
		cache, err := e.NewCache(ctx, e.Config().MaxPositions, rows)
		if err != nil {
			return err
		}
		c.cache, c.held = cache, nil
	}
	// A rotating cache may have dropped what going back takes: it goes back further then.
	reached, err := c.cache.Truncate(decoder.CommonPrefix(c.held, ids))
	if err != nil {
		return err
	}
	c.held = c.held[:reached]
	return nil
}
