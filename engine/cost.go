package engine

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"windrow/decoder"
)

// adaptiveWindow is the most that an adaptive window weighs.
const adaptiveWindow = 24

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
// is short; all others are compared with one row, which is taken most often. More than
// ownRows are those of several sequences, as a scheduler feeds them together: a GPU has
// other kernels for 8 × 16 rows than for 128 of one sequence. The largest, sharedCostRows,
// are taken in one of sharedCostRounds rounds, and only where one takes no more than
// sharedCostShare of the whole time.
var (
	costRows       = []int{1, 16, 8, 4, 1, 32, 2, 24, 12, 1, 6, 3, 20, 10, 1, 48}
	sharedCostRows = []int{128, 64, 256, 512}
)

const (
	sharedCostRounds = 4
	sharedCostShare  = 1.0 / 16
)

// measureCost measures a step's time by its rows, all results wanted, in less
// than a second where no single forward takes longer. What else runs on the
// machine only ever makes a forward slower: so rounds alternate over the
// points, a point is the quickest of its rounds, and none is slower than one of
// more rows. Between forwards others have their turn, whose time does not count.
func (e *Engine) measureCost(ctx context.Context, limit time.Duration) (*decoder.CostModel, error) {
	var spent time.Duration
	s := e.NewStopwatch(0)
	defer s.Close()
	fill := func(context, most int) error {
		return s.alone(ctx, func() error {
			start := time.Now()
			_, err := s.at(ctx, context, most)
			spent += time.Since(start)
			return err
		})
	}
	late := func() bool { return spent > limit }
	context, most := shortContext, ownRows
	if n := e.Config().MaxPositions; context+most > n {
		if context, most = 0, min(most, n-1); most < 1 {
			return nil, fmt.Errorf("a context of %d tokens has no room to measure in", n)
		}
	}
	if err := fill(context, most); err != nil {
		return nil, err
	}
	full := spent * costContext / shortContext
	if context == shortContext && full < limit/6 && costContext+most <= e.Config().MaxPositions {
		context = costContext
		if err := fill(context, most); err != nil {
			return nil, err
		}
	}
	least := map[int]time.Duration{}
	for round := range costRounds {
		points := costRows
		if round%sharedCostRounds == 0 {
			points = slices.Concat(costRows, sharedCostRows)
		}
		for _, rows := range points {
			// Two points make a line: fewer are of no use.
			if late() && len(least) >= 2 || min(rows, ownRows) > most {
				continue
			}
			own, known := least[ownRows]
			if rows > slices.Max(costRows) && (!known || float64(own)*float64(rows)/ownRows > sharedCostShare*float64(limit)) {
				continue
			}
			var t time.Duration
			err := s.alone(ctx, func() (err error) {
				start := time.Now()
				t, err = s.once(ctx, rows, context, round == 0 && !late())
				spent += time.Since(start)
				return err
			})
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

// costKey names what c(rows) depends on besides the program: device, kernels,
// threads, arithmetic, the shapes and formats of the weights, not their values, and how
// many of its experts a mixture chooses for a row.
func (e *Engine) costKey() string {
	f, c := e.Features(), e.source.Config()
	h := sha256.New()
	for _, name := range e.source.Names() {
		if t, ok := e.source.Tensor(name); ok {
			fmt.Fprintln(h, name, t.DType, t.Shape, t.Group)
		}
	}
	key := fmt.Sprintf("%s: %s, %s, %d threads, exact %t, KV %s; layers %d, heads %d/%d of %d, hidden %d/%d, vocabulary %d, weights %x",
		e.BackendName(), f.Description, f.Kernels, f.Threads, f.Exact, e.options.KV,
		c.Layers, c.Heads, c.KVHeads, c.HeadDim, c.HiddenSize, c.IntermediateSize, c.VocabSize, h.Sum(nil)[:8])
	if x := c.Experts; x != nil {
		key += fmt.Sprintf(", %d of %d experts, renormalised %t", x.PerToken, x.Count, x.Renormalise)
	}
	return key
}

// rowCost is c(rows) of an open model, once it is known. It is read and written by
// who has its turn.
type rowCost struct {
	turn
	known bool
	table *decoder.CostModel // nil: it cannot be measured
}

// Cost is c(rows) of the model on this machine: what is kept of it, or measured
// now, which takes less than a second of the device, between others' forwards. It is nil
// where it cannot be measured, and where ctx ends before: then the next call measures.
func (e *Engine) Cost(ctx context.Context) *decoder.CostModel {
	if e.rowCost.take(ctx) != nil {
		return nil
	}
	defer e.rowCost.give()
	if !e.rowCost.known {
		e.rowCost.table = e.options.Measurements.cost(e.costKey(), time.Now(), func() (*decoder.CostModel, error) { return e.measureCost(ctx, costTime) })
		e.rowCost.known = ctx.Err() == nil
	}
	return e.rowCost.table
}

// Adaptive makes the window of complete options adapt by c(rows), or leaves the
// options as they are where that is not known. Verified's text stays the same;
// wedlm's may then differ between machines and days. What one generation learns of
// drafts the next ones begin with.
func (e *Engine) Adaptive(ctx context.Context, o decoder.Options) decoder.Options {
	if o.Cost = e.Cost(ctx); o.Cost != nil {
		// Two windows are the most rows of a step: a row must be the same in it
		// as alone.
		o.Window = min(adaptiveWindow, max(1, e.Features().BatchInvariantRows/2))
		e.keep(learnedRest)
		o.Experience = e.experience
		e.measureHead(ctx)
		// One that was found to be broken says so itself where it was asked for.
		if head := e.headDrafts(); o.Head != nil && (head != nil || o.Draft != decoder.DraftMTP) {
			o.Head = head
		}
	}
	return o
}
