package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"windrow/backend"
	"windrow/model"
)

// Stopwatch measures one model on one machine: prefill, and steps of some rows at
// some context. It holds one cache a context, filled once. Each measurement has
// the device to itself. A Stopwatch is for one goroutine at a time.
//
// Steps come in long series, prompts one at a time: steps are measured once the device
// runs as in such a series, prompts as they come. Behind a burst, such as a prompt or
// copies at full power, a GPU's clock stays lower for a fifth of a second.
type Stopwatch struct {
	engine   *Engine
	contexts map[int]*model.Cache
	forks    map[int][]*model.Cache // of contexts', which share their memory
	random   *rand.Rand
	least    time.Duration // a step is repeated for at least so long
}

// NewStopwatch makes a stopwatch that repeats what it measures for at least so
// long. It must be closed before the engine.
func (e *Engine) NewStopwatch(least time.Duration) *Stopwatch {
	return &Stopwatch{engine: e, contexts: map[int]*model.Cache{}, forks: map[int][]*model.Cache{}, random: rand.New(rand.NewPCG(1, 2)), least: least}
}

// Close frees the caches.
func (s *Stopwatch) Close() {
	for _, list := range s.forks {
		for _, c := range list {
			s.engine.FreeCache(c)
		}
	}
	for _, c := range s.contexts {
		s.engine.FreeCache(c)
	}
}

// Prefill is the tokens per second of a prompt of n.
func (s *Stopwatch) Prefill(ctx context.Context, n int) (rate float64, err error) {
	return rate, s.prefilled(ctx, n, func(c *model.Cache) error {
		seconds, err := repeat(s.least, func() error { return s.refill(ctx, c, n) })
		rate = float64(n) / seconds
		return err
	})
}

// prefilled runs a measurement of a prompt of n, whose cache is freed then.
func (s *Stopwatch) prefilled(ctx context.Context, n int, measure func(*model.Cache) error) error {
	return s.alone(ctx, func() error {
		c, err := s.engine.newCache(n, min(n, s.chunk()))
		if err != nil {
			return err
		}
		defer c.Close()
		return measure(c)
	})
}

// refill is fill from the beginning.
func (s *Stopwatch) refill(ctx context.Context, c *model.Cache, n int) error {
	if _, err := c.Truncate(0); err != nil {
		return err
	}
	return s.fill(ctx, c, n)
}

// Step is the seconds of a forward of rows at a context, with the results of all
// rows.
func (s *Stopwatch) Step(ctx context.Context, rows, context int) (seconds float64, err error) {
	return seconds, s.alone(ctx, func() error {
		c, err := s.at(ctx, context, rows)
		if err != nil {
			return err
		}
		b := batch(wantAll, span{c, s.prompt(rows)})
		seconds, err = s.settled(func() error { return s.fresh(ctx, b) })
		return err
	})
}

// Batch is the seconds of a forward of rows for each of several sequences at a
// context, with the results of all rows.
func (s *Stopwatch) Batch(ctx context.Context, sequences, rows, context int) (seconds float64, err error) {
	err = s.batched(ctx, sequences, rows, context, func(b *model.Batch) error {
		seconds, err = s.settled(func() error { return s.fresh(ctx, b) })
		return err
	})
	return seconds, err
}

// timed is the backend, where its kernels tell when they run.
func (s *Stopwatch) timed() (backend.Timed, error) {
	timed, ok := s.engine.device.backend.(backend.Timed)
	if !ok {
		return nil, fmt.Errorf("engine: kernels of %s do not tell when they run", s.engine.BackendName())
	}
	return timed, nil
}

// PrefillTimeline is when the kernels of a prompt of n ran. Options.Timeline was set.
func (s *Stopwatch) PrefillTimeline(ctx context.Context, n int) (list []backend.Launched, err error) {
	timed, err := s.timed()
	if err != nil {
		return nil, err
	}
	err = s.prefilled(ctx, n, func(c *model.Cache) error {
		again := func() error { return s.refill(ctx, c, n) }
		if _, err := repeat(s.least, again); err != nil {
			return err
		}
		list, err = timed.Timeline(again)
		return err
	})
	return list, err
}

// Timeline is when the kernels of a step ran, in a series of them: of a forward of rows for each
// of several sequences at a context, with the results of all rows. Options.Timeline was set.
func (s *Stopwatch) Timeline(ctx context.Context, sequences, rows, context int) (list []backend.Launched, err error) {
	timed, err := s.timed()
	if err != nil {
		return nil, err
	}
	err = s.batched(ctx, sequences, rows, context, func(b *model.Batch) error {
		if _, err := repeat(2*s.least, func() error { return s.fresh(ctx, b) }); err != nil {
			return err
		}
		list, err = timed.Timeline(func() error { return s.fresh(ctx, b) })
		return err
	})
	return list, err
}

// batched runs a measurement of a forward of rows for each of several sequences, whose caches are
// freed then.
func (s *Stopwatch) batched(ctx context.Context, sequences, rows, context int, measure func(*model.Batch) error) error {
	return s.alone(ctx, func() error {
		var spans []span
		for range sequences {
			c, err := s.filled(ctx, context, rows)
			if err != nil {
				return err
			}
			defer c.Close()
			spans = append(spans, span{c, s.prompt(rows)})
		}
		return measure(batch(wantAll, spans...))
	})
}

// StepBytes is what a one-row step at a context reads: the weights, the states of
// recurrent layers, and the keys and values of all tokens, on all devices.
func (s *Stopwatch) StepBytes(context int) int64 {
	c := s.engine.Config()
	return s.engine.model.WeightBytes(s.engine.source) + c.StateBytes() + int64(context)*c.KVBytesPerToken(s.engine.options.KV)*int64(s.engine.model.KVCopies())
}

// alone runs a measurement in one turn.
func (s *Stopwatch) alone(ctx context.Context, measure func() error) error {
	if err := s.engine.device.take(ctx); err != nil {
		return err
	}
	defer s.engine.device.give()
	return measure()
}

// settled is repeat in a series: twice as long unmeasured before, but once at least, for
// what ran before has filled the caches with its own, and set the clock.
func (s *Stopwatch) settled(run func() error) (float64, error) {
	if _, err := repeat(2*s.least, run); err != nil {
		return 0, err
	}
	return repeat(s.least, run)
}

// repeat is the seconds of one run of what is run for at least so long, but once at
// least.
func repeat(least time.Duration, run func() error) (float64, error) {
	start, runs := time.Now(), 0
	for runs == 0 || time.Since(start) < least {
		if err := run(); err != nil {
			return 0, err
		}
		runs++
	}
	return time.Since(start).Seconds() / float64(runs), nil
}

// A sequence steps with ownRows at most; more are those of several with sharedRows each.
const ownRows, sharedRows = 32, 16

// once is the time of one forward as Step's, of up to ownRows, or of several sequences
// that begin alike; warm runs it once unmeasured before.
func (s *Stopwatch) once(ctx context.Context, rows, context int, warm bool) (time.Duration, error) {
	spans, err := s.spans(ctx, rows, context)
	if err != nil {
		return 0, err
	}
	b := batch(wantAll, spans...)
	if warm {
		if err := s.forward(ctx, b); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	err = s.fresh(ctx, b)
	return time.Since(start), err
}

// spans are rows at a context, of one sequence or of as many as it takes.
func (s *Stopwatch) spans(ctx context.Context, rows, context int) ([]span, error) {
	c, err := s.at(ctx, context, min(rows, ownRows))
	if err != nil {
		return nil, err
	}
	if rows <= ownRows {
		return []span{{c, s.prompt(rows)}}, nil
	}
	for len(s.forks[context])*sharedRows < rows {
		f, err := c.Fork(context, max(context, 1), sharedRows)
		if err != nil {
			return nil, err
		}
		s.forks[context] = append(s.forks[context], f)
	}
	var list []span
	for _, f := range s.forks[context][:(rows+sharedRows-1)/sharedRows] {
		list = append(list, span{f, s.prompt(min(sharedRows, rows-len(list)*sharedRows))})
	}
	return list, nil
}

// at returns a cache that holds context tokens and takes rows more.
func (s *Stopwatch) at(ctx context.Context, context, rows int) (*model.Cache, error) {
	old := s.contexts[context]
	if old != nil && old.MaxRows() >= rows {
		return old, nil
	}
	c, err := s.filled(ctx, context, rows)
	if err != nil {
		return nil, err
	}
	if old != nil {
		old.Close()
	}
	s.contexts[context] = c
	return c, nil
}

// filled makes a cache that holds context tokens and takes rows more.
func (s *Stopwatch) filled(ctx context.Context, context, rows int) (*model.Cache, error) {
	c, err := s.engine.newCache(max(context, 1), max(rows, min(s.chunk(), max(context, 1))))
	if err != nil {
		return nil, err
	}
	if err := s.fill(ctx, c, context); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// fill makes n random tokens permanent, in chunks as a prompt is prefilled;
// the last row's result is computed, as for a prompt.
func (s *Stopwatch) fill(ctx context.Context, c *model.Cache, n int) error {
	ids := s.prompt(n)
	for len(ids) > 0 {
		k, w := min(s.chunk(), c.MaxRows(), len(ids)), wantNone
		if k == len(ids) {
			w = wantLast
		}
		b := batch(w, span{c, ids[:k]})
		b.Spans[0].Prompt = true
		if err := s.forward(ctx, b); err != nil {
			return err
		}
		if err := c.Commit(k); err != nil {
			return err
		}
		ids = ids[k:]
	}
	return nil
}

// chunk is how many rows of a prompt one forward carries.
func (s *Stopwatch) chunk() int { return s.engine.Features().PrefillRows }

// prompt is n random ids. Which they are does not matter to a dense model's time; in a
// mixture they decide how many experts a forward reads, and which.
func (s *Stopwatch) prompt(n int) []int32 {
	ids := make([]int32, n)
	s.draw(ids)
	return ids
}

func (s *Stopwatch) draw(ids []int32) {
	for i := range ids {
		ids[i] = s.random.Int32N(int32(s.engine.Config().VocabSize))
	}
}

// fresh is a forward of a batch that may have run before. A mixture has new ids in it: the
// experts that the old ones chose may still lie in the processor's caches, and are one draw
// of how many a forward reads.
func (s *Stopwatch) fresh(ctx context.Context, b *model.Batch) error {
	if s.engine.Config().Experts != nil {
		s.draw(b.Tokens)
	}
	return s.forward(ctx, b)
}

func (s *Stopwatch) forward(ctx context.Context, b *model.Batch) error {
	_, err := s.engine.model.Forward(ctx, b)
	return err
}
