package engine

import (
	"bytes"
	"context"
	"fmt"

	"windrow/decoder"
)

// VocabularyError is a model that cannot draft for another one.
type VocabularyError struct {
	Drafter, Model string
	// ID is the first id that means something else to the drafter, and Texts what it
	// means to it and to the model.
	ID    int32
	Texts [2]string
}

func (e *VocabularyError) Error() string {
	return fmt.Sprintf("%s cannot draft for %s: id %d is %.40q there, %.40q here: want a model with the same vocabulary",
		e.Drafter, e.Model, e.ID, e.Texts[0], e.Texts[1])
}

// DraftWith makes a smaller model draft where decoder.Options.Draft is DraftModel. It may
// be on the same device or another one, and must stay open while e generates. Its c(rows)
// is measured where that is not known.
//
// Errors: ErrNoTokenizer, a *VocabularyError, or ctx's.
func (e *Engine) DraftWith(ctx context.Context, drafter *Engine) error {
	if e.tokens == nil || drafter.tokens == nil {
		return ErrNoTokenizer
	}
	if err := e.sameVocabulary(drafter); err != nil {
		return err
	}
	cost := drafter.Cost(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	// What cannot be measured is taken to cost as much as the model's own rows.
	if cost == nil {
		cost = e.Cost(ctx)
	}
	d := &smallerModel{engine: drafter}
	if cost != nil {
		d.seconds = cost.Seconds(1)
	}
	e.drafter = d
	return nil
}

// sameVocabulary compares all ids that the model can choose.
func (e *Engine) sameVocabulary(drafter *Engine) error {
	size := e.vocabulary(e.Config()).Size
	for id := range size {
		here, _ := e.tokens.Token(id)
		there, ok := drafter.tokens.Token(id)
		if ok && int(id) < drafter.Config().VocabSize && (here == there || bytes.Equal(e.tokens.Bytes(id), drafter.tokens.Bytes(id)) && len(e.tokens.Bytes(id)) > 0) {
			continue
		}
		return &VocabularyError{drafter.name, e.name, id, [2]string{there, here}}
	}
	return nil
}

// smallerModel drafts for another one.
type smallerModel struct {
	engine  *Engine
	seconds float64 // of a forward of one row
}

// draft makes the drafter of a sequence.
func (m *smallerModel) draft() (decoder.Drafter, error) {
	rows := m.engine.Features().PrefillRows
	// Storage grows with the tokens held, so the whole context costs nothing.
	cache, err := m.engine.NewCache(context.Background(), m.engine.Config().MaxPositions, rows)
	if err != nil {
		return nil, fmt.Errorf("drafts of %s: %w", m.engine.name, err)
	}
	return decoder.NewModelDrafter(decoder.ModelDrafts{
		Engine: m.engine, Cache: cache, Seconds: m.seconds, PrefillRows: rows, Free: m.engine.FreeCache,
	}), nil
}
