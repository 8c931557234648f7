package engine

import (
	"errors"
	"fmt"

	"windrow/decoder"
	"windrow/internal/units"
	"windrow/tokenizer"
)

// The errors that a program may want to recognise, beside decoder.OptionError for
// an option out of range.
var (
	// ErrEmptyPrompt is a prompt of no tokens.
	ErrEmptyPrompt = errors.New("the prompt is empty")
	// ErrNoEmbeddedModel is a path for the embedded model in a program that was
	// built without it.
	ErrNoEmbeddedModel = errors.New("this binary has no embedded model: name a model folder or a .gguf file")
	// ErrNoTokenizer is what takes one of an engine that was opened from weights alone.
	ErrNoTokenizer = errors.New("the model was opened without a tokenizer")
	// ErrClosed is a call of a closed engine.
	ErrClosed = errors.New("the engine is closed")
)

// ContextError is a prompt that does not fit the model's context, alone or with
// the tokens that are to be generated.
type ContextError struct {
	Model string
	// PromptTokens is the prompt's length; MaxTokens how many tokens were asked
	// for, 0 where the prompt alone leaves no room; Context what the model takes.
	PromptTokens, MaxTokens, Context int
}

func (e *ContextError) Error() string {
	if e.MaxTokens == 0 {
		return fmt.Sprintf("the prompt has %d tokens, the context of %s is %d: nothing can be generated", e.PromptTokens, e.Model, e.Context)
	}
	return fmt.Sprintf("the prompt has %d tokens and %d are to be generated, the context of %s is %d", e.PromptTokens, e.MaxTokens, e.Model, e.Context)
}

// ModeError is a mode with a window, or drafts by masks, for a model without a mask token,
// or wedlm for one with recurrent layers.
type ModeError struct {
	Model string
	Mode  decoder.Mode
	// Draft is DraftMask where the mode would go with others that draft.
	Draft decoder.DraftChoice
	// Recurrent: the model has recurrent layers, whose states add tokens in the order in
	// which they come; wedlm fills slots out of order.
	Recurrent bool
}

func (e *ModeError) Error() string {
	if e.Recurrent {
		return fmt.Sprintf("mode %s: %s has recurrent layers, which take tokens in their order: want ar or verified", e.Mode, e.Model)
	}
	if e.Draft != "" {
		return fmt.Sprintf("draft %s: %s has no mask token in its config", e.Draft, e.Model)
	}
	return fmt.Sprintf("mode %s: %s has no mask token in its config", e.Mode, e.Model)
}

// MaskError is a mask token's id that the model does not have.
type MaskError struct {
	Model      string
	ID         int32
	Vocabulary int // how many ids the model has
}

func (e *MaskError) Error() string {
	return fmt.Sprintf("mask id %d: %s has ids 0 to %d", e.ID, e.Model, e.Vocabulary-1)
}

// BiasError is a logit bias for an id that the model does not have.
type BiasError struct {
	Model      string
	ID         int32
	Bias       float32
	Vocabulary int // how many ids the model has
}

func (e *BiasError) Error() string {
	return fmt.Sprintf("logit bias %g of id %d: %s has ids 0 to %d", e.Bias, e.ID, e.Model, e.Vocabulary-1)
}

// TemplateError is a conversation for a model without a chat template. It is a
// tokenizer.ErrNoChatTemplate.
type TemplateError struct{ Model string }

func (e *TemplateError) Error() string { return e.Model + " has no chat template" }

// Unwrap returns tokenizer.ErrNoChatTemplate.
func (e *TemplateError) Unwrap() error { return tokenizer.ErrNoChatTemplate }

// MemoryError is a device that cannot hold the weights, or its part of them.
type MemoryError struct {
	Backend string // CUDA or Metal
	Device  string // for people
	Part    bool   // several devices share the weights
	// Need, Free and Total are bytes; Total is 0 where only Free is known.
	Need, Free, Total int64
	// HostLayers is of how many layers experts would have to stay in the host's memory so
	// that the rest fits (Options); 0: that would not help.
	HostLayers int
}

func (e *MemoryError) Error() string {
	what, has := "the weights take", "can use "+units.Bytes(e.Free)
	if e.Part {
		what = "a part of the weights takes"
	}
	if e.Total > 0 {
		has = fmt.Sprintf("has %s free of %s", units.Bytes(e.Free), units.Bytes(e.Total))
	}
	rest := ""
	if e.HostLayers > 0 {
		rest = fmt.Sprintf("; there is room for all but the experts of %d layers", e.HostLayers)
	}
	return fmt.Sprintf("%s: %s %s, %s %s%s", e.Backend, what, units.Bytes(e.Need), e.Device, has, rest)
}
