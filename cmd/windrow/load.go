package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"windrow/checkpoint"
	"windrow/decoder"
	"windrow/internal/unless"
	"windrow/model"
	"windrow/models/tinygsm"
	"windrow/tokenizer"
)

// stopTokens end an answer besides the config's and generation config's eos
// ids: chat models are sometimes published with only one of the two there.
var stopTokens = []string{"<|im_end|>", "<|endoftext|>"}

// engine is an open model with what a command needs around it.
type engine struct {
	name       string
	checkpoint *checkpoint.Checkpoint
	backend    *opened
	model      *model.Model
	tokens     *tokenizer.Tokenizer
	machine    machineOptions
	noThink    bool // ask the chat template for no thinking part
}

// embedded reports whether a path means the embedded model: none, or its name
// where there is nothing of that name on disk.
func embedded(path string) bool {
	if path == tinygsm.Name {
		_, err := os.Lstat(path)
		return errors.Is(err, fs.ErrNotExist)
	}
	return path == ""
}

// openCheckpoint opens a model folder, a GGUF file, or the embedded model, and
// names it.
func openCheckpoint(ctx context.Context, path string) (*checkpoint.Checkpoint, string, error) {
	name := filepath.Base(filepath.Clean(path))
	if embedded(path) {
		name = tinygsm.Name
	}
	c, err := unless.Cancelled(ctx, func() (*checkpoint.Checkpoint, error) { return readCheckpoint(path) }, nil)
	return c, name, err
}

func readCheckpoint(path string) (*checkpoint.Checkpoint, error) {
	if !embedded(path) {
		return checkpoint.Open(path)
	}
	if !tinygsm.Available {
		return nil, usagef("this binary has no embedded model: name a model folder or a .gguf file")
	}
	return checkpoint.New(tinygsm.Files())
}

// openModel opens a model without its tokenizer.
func openModel(ctx context.Context, path string, m machineOptions) (*engine, error) {
	source, name, err := openCheckpoint(ctx, path)
	if err != nil {
		return nil, err
	}
	e := &engine{name: name, checkpoint: source, machine: m}
	return unless.Cancelled(ctx, func() (*engine, error) { return e, e.load(ctx, false) }, nil)
}

// openEngine opens a model and its tokenizer.
func openEngine(ctx context.Context, path string, m machineOptions, noThink bool) (*engine, error) {
	source, name, err := openCheckpoint(ctx, path)
	if err != nil {
		return nil, err
	}
	e := &engine{name: name, checkpoint: source, machine: m, noThink: noThink}
	return unless.Cancelled(ctx, func() (*engine, error) { return e, e.load(ctx, true) }, nil)
}

// load reads the tokenizer, if it is wanted, and the weights. After an error
// the engine is closed.
func (e *engine) load(ctx context.Context, tokens bool) (err error) {
	defer func() {
		if err != nil {
			e.Close()
		}
	}()
	if tokens {
		if e.tokens, err = tokenizer.Load(e.checkpoint); err != nil {
			return err
		}
	}
	if err = e.start(ctx, e.checkpoint); err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	return nil
}

// start starts the backend and hands it the weights, which may have to be
// converted first.
func (e *engine) start(ctx context.Context, src checkpoint.Source) error {
	b, err := openBackend(e.machine, src, os.Stderr)
	if err != nil {
		return err
	}
	e.backend = b
	e.model, err = model.LoadContext(ctx, b.Backend, src)
	return err
}

// Close frees the model, the backend and the files, in this order: a backend
// may hold the files' bytes.
func (e *engine) Close() {
	if e.backend != nil {
		e.backend.Close()
	}
	if e.checkpoint != nil {
		e.checkpoint.Close()
	}
}

// encode turns a conversation into the prompt's ids: through the chat
// template, where special tokens come from the template only, or as the plain
// text of its last message where raw is set.
func (e *engine) encode(ctx context.Context, messages []tokenizer.Message, raw bool) (ids []int32, err error) {
	if raw {
		ids, err = e.tokens.Encode(messages[len(messages)-1].Content)
	} else {
		if !e.tokens.HasChatTemplate() {
			return nil, fmt.Errorf("%s has no chat template: use --raw", e.name)
		}
		o := tokenizer.ChatOptions{AddGenerationPrompt: true}
		if e.noThink {
			o.EnableThinking = new(bool)
		}
		ids, err = e.tokens.EncodeChat(ctx, messages, o)
	}
	if err != nil {
		return nil, err
	}
	if vocabulary := e.model.Config().VocabSize; len(ids) > 0 && int(slices.Max(ids)) >= vocabulary {
		return nil, fmt.Errorf("the tokenizer gives id %d, the model has %d: they do not belong together", slices.Max(ids), vocabulary)
	}
	return ids, nil
}

// complete fills in what the model decides: the mode of auto, the vocabulary,
// the stop ids, and the bound of tokens, which defaults to what the model
// suggests and what its context leaves. The result fits the context.
func (e *engine) complete(o decoder.Options, mode decoder.Mode, promptTokens int, maxTokensGiven bool) (decoder.Options, error) {
	o = e.adapt(o, mode)
	context := e.model.Config().MaxPositions
	left := context - promptTokens
	switch {
	case promptTokens == 0:
		return o, usagef("the prompt is empty")
	case left < 1:
		return o, fmt.Errorf("the prompt has %d tokens, the context of %s is %d: nothing can be generated", promptTokens, e.name, context)
	case !maxTokensGiven:
		o.MaxTokens = min(e.defaultMaxTokens(), left)
	case o.MaxTokens > left:
		return o, fmt.Errorf("the prompt has %d tokens and --max-tokens is %d, the context of %s is %d", promptTokens, o.MaxTokens, e.name, context)
	}
	return o, e.checkMode(o)
}

// adapt sets mode, vocabulary, stop ids and prefill chunk for this model.
func (e *engine) adapt(o decoder.Options, mode decoder.Mode) decoder.Options {
	config := e.model.Config()
	if mode == "" {
		mode = decoder.AR
		// A WeDLM that was converted to qwen3 says what it is by its mask
		// alone: in a GGUF's metadata, or in --mask-id.
		if config.MaskTokenID >= 0 || o.Vocabulary.MaskID >= 0 {
			mode = decoder.Verified
		}
	}
	o.Mode = mode
	if o.Vocabulary.MaskID < 0 {
		o.Vocabulary.MaskID = config.MaskTokenID
	}
	o.Vocabulary.Size = int32(min(e.tokens.Size(), config.VocabSize))
	o.StopIDs = e.stopIDs()
	o.PrefillRows = e.backend.Features().PrefillRows
	return o
}

// checkMode refuses ids that the model does not have, and a window on a model
// that has no mask to put into it.
func (e *engine) checkMode(o decoder.Options) error {
	vocabulary := e.model.Config().VocabSize
	for _, id := range slices.Sorted(maps.Keys(o.Sampling.LogitBias)) {
		if int(id) >= vocabulary {
			return usagef("--logit-bias %d=%g: %s has ids 0 to %d", id, o.Sampling.LogitBias[id], e.name, vocabulary-1)
		}
	}
	switch id := int(o.Vocabulary.MaskID); {
	case id >= vocabulary:
		return usagef("--mask-id %d: %s has ids 0 to %d", id, e.name, vocabulary-1)
	case id < 0 && o.Mode != decoder.AR:
		return usagef("--mode %s: %s has no mask token in its config: use --mode ar, or --mask-id", o.Mode, e.name)
	}
	return optionError(o.Validate())
}

func (e *engine) stopIDs() []int32 {
	ids := slices.Clone(e.model.Config().EOSTokenIDs)
	if g := e.checkpoint.Generation(); g != nil {
		ids = append(ids, g.EOSTokenIDs...)
	}
	for _, t := range stopTokens {
		if id, ok := e.tokens.ID(t); ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func (e *engine) defaultMaxTokens() int {
	if g := e.checkpoint.Generation(); g != nil && g.MaxNewTokens > 0 {
		return g.MaxNewTokens
	}
	return defaultMaxTokens
}

// newCache makes the cache for one generation.
func (e *engine) newCache(promptTokens int, o decoder.Options) (*model.Cache, error) {
	capacity, rows := decoder.CacheSize(promptTokens, o)
	return e.cache(capacity, rows)
}

func (e *engine) cache(capacity, rows int) (*model.Cache, error) {
	return e.model.NewCache(model.CacheOptions{
		Capacity: capacity, MaxRows: rows, DType: e.machine.kv,
		Window: e.machine.kvWindow, Keep: e.machine.kvKeep,
	})
}

// piece is one token's text, for pictures of the window; tokens that are half
// a character show as replacement characters.
func (e *engine) piece(id int32) string {
	return e.tokens.Decode([]int32{id}, false)
}
