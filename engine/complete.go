package engine

import (
	"context"
	"maps"
	"slices"

	"windrow/checkpoint"
	"windrow/decoder"
	"windrow/model"
)

// DefaultMaxTokens bounds an answer where neither the caller nor the model's
// generation config does.
const DefaultMaxTokens = 512

// stopTokens end an answer besides the config's and generation config's eos
// ids: chat models are sometimes published with only one of the two there.
var stopTokens = []string{"<|im_end|>", "<|endoftext|>"}

// Complete fills in what the model decides, and checks the rest against it and
// against a prompt of so many tokens. What it returns it would return unchanged.
//
//   - Mode "" is verified for a model that was trained to fill masks or has a head for
//     drafts, where Draft says who drafts, and under a constraint, whose forced text it
//     drafts; ar for any other.
//   - Draft "" is decoder.DraftAuto in mode verified. DraftModel is what DraftWith said.
//   - Window 0 stands for the window, threshold and penalty of
//     decoder.DefaultOptions; in verified for those of the Calibration.
//   - MaxTokens 0 is what the generation config suggests, or DefaultMaxTokens,
//     as far as the context leaves it.
//   - StopIDs get those of the model; Vocabulary and PrefillRows are the model's
//     and the backend's, whatever was there.
//
// Errors: ErrEmptyPrompt, a *ContextError, a *ModeError, a *BiasError, or a
// *decoder.OptionError.
func (e *Engine) Complete(o decoder.Options, promptTokens int) (decoder.Options, error) {
	context := e.Config().MaxPositions
	left := context - promptTokens
	switch {
	case promptTokens == 0:
		return o, ErrEmptyPrompt
	case left < 1:
		return o, &ContextError{e.name, promptTokens, 0, context}
	case o.MaxTokens > left:
		return o, &ContextError{e.name, promptTokens, o.MaxTokens, context}
	}
	o = e.Defaults(o)
	o.MaxTokens = min(o.MaxTokens, left)
	return o, e.Check(o)
}

// Defaults is Complete before the prompt is known, and without the checks.
func (e *Engine) Defaults(o decoder.Options) decoder.Options {
	config := e.Config()
	o.Vocabulary = e.vocabulary(config)
	if o.Mode == "" {
		o.Mode = decoder.AR
		// A WeDLM that was converted to qwen3 says what it is by its mask
		// alone: in a GGUF's metadata, or in Options.MaskID.
		asked := o.Draft != "" && o.Draft != decoder.DraftNone
		if o.Vocabulary.MaskID >= 0 || e.model.Drafts() && o.Draft != decoder.DraftNone || o.Constraint != nil || asked {
			o.Mode = decoder.Verified
		}
	}
	if o.Mode == decoder.Verified && o.Draft == "" {
		o.Draft = decoder.DraftAuto
	}
	if o.Draft == decoder.DraftModel && o.NewDrafter == nil && e.drafter != nil {
		o.NewDrafter = e.drafter.draft
	}
	if o.Mode == decoder.Verified && o.Head == nil && (o.Draft == decoder.DraftMTP || o.Draft == decoder.DraftAuto) {
		o.Head = e.headDrafts()
	}
	if o.Window == 0 {
		d := decoder.DefaultOptions()
		o.Window, o.EntropyThreshold, o.PosPenalty = d.Window, d.EntropyThreshold, d.PosPenalty
		o = e.Calibrated(o)
	}
	if o.MaxTokens == 0 {
		o.MaxTokens = max(1, min(e.maxTokens(), config.MaxPositions-1))
	}
	o.StopIDs = append(e.stopIDs(), o.StopIDs...)
	slices.Sort(o.StopIDs)
	o.StopIDs = slices.Compact(o.StopIDs)
	o.PrefillRows = e.Features().PrefillRows
	return o
}

// vocabulary is what the model may choose, and its mask.
func (e *Engine) vocabulary(config *checkpoint.Config) decoder.Vocabulary {
	v := decoder.Vocabulary{Size: int32(config.VocabSize), MaskID: config.MaskTokenID}
	if id := e.options.MaskID; id != nil {
		v.MaskID = *id
	}
	if e.tokens != nil {
		v.Size = int32(min(e.tokens.Size(), config.VocabSize))
	}
	return v
}

// load hands weights to the device. What may never be chosen is said here, once.
func (e *Engine) load(ctx context.Context, src checkpoint.Source) (*model.Model, error) {
	v := e.vocabulary(src.Config())
	return model.LoadContext(ctx, e.device.backend, src, append(e.headOptions(), model.Barring(v.Size, v.MaskID))...)
}

// Check refuses options that are out of range, ids that the model does not have,
// and a window on a model that has no mask to put into it. The options must be
// complete, or Defaults'.
func (e *Engine) Check(o decoder.Options) error {
	vocabulary := e.Config().VocabSize
	for _, id := range slices.Sorted(maps.Keys(o.Sampling.LogitBias)) {
		if int(id) >= vocabulary {
			return &BiasError{e.name, id, o.Sampling.LogitBias[id], vocabulary}
		}
	}
	if o.Draft == decoder.DraftMTP && o.Mode == decoder.Verified && o.Head == nil {
		return e.lacksHead()
	}
	if o.Draft == decoder.DraftModel && o.Mode == decoder.Verified && o.NewDrafter == nil {
		return &decoder.OptionError{Option: "draft", Got: string(o.Draft), Want: "another: no smaller model was opened beside this one"}
	}
	if o.Mode == decoder.WeDLM && e.Config().Delta != nil { // before the mask: another one would not help
		return &ModeError{Model: e.name, Mode: o.Mode, Recurrent: true}
	}
	// What a constraint forces is drafted without masks, too, but they were asked for.
	if masks := o.Mode == decoder.Verified && o.Draft == decoder.DraftMask; masks && o.Vocabulary.MaskID < 0 {
		return &ModeError{Model: e.name, Mode: o.Mode, Draft: o.Draft}
	}
	if o.LacksMask() {
		return &ModeError{Model: e.name, Mode: o.Mode}
	}
	return o.Validate()
}

// stopIDs are the ids that end the model's answers.
func (e *Engine) stopIDs() []int32 {
	ids := slices.Clone(e.Config().EOSTokenIDs)
	if g := e.generation(); g != nil {
		ids = append(ids, g.EOSTokenIDs...)
	}
	if e.tokens != nil {
		for _, t := range stopTokens {
			if id, ok := e.tokens.ID(t); ok {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// maxTokens is how many tokens the model suggests to generate at most.
func (e *Engine) maxTokens() int {
	if g := e.generation(); g != nil && g.MaxNewTokens > 0 {
		return g.MaxNewTokens
	}
	return DefaultMaxTokens
}

// generation is the model's generation config; nil where it has none.
func (e *Engine) generation() *checkpoint.GenerationConfig {
	if e.files == nil {
		return nil
	}
	return e.files.Generation()
}
