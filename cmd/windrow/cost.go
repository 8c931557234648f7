package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"windrow/checkpoint"
	"windrow/decoder"
)

// The measurement of c(rows) for the adaptive window.
const (
	// costContext is how many tokens the steps see, as many as a question and
	// half its answer: on tiny-gsm 17 rows cost 1.4 of one at 32 tokens and 1.7
	// at 256. Where a sixth of the time would not fill the cache with so many,
	// the steps see shortContext: there weights, not keys, are what counts.
	costContext, shortContext = 256, 32
	// costTime is when the measurement ends, a forward in progress apart, and
	// costRounds how often every point is taken at most. On a busy machine five
	// rounds of a 2 ms step were off by a factor of two.
	costTime   = 700 * time.Millisecond
	costRounds = 25
)

// costRows are the points of a round, those first that matter most where time
// is short; all others are compared with one row, which is taken most often.
var costRows = []int{1, 16, 8, 4, 1, 32, 2, 24, 12, 1, 6, 3, 20, 10, 1, 48}

// measureCost measures a step's time by its rows, all results wanted, in less
// than a second where no single forward takes longer. What else runs on the
// machine only ever makes a forward slower: so rounds alternate over the
// points, a point is the quickest of its rounds, and none is slower than one of
// more rows.
func measureCost(ctx context.Context, e *engine, limit time.Duration) (*decoder.CostModel, error) {
	start := time.Now()
	late := func() bool { return time.Since(start) > limit }
	s := newStopwatch(e, 0)
	defer s.Close()
	context, most := shortContext, slices.Max(costRows)
	if n := e.model.Config().MaxPositions; context+most > n {
		if context, most = 0, min(most, n-1); most < 1 {
			return nil, fmt.Errorf("a context of %d tokens has no room to measure in", n)
		}
	}
	if _, err := s.at(ctx, context, most); err != nil {
		return nil, err
	}
	full := time.Since(start) * costContext / shortContext
	if context == shortContext && full < limit/6 && costContext+most <= e.model.Config().MaxPositions {
		context = costContext
		if _, err := s.at(ctx, context, most); err != nil {
			return nil, err
		}
	}
	least := map[int]time.Duration{}
	for round := range costRounds {
		for _, rows := range costRows {
			// Two points make a line: fewer are of no use.
			if rows > most || late() && len(least) >= 2 {
				continue
			}
			t, err := s.once(ctx, rows, context, round == 0 && !late())
			if err != nil {
				return nil, err
			}
			if old, ok := least[rows]; !ok || t < old {
				least[rows] = t
			}
		}
	}
	seconds := map[int]float64{}
	for rows, t := range least {
		seconds[rows] = max(t, time.Nanosecond).Seconds()
	}
	return decoder.NewCostModel(leastPoints(seconds))
}

// costKey names what c(rows) depends on: program, device, kernels, threads,
// arithmetic and the shapes and formats of the weights, not their values.
func costKey(e *engine, src checkpoint.Source) string {
	f, c := e.backend.Features(), src.Config()
	h := sha256.New()
	for _, name := range src.Names() {
		if t, ok := src.Tensor(name); ok {
			fmt.Fprintln(h, name, t.DType, t.Shape, t.Group)
		}
	}
	return fmt.Sprintf("windrow %s %s, %s: %s, %s, %d threads, exact %t, KV %s; layers %d, heads %d/%d of %d, hidden %d/%d, vocabulary %d, weights %x",
		version, commit(), e.backend.Name(), f.Description, f.Kernels, f.Threads, f.Exact, e.machine.kv,
		c.Layers, c.Heads, c.KVHeads, c.HeadDim, c.HiddenSize, c.IntermediateSize, c.VocabSize, h.Sum(nil)[:8])
}

// cost is c(rows) of an open model: what is kept of it, or measured now. It is
// nil where it cannot be measured: then the window is fixed.
func (e *engine) cost(ctx context.Context, src checkpoint.Source) *decoder.CostModel {
	return keptCost(costKey(e, src), time.Now(), func() (*decoder.CostModel, error) { return measureCost(ctx, e, costTime) })
}

// windowChoice is what --window says: how many slots, or auto.
type windowChoice struct {
	given, auto bool
	measured    bool
	cost        *decoder.CostModel
}

// adaptive reports whether the window adapts. Where nothing was asked for,
// verified's does, as its text stays the same; wedlm's may depend on it.
func (w *windowChoice) adaptive(o decoder.Options) bool {
	switch o.Mode {
	case decoder.Verified:
		return w.auto || !w.given
	case decoder.WeDLM:
		return w.auto
	}
	return false
}

// apply completes the options for their mode. The cost is measured when it is
// first needed.
func (w *windowChoice) apply(ctx context.Context, e *engine, o decoder.Options) decoder.Options {
	o.Cost = nil
	if !w.adaptive(o) {
		return o
	}
	if !w.measured {
		// What was cut short is measured again at the next need.
		w.cost = e.cost(ctx, e.checkpoint)
		w.measured = ctx.Err() == nil
	}
	if w.cost != nil {
		// Two windows are the most rows of a step: a row must be the same in it
		// as alone.
		o.Cost, o.Window = w.cost, min(autoWindow, max(1, e.backend.Features().BatchInvariantRows/2))
	}
	return o
}
