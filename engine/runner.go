package engine

import (
	"context"

	"windrow/decoder"
	"windrow/model"
)

// Run answers one prompt of an evaluation. Where the context leaves fewer tokens
// than the options allow, the answer is cut there; otherwise it is Answer.
func (e *Engine) Run(ctx context.Context, p Prompt, o decoder.Options) (decoder.Summary, error) {
	ids, err := e.Encode(ctx, p)
	if err != nil {
		return decoder.Summary{}, err
	}
	if left := e.Config().MaxPositions - len(ids); left > 0 {
		o.MaxTokens = min(o.MaxTokens, left)
	}
	return e.Answer(ctx, ids, o, decoder.Hooks{})
}

// EncodeAnswered returns the ids of a prompt and of the answer that follows it,
// cut to the context.
func (e *Engine) EncodeAnswered(ctx context.Context, p Prompt, answer string) ([]int32, error) {
	ids, err := e.Encode(ctx, p)
	if err != nil {
		return nil, err
	}
	if len(p.Messages) == 0 {
		answer = " " + answer
	}
	more, err := e.tokens.EncodePlain(answer)
	if err != nil {
		return nil, err
	}
	ids = append(ids, more...)
	return ids[:min(len(ids), e.Config().MaxPositions)], nil
}

// Forced is a text that is given to the model (teacher forcing).
type Forced struct {
	engine *Engine
	cache  *model.Cache
}

// Force begins a text of up to n tokens. Close frees what it takes.
func (e *Engine) Force(ctx context.Context, n int) (*Forced, error) {
	cache, err := e.NewCache(ctx, n, n)
	if err != nil {
		return nil, err
	}
	return &Forced{e, cache}, nil
}

// Logits feeds the text's next tokens and returns what the model expects after
// each of them, [len(tokens)][vocabulary].
func (t *Forced) Logits(ctx context.Context, tokens []int32) ([][]float32, error) {
	results, err := t.engine.Forward(ctx, batch(wantLogits, span{t.cache, tokens}))
	if err != nil {
		return nil, err
	}
	rows := make([][]float32, len(results))
	for i, r := range results {
		rows[i] = r.Logits
	}
	return rows, t.cache.Commit(len(tokens))
}

// Close frees the text's keys and values.
func (t *Forced) Close() { t.engine.FreeCache(t.cache) }
