package decoder

import (
	"fmt"
	"math"
	"strings"
)

// Bounds of the options. A window past MaxWindow would only feed masks: with
// the default threshold and penalty nothing past slot 20 is ever filled.
const (
	MaxWindow      = 1024
	MaxPrefillRows = 1 << 16
)

// OptionError is an option (or prompt) out of range: the caller's mistake.
type OptionError struct {
	// Option is its name on the command line, without dashes.
	Option string
	// Got is the value as given, Want the range in words.
	Got, Want string
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("%s %s: want %s", e.Option, e.Got, e.Want)
}

// ContextError is a prompt and a bound of generated tokens that together do
// not fit the cache.
type ContextError struct {
	PromptTokens, MaxTokens, Capacity int
}

func (e *ContextError) Error() string {
	return fmt.Sprintf("context overflow: %d prompt tokens + %d max tokens = %d, the context holds %d",
		e.PromptTokens, e.MaxTokens, e.PromptTokens+e.MaxTokens, e.Capacity)
}

// ErrRecurrent is mode WeDLM on a model with recurrent layers: its rows are packed filled
// slots first, and a state adds rows in the order in which they come.
var ErrRecurrent = &OptionError{"mode", string(WeDLM), "ar or verified: layers with a state take tokens in the order of their positions, and wedlm fills slots out of order"}

// DefaultOptions are the options of a WeDLM model in verified mode: W 16,
// τ 0.4, λ 0.02, greedy, at most 256 tokens. The vocabulary is the caller's.
func DefaultOptions() Options {
	tau := float32(0.4)
	return Options{
		Mode:             Verified,
		Window:           16,
		EntropyThreshold: &tau,
		PosPenalty:       0.02,
		MaxTokens:        256,
		PrefillRows:      defaultPrefillRows,
		Vocabulary:       Vocabulary{MaskID: -1},
	}
}

const defaultPrefillRows = 512

// ParseMode reads "ar", "wedlm" or "verified"; its error is an *OptionError.
func ParseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case AR, WeDLM, Verified:
		return m, nil
	}
	return "", &OptionError{"mode", fmt.Sprintf("%q", s), "ar, wedlm or verified"}
}

// ParseDraft reads "auto", "mask", "lookup", "mtp", "model" or "none", and "" for what is the
// default; its error is an *OptionError.
func ParseDraft(s string) (DraftChoice, error) {
	switch c := DraftChoice(s); c {
	case "", DraftAuto, DraftMask, DraftLookup, DraftModel, DraftMTP, DraftNone:
		return c, nil
	}
	return "", &OptionError{"draft", fmt.Sprintf("%q", s), "auto, mask, lookup, mtp, model or none"}
}

// LacksMask reports whether the mode takes a mask token, and there is none. Without one
// verified drafts what a constraint forces, and what other drafters than masks propose.
func (o Options) LacksMask() bool {
	if o.Mode == AR || o.Vocabulary.MaskID >= 0 {
		return false
	}
	return o.Mode != Verified || o.Draft.NeedsMask() && o.Constraint == nil
}

// Validate checks every option and returns the first one out of range as an
// *OptionError. PrefillRows 0 means its default; Window 0 is allowed in ar,
// which has none.
func (o Options) Validate() error {
	if _, err := ParseMode(string(o.Mode)); err != nil {
		return err
	}
	if o.Constraint != nil && o.Mode == WeDLM {
		return &OptionError{"constraint", "given", "none: mode wedlm fills slots out of order, and where a slot stands in a grammar is not known"}
	}
	if o.Constraint != nil && o.Vocabulary.Size <= 0 {
		return &OptionError{"vocabulary size", fmt.Sprint(o.Vocabulary.Size), "the tokenizer's, beside a constraint"}
	}
	lowest := 1
	if o.Mode == AR {
		lowest = 0
	}
	if o.Window < lowest || o.Window > MaxWindow {
		return optionRange("window", o.Window, 1, MaxWindow)
	}
	if t := o.EntropyThreshold; t != nil && !(*t >= 0) {
		return &OptionError{"entropy-threshold", fmt.Sprint(*t), "none or a number of nats from 0"}
	}
	if !(o.PosPenalty >= 0) || math.IsInf(float64(o.PosPenalty), 0) {
		return &OptionError{"pos-penalty", fmt.Sprint(o.PosPenalty), "a finite number of nats from 0"}
	}
	if o.MaxTokens < 1 || o.MaxTokens > math.MaxInt32 {
		return optionRange("max-tokens", o.MaxTokens, 1, math.MaxInt32)
	}
	if o.PrefillRows < 0 || o.PrefillRows > MaxPrefillRows {
		return optionRange("prefill-rows", o.PrefillRows, 1, MaxPrefillRows)
	}
	if _, err := ParseDraft(string(o.Draft)); err != nil {
		return err
	}
	if o.Draft == DraftModel && o.Mode == Verified && o.NewDrafter == nil {
		return &OptionError{"draft", string(o.Draft), "a drafter beside it"}
	}
	if o.Draft == DraftMTP && o.Mode == Verified && o.Head == nil {
		return &OptionError{"draft", string(o.Draft), "a model with a head for drafts, and loaded with it"}
	}
	if o.Drafts < 0 || o.Drafts > MaxWindow {
		return optionRange("drafts", o.Drafts, 0, MaxWindow)
	}
	if o.LacksMask() {
		return &OptionError{"mask-id", "none", fmt.Sprintf("an id: mode %s needs a mask token (mode ar does not)", o.Mode)}
	}
	if o.Vocabulary.Size < 0 {
		return &OptionError{"vocabulary size", fmt.Sprint(o.Vocabulary.Size), "0 (no limit) or more"}
	}
	if n := o.Logprobs; n != nil && (*n < 0 || *n > MaxLogprobs) {
		return optionRange("logprobs", *n, 0, MaxLogprobs)
	}
	if n := o.PromptLogprobs; n != nil && (*n < 0 || *n > MaxLogprobs) {
		return optionRange("prompt-logprobs", *n, 0, MaxLogprobs)
	}
	for _, id := range o.StopIDs {
		if id < 0 {
			return &OptionError{"stop id", fmt.Sprint(id), "0 or more"}
		}
	}
	for _, s := range o.StopStrings {
		if s == "" {
			return &OptionError{"stop", `""`, "a string that is not empty"}
		}
	}
	return o.Sampling.validate()
}

func (s Sampling) validate() error {
	inf := float32(math.Inf(1))
	for _, p := range []struct {
		name      string
		value     float32
		low, high float32
	}{
		{"temperature", s.Temperature, 0, 1000},
		{"top-p", s.TopP, 0, 1},
		{"min-p", s.MinP, 0, 1},
		{"repetition-penalty", s.RepetitionPenalty, 0, 1000},
		{"presence-penalty", s.PresencePenalty, -2, 2},
		{"frequency-penalty", s.FrequencyPenalty, -2, 2},
	} {
		if !(p.value >= p.low && p.value <= p.high) {
			return optionRange(p.name, p.value, p.low, p.high)
		}
	}
	if s.TopK < 0 {
		return &OptionError{"top-k", fmt.Sprint(s.TopK), "0 (off) or more"}
	}
	for id, bias := range s.LogitBias {
		if id < 0 {
			return &OptionError{"logit-bias", fmt.Sprintf("of id %d", id), "an id of 0 or more"}
		}
		if !(bias >= -100 && bias <= 100) && bias != -inf {
			return &OptionError{"logit-bias", fmt.Sprintf("%v of id %d", bias, id), "a number from -100 to 100, or -inf to bar the id"}
		}
	}
	return nil
}

func optionRange[T int | float32](name string, got, low, high T) error {
	return &OptionError{name, fmt.Sprint(got), fmt.Sprintf("a number from %v to %v", low, high)}
}

// CacheSize tells how large a cache a prompt of that many tokens and its
// answer need: capacity permanent tokens, and up to maxRows rows in one
// forward. A step feeds at most 2W rows (W filled slots, W masks), and never
// more than the tokens that may still be generated.
func CacheSize(promptTokens int, o Options) (capacity, maxRows int) {
	return promptTokens + o.MaxTokens, max(min(promptTokens, o.prefillRows()), o.stepRows())
}

func (o Options) prefillRows() int {
	if o.PrefillRows == 0 {
		return defaultPrefillRows
	}
	return o.PrefillRows
}

// stepRows is the largest number of rows of one decode forward.
func (o Options) stepRows() int {
	if o.Mode == AR {
		return 1
	}
	return max(1, min(2*o.Window, o.MaxTokens))
}

// check holds a request against its cache.
func (o Options) check(prompt []int32, base, capacity, maxRows int, text bool) error {
	if err := o.Validate(); err != nil {
		return err
	}
	if len(prompt) == 0 {
		return &OptionError{"prompt", "is empty", "at least one token"}
	}
	for i, id := range prompt {
		if id < 0 {
			return &OptionError{"prompt", fmt.Sprintf("id %d at %d", id, i), "ids of 0 or more"}
		}
	}
	if len(o.StopStrings) > 0 && !text {
		return &OptionError{"stop", strings.Join(o.StopStrings, ", "), "no stop strings where there is no detokenizer"}
	}
	if o.MaxTokens > capacity-len(prompt) {
		return &ContextError{len(prompt), o.MaxTokens, capacity}
	}
	if rows := o.stepRows(); rows > maxRows {
		return &OptionError{"window", fmt.Sprint(o.Window), fmt.Sprintf("at most %d: a step may feed two windows, the cache takes %d rows a forward", max(1, maxRows/2), maxRows)}
	}
	if base > 0 && o.PromptLogprobs != nil {
		return &OptionError{"prompt-logprobs", "given", "an empty cache beside them: tokens that are in it are not run again"}
	}
	if base > len(prompt) {
		return fmt.Errorf("the cache holds %d tokens: want at most the %d of the prompt", base, len(prompt))
	}
	return nil
}
