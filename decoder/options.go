package decoder

import (
	"context"

	"windrow/model"
)

// Mode is a way to decode. All modes run the same weights.
type Mode string

// The modes.
const (
	AR       Mode = "ar"       // one token per forward: the reference
	WeDLM    Mode = "wedlm"    // window decoding, arXiv 2512.22737
	Verified Mode = "verified" // the window drafts, the next forward checks: ar's output
)

// Engine runs forwards: a *model.Model, or a script in tests. Forward returns
// one result for each wanted row, in order; where the context ends first, its
// error, and the batch's caches keep their permanent tokens.
type Engine interface {
	Forward(ctx context.Context, b *model.Batch) ([]model.Result, error)
}

// Options say how to decode.
type Options struct {
	Mode Mode
	// Window is W, the number of slots: 1 to MaxWindow (16 in DefaultOptions).
	Window int
	// Cost, where not nil, makes the window adaptive: W is the most, and each
	// step feeds the masks (in verified also the drafts) that promise the most
	// tokens per second, by this table and by what the generation's earlier
	// steps showed. Verified's output stays the same, and there τ and λ no
	// longer cut drafts (nil or 0 still drafts nothing); wedlm's output may
	// change, as a slot that is filled alone is filled after seeing less.
	Cost *CostModel
	// Experience is what adaptive windows of verified learn from each other; nil:
	// each generation begins anew. A fixed window only adds to it.
	Experience *Experience
	// Draft says who drafts in verified; "" is DraftMask.
	Draft DraftChoice
	// NewDrafter makes the drafter of a sequence where Draft is DraftModel. It is closed
	// with the sequence ([Sequence.Close]).
	NewDrafter func() (Drafter, error) `json:"-"`
	// Head is the model's own head for drafts: for DraftMTP and DraftAuto. nil: none.
	Head *HeadDrafts `json:"-"`
	// Drafts is how many drafts of the head a step is fed at most; 0: as many as pay, or 3
	// where Cost does not say what that is.
	Drafts int
	// EntropyThreshold is τ in nats; nil fills one token per step (in verified:
	// drafts nothing). +Inf is allowed: it drafts or fills every mask.
	EntropyThreshold *float32
	// PosPenalty is λ, nats per slot of distance from the first mask.
	PosPenalty float32
	// MaxTokens bounds the generated tokens; it is never exceeded.
	MaxTokens int
	// StopIDs end the generation when committed; they are counted as
	// generated but not shown.
	StopIDs []int32
	// StopStrings end the generation when they appear in the text, also
	// across tokens; neither they nor what follows is shown.
	StopStrings []string
	Sampling    Sampling
	Vocabulary  Vocabulary
	// Constraint, where not nil, says which tokens the output may have; a sequence goes
	// on from a clone of it. Penalties, filters and draws come after it. Mode WeDLM,
	// which fills slots out of order, takes none.
	Constraint Constraint
	// Logprobs, where not nil, asks for a [Logprobs] event with each token, of that many
	// of the most likely ones: 0 to MaxLogprobs.
	Logprobs *int
	// PromptLogprobs, where not nil, asks for a [PromptLogprobs] event with each token of
	// the prompt but the first, of that many of the most likely ones: 0 to MaxLogprobs.
	// All of the prompt is run then, in chunks whose logits take 32 MB at most: the cache
	// must be empty.
	PromptLogprobs *int
	// PrefillRows is the chunk in which a prompt is prefilled (default 512).
	PrefillRows int
	// PrefillAnywhere lets chunks of a prompt begin and end anywhere: its rows have the
	// same bits however it is cut.
	PrefillAnywhere bool
	// InvariantRows is how many rows of a span keep their bits whatever is beside them:
	// tokens of the output that are run again (Sequence.Move) go in spans of so many. 0:
	// any number.
	InvariantRows int
}

// Sampling holds the sampling parameters under their OpenAI names (and the
// common extensions). Temperature 0 is greedy.
type Sampling struct {
	Temperature       float32
	TopK              int     // 0: off
	TopP              float32 // 0 or 1: off
	MinP              float32 // 0: off
	RepetitionPenalty float32 // 0 or 1: off
	PresencePenalty   float32
	FrequencyPenalty  float32
	LogitBias         map[int32]float32
	// Seed makes the draws: one seed gives one output, the same in ar and in
	// verified, at any window.
	Seed uint64
}

// Vocabulary tells which ids may be chosen.
type Vocabulary struct {
	// Size is the tokenizer's size: ids from it on exist in the head only and
	// are never chosen. 0: no limit.
	Size int32
	// MaskID is fed at mask slots and never chosen; negative: none.
	MaskID int32
}

// Detokenizer turns ids into text piece by piece, never half a character.
type Detokenizer interface {
	Push(id int32) string
	Flush() string
}

// Hooks are called as a generation goes on; each may be nil.
type Hooks struct {
	// Text is given what committed tokens add to the visible text. Its error
	// ends the generation and is returned.
	Text func(piece string) error
	// Token is called for every generated token, in order, stop ids included.
	Token func(id int32)
	// Prefill is called after each prefill chunk.
	Prefill func(done, total int)
	// Step is called after each decode forward, for traces and --watch.
	Step func(Step)
}

// Slot is a place in the window. Filled, not the token id, tells a mask.
type Slot struct {
	Token  int32
	Filled bool
}

// Step describes one decode forward.
type Step struct {
	// Slots is the window as it entered the forward, in logical order.
	Slots []Slot
	// Base is the logical position of Slots[0].
	Base int
	// Committed are the tokens that became permanent in this forward.
	Committed []int32
	// Entropy has one value for each mask left after the commit, in order; none
	// after the last commit, nor in verified after a rejection.
	Entropy []float32
	// Filled are the slots filled from this forward, counted after the commit:
	// in ar the next token, in verified the causal token and the drafts, which
	// the next forward need not all feed.
	Filled []Fill
	// Drafts and Accepted count verified mode's drafts fed in this forward, and
	// those of them that were committed.
	Drafts, Accepted int
}

// Fill is a token put into a slot.
type Fill struct {
	Slot  int
	Token int32
}

// FinishReason says why a generation ended, in OpenAI's words.
type FinishReason string

// The finish reasons.
const (
	FinishStop      FinishReason = "stop"   // a stop id or stop string
	FinishLength    FinishReason = "length" // max tokens
	FinishCancelled FinishReason = "cancelled"
)

// Summary is the result of a generation. FinishReason is empty only beside an
// error.
type Summary struct {
	// Tokens are the generated ids, a final stop id included.
	Tokens []int32
	// Text is the visible text: without stop id and stop string.
	Text         string
	FinishReason FinishReason
	Stats        Stats
}
