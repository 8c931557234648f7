package model

import (
	"context"
	"fmt"

	"windrow/backend"
)

// Forward runs one batch and returns a result for each wanted row, in the
// order of Want. The spans' caches are staged: Commit makes rows
// permanent; without it the next forward overwrites them.
//
// ctx is looked at before the device starts, and between operations where the
// host runs them. A forward that fails or is cancelled leaves no trace. Where a
// sequence lacked memory the error is a *backend.MemoryError that says which.
func (m *Model) Forward(ctx context.Context, b *Batch) ([]Result, error) {
	if err := m.check(b); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.spans = m.spans[:0]
	prompts := true
	for _, s := range b.Spans {
		prompts = prompts && s.Prompt
		s.Cache.Stage(0)
		m.spans = append(m.spans, backend.Span{Storage: s.Cache.storage, Base: s.Cache.base, First: s.First, Rows: s.Rows})
	}
	v := backend.Values{Tokens: b.Tokens, Positions: b.Positions, Spans: m.spans, Prompts: prompts, Want: b.Want, Tap: b.Hidden}
	if len(b.deferred) > 0 {
		v.Deferred = b.RunDeferred
	}
	if err := m.forward.Start(ctx, v); err != nil {
		return nil, err
	}
	b.Prepared = backend.Prepared(m.forward)
	results, err := m.forward.Wait()
	if err != nil {
		return nil, err
	}
	for _, s := range b.Spans {
		s.Cache.Stage(s.Rows)
	}
	return results, nil
}

// check compares a batch with the model and its caches.
func (m *Model) check(b *Batch) error {
	rows := len(b.Tokens)
	if rows == 0 || len(b.Positions) != rows || len(b.Spans) == 0 {
		return fmt.Errorf("batch: %d tokens, %d positions, %d spans", rows, len(b.Positions), len(b.Spans))
	}
	for r, t := range b.Tokens {
		if t < 0 || int(t) >= m.config.VocabSize {
			return fmt.Errorf("batch: token %d in row %d, want 0 to %d", t, r, m.config.VocabSize-1)
		}
		if p := b.Positions[r]; p < 0 || int(p) >= m.config.MaxPositions {
			return fmt.Errorf("batch: position %d in row %d: the model's context is %d tokens", p, r, m.config.MaxPositions)
		}
	}
	next := 0
	for i, s := range b.Spans {
		if s.Cache == nil || s.Cache.storage == nil {
			return fmt.Errorf("batch: span %d has no open cache", i)
		}
		for _, earlier := range b.Spans[:i] {
			if earlier.Cache == s.Cache {
				return fmt.Errorf("batch: span %d shares its cache with another span", i)
			}
		}
		if s.First != next || s.Rows <= 0 {
			return fmt.Errorf("batch: span %d holds rows %d to %d, want it to start at %d", i, s.First, s.First+s.Rows-1, next)
		}
		if s.Rows > s.Cache.maxRows {
			return fmt.Errorf("batch: span %d has %d rows, its cache takes %d a forward", i, s.Rows, s.Cache.maxRows)
		}
		if s.Cache.base > s.Cache.capacity {
			return fmt.Errorf("batch: span %d: %d tokens in a cache of %d", i, s.Cache.base, s.Cache.capacity)
		}
		next += s.Rows
	}
	if next != rows {
		return fmt.Errorf("batch: spans cover %d of %d rows", next, rows)
	}
	for i, w := range b.Want {
		if w.Row < 0 || int(w.Row) >= rows || (i > 0 && w.Row <= b.Want[i-1].Row) {
			return fmt.Errorf("batch: wanted row %d of %d; rows must ascend", w.Row, rows)
		}
	}
	return nil
}
