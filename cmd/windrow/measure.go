package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/decoder"
	"windrow/model"
)

// stopwatch measures one model on one machine: prefill, steps of some rows at
// some context, and the memory's bandwidth beside them. It holds one cache a
// context, filled once.
type stopwatch struct {
	engine   *engine
	contexts map[int]*model.Cache
	random   *rand.Rand
	least    time.Duration // a step is repeated for at least so long
}

func newStopwatch(e *engine, least time.Duration) *stopwatch {
	return &stopwatch{engine: e, contexts: map[int]*model.Cache{}, random: rand.New(rand.NewPCG(1, 2)), least: least}
}

func (s *stopwatch) Close() {
	for _, c := range s.contexts {
		c.Close()
	}
}

// prompt is n random ids: a forward's time does not depend on them.
func (s *stopwatch) prompt(n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = s.random.Int32N(int32(s.engine.model.Config().VocabSize))
	}
	return ids
}

// at returns a cache that holds context tokens and takes rows more.
func (s *stopwatch) at(ctx context.Context, context, rows int) (*model.Cache, error) {
	if c := s.contexts[context]; c != nil && c.MaxRows() >= rows {
		return c, nil
	}
	chunk := s.engine.backend.Features().PrefillRows
	c, err := s.engine.cache(max(context, 1), max(rows, min(chunk, max(context, 1))))
	if err != nil {
		return nil, err
	}
	if err := s.fill(ctx, c, context); err != nil {
		c.Close()
		return nil, err
	}
	if old := s.contexts[context]; old != nil {
		old.Close()
	}
	s.contexts[context] = c
	return c, nil
}

// fill makes n random tokens permanent, in chunks as a prompt is prefilled;
// the last row's result is computed, as for a prompt.
func (s *stopwatch) fill(ctx context.Context, c *model.Cache, n int) error {
	ids := s.prompt(n)
	chunk := min(s.engine.backend.Features().PrefillRows, c.MaxRows())
	for len(ids) > 0 {
		k := min(chunk, len(ids))
		var want []int32
		if k == len(ids) {
			want = []int32{int32(k - 1)}
		}
		if err := s.forward(ctx, c, ids[:k], want); err != nil {
			return err
		}
		if err := c.Commit(k); err != nil {
			return err
		}
		ids = ids[k:]
	}
	return nil
}

func (s *stopwatch) forward(ctx context.Context, c *model.Cache, ids, want []int32) error {
	positions := make([]int32, len(ids))
	for i := range positions {
		positions[i] = int32(c.Base() + i)
	}
	_, err := s.engine.model.Forward(ctx, &model.Batch{
		Tokens: ids, Positions: positions,
		Spans: []model.Span{{Cache: c, Rows: len(ids)}},
		Want:  model.Want{Rows: want, Except: -1},
	})
	return err
}

// prefill is the tokens per second of a prompt of n.
func (s *stopwatch) prefill(ctx context.Context, n int) (float64, error) {
	c, err := s.engine.cache(n, min(n, s.engine.backend.Features().PrefillRows))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	start, runs := time.Now(), 0
	for runs == 0 || time.Since(start) < s.least {
		if err := c.Truncate(0); err != nil {
			return 0, err
		}
		if err := s.fill(ctx, c, n); err != nil {
			return 0, err
		}
		runs++
	}
	return float64(n*runs) / time.Since(start).Seconds(), nil
}

// step is the seconds of a forward of rows at a context, with the results of
// all rows.
func (s *stopwatch) step(ctx context.Context, rows, context int) (float64, error) {
	// Once unmeasured: what ran before has filled the caches with its own.
	if _, err := s.once(ctx, rows, context, false); err != nil {
		return 0, err
	}
	c, err := s.at(ctx, context, rows)
	if err != nil {
		return 0, err
	}
	ids, want := s.prompt(rows), allRows(rows)
	start, runs := time.Now(), 0
	for runs == 0 || time.Since(start) < s.least {
		if err := s.forward(ctx, c, ids, want); err != nil {
			return 0, err
		}
		runs++
	}
	return time.Since(start).Seconds() / float64(runs), nil
}

// once is the time of one such forward; warm runs it once unmeasured before.
func (s *stopwatch) once(ctx context.Context, rows, context int, warm bool) (time.Duration, error) {
	c, err := s.at(ctx, context, rows)
	if err != nil {
		return 0, err
	}
	ids, want := s.prompt(rows), allRows(rows)
	if warm {
		if err := s.forward(ctx, c, ids, want); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	err = s.forward(ctx, c, ids, want)
	return time.Since(start), err
}

// batch is the seconds of a forward of rows for each of several sequences at a
// context, with the results of all rows.
func (s *stopwatch) batch(ctx context.Context, sequences, rows, context int) (float64, error) {
	b := &model.Batch{Want: model.Want{Rows: allRows(sequences * rows), Except: -1}}
	for i := range sequences {
		c, err := s.engine.cache(max(context, 1), max(rows, min(s.engine.backend.Features().PrefillRows, max(context, 1))))
		if err != nil {
			return 0, err
		}
		defer c.Close()
		if err := s.fill(ctx, c, context); err != nil {
			return 0, err
		}
		b.Spans = append(b.Spans, model.Span{Cache: c, First: i * rows, Rows: rows})
		b.Tokens = append(b.Tokens, s.prompt(rows)...)
		for r := range rows {
			b.Positions = append(b.Positions, int32(context+r))
		}
	}
	if _, err := s.engine.model.Forward(ctx, b); err != nil {
		return 0, err
	}
	start, runs := time.Now(), 0
	for runs == 0 || time.Since(start) < s.least {
		if _, err := s.engine.model.Forward(ctx, b); err != nil {
			return 0, err
		}
		runs++
	}
	return time.Since(start).Seconds() / float64(runs), nil
}

func allRows(n int) []int32 {
	rows := make([]int32, n)
	for i := range rows {
		rows[i] = int32(i)
	}
	return rows
}

// stepBytes is what a one-row step at a context reads: the weights, and the
// keys and values of all tokens.
func (s *stopwatch) stepBytes(src checkpoint.Source, context int) int64 {
	c := s.engine.model.Config()
	kv := backend.KVLayout{Layers: c.Layers, KVHeads: c.KVHeads, HeadDim: c.HeadDim, DType: s.engine.machine.kv}
	return s.engine.model.WeightBytes(src) + int64(context)*kv.BytesPerToken()
}

// modeRun sums the answers of one mode to all prompts.
type modeRun struct {
	tokens, forwards, rows       int
	drafts, accepted             int
	masks, leastMasks, mostMasks int
	seconds                      float64
}

// answer generates one answer and adds it to the sum.
func (r *modeRun) answer(ctx context.Context, e *engine, ids []int32, o decoder.Options) error {
	cache, err := e.newCache(len(ids), o)
	if err != nil {
		return err
	}
	defer cache.Close()
	s, err := decoder.Generate(ctx, e.model, cache, ids, o, nil, decoder.Hooks{})
	if err == nil && s.FinishReason == decoder.FinishCancelled {
		err = context.Canceled
	}
	if err != nil {
		return fmt.Errorf("mode %s: %w", o.Mode, err)
	}
	if r.forwards == 0 {
		r.leastMasks = s.Stats.LeastMasks
	}
	r.leastMasks, r.mostMasks = min(r.leastMasks, s.Stats.LeastMasks), max(r.mostMasks, s.Stats.MostMasks)
	r.masks += s.Stats.Masks
	r.drafts += s.Stats.Drafts
	r.accepted += s.Stats.Accepted
	r.tokens += s.Stats.Tokens
	r.forwards += s.Stats.Forwards
	r.rows += s.Stats.Rows
	r.seconds += s.Stats.DecodeSeconds
	return nil
}

func (r modeRun) tokensPerSecond() float64 {
	if r.seconds == 0 {
		return 0
	}
	return float64(r.tokens) / r.seconds
}
