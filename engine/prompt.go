package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"windrow/tokenizer"
)

// Prompt is what a model is asked: messages for its chat template, or plain text.
type Prompt struct {
	Messages []tokenizer.Message
	// Chat are further options of the template. Its AddGenerationPrompt is
	// always set, and EnableThinking is by Options.NoThink where it is nil.
	Chat tokenizer.ChatOptions
	// Raw is taken as it stands, special tokens included, where there are no
	// Messages.
	Raw string
}

// Encode returns a prompt's ids. Special tokens in messages are ordinary text:
// they come from the template only.
//
// Errors: a *TemplateError where the model has no chat template, what the template
// says, or ctx's error.
func (e *Engine) Encode(ctx context.Context, p Prompt) (ids []int32, err error) {
	if e.tokens == nil {
		return nil, fmt.Errorf("%s was opened without its tokenizer", e.name)
	}
	if len(p.Messages) == 0 {
		ids, err = e.tokens.Encode(p.Raw)
	} else {
		o := p.Chat
		o.AddGenerationPrompt = true
		if o.EnableThinking == nil && e.options.NoThink {
			o.EnableThinking = new(bool)
		}
		ids, err = e.tokens.EncodeChat(ctx, p.Messages, o)
	}
	if errors.Is(err, tokenizer.ErrNoChatTemplate) {
		return nil, &TemplateError{e.name}
	}
	if err != nil {
		return nil, err
	}
	if vocabulary := e.Config().VocabSize; len(ids) > 0 && int(slices.Max(ids)) >= vocabulary {
		return nil, fmt.Errorf("the tokenizer gives id %d, the model has %d: they do not belong together", slices.Max(ids), vocabulary)
	}
	return ids, nil
}
