package bench

import (
	"context"
	"fmt"
	"time"

	"windrow/decoder"
	"windrow/engine"
)

const (
	// timed is how long a measurement of something quick goes on: long enough
	// that the clock and the scheduler do not matter.
	timed = 120 * time.Millisecond
	// bandwidthTime is how long one reading of the bandwidth takes.
	bandwidthTime = 400 * time.Millisecond
)

// measurements are the values of all repetitions.
type measurements struct {
	bandwidth, share []float64
	hostBandwidth    []float64           // where experts stay in the host's memory
	prefill          map[int][]float64   // tokens/s by size
	steps, c         map[int][]float64   // ms, and the ratio to one row, by rows
	contexts         map[int][]float64   // ms of one row by context
	batches          [][]float64         // ms by batch
	modes            [][][]decoder.Stats // by text, mode and repetition
	timelines        []Timeline
}

func newMeasurements(p *Plan) *measurements {
	m := &measurements{prefill: map[int][]float64{}, steps: map[int][]float64{}, c: map[int][]float64{}, contexts: map[int][]float64{},
		batches: make([][]float64, len(p.Batches))}
	for range p.Texts {
		m.modes = append(m.modes, make([][]decoder.Stats, len(p.Modes)))
	}
	return m
}

// runner is one run of a plan.
type runner struct {
	*Plan
	*measurements
	engine      *engine.Engine
	watch       *engine.Stopwatch
	progress    func(done, total int, note string)
	done, total int
}

// Run measures everything once a repetition. progress may be nil; it is told what
// comes next.
func (p *Plan) Run(ctx context.Context, e *engine.Engine, progress func(done, total int, note string)) (*Report, error) {
	r := &runner{Plan: p, measurements: newMeasurements(p), engine: e, watch: e.NewStopwatch(timed), progress: progress}
	defer r.watch.Close()
	r.total = len(p.Prefill) + len(p.Rows) + len(p.Contexts) + len(p.Batches)
	for _, text := range p.Texts {
		r.total += len(text.Prompts) * len(p.Modes)
	}
	r.total *= p.Repetitions
	if p.Timeline {
		r.total += len(p.Prefill) + len(p.Rows) + len(p.Batches)
	}
	for range p.Repetitions {
		for _, part := range []func(context.Context) error{r.runPrefill, r.runSteps, r.runContexts, r.runBatches, r.runModes} {
			if err := part(ctx); err != nil {
				return nil, err
			}
		}
	}
	if err := r.runTimelines(ctx); err != nil {
		return nil, err
	}
	return r.report(), nil
}

// next says what is measured next.
func (r *runner) next(format string, args ...any) {
	if r.progress != nil {
		r.progress(r.done, r.total, fmt.Sprintf(format, args...))
	}
	r.done++
}

func (r *runner) runPrefill(ctx context.Context) error {
	for _, n := range r.Prefill {
		r.next("prefill of %d", n)
		rate, err := r.watch.Prefill(ctx, n)
		if err != nil {
			return err
		}
		r.prefill[n] = append(r.prefill[n], rate)
	}
	return nil
}

// runSteps measures steps, and the bandwidth before and after that of one row.
func (r *runner) runSteps(ctx context.Context) error {
	for _, rows := range r.Rows {
		r.next("%d rows at context %d", rows, r.Context)
		before := 0.0
		var err error
		if rows == 1 {
			if before, err = r.readBandwidth(ctx); err != nil {
				return err
			}
		}
		t, err := r.watch.Step(ctx, rows, r.Context)
		if err != nil {
			return err
		}
		r.steps[rows] = append(r.steps[rows], 1000*t)
		r.c[rows] = append(r.c[rows], 1000*t/r.steps[1][len(r.steps[1])-1])
		if rows != 1 {
			continue
		}
		after, err := r.readBandwidth(ctx)
		if err != nil {
			return err
		}
		if r.engine.HostExperts() != nil { // it reads two memories
			b, err := r.engine.HostBandwidth(ctx, bandwidthTime)
			if err != nil {
				return err
			}
			r.hostBandwidth = append(r.hostBandwidth, b)
			continue
		}
		read := float64(r.watch.StepBytes(r.Context)) / t / 1e9
		if mean := (before + after) / 2; mean > 0 {
			r.share = append(r.share, read/mean)
		}
	}
	return nil
}

func (r *runner) readBandwidth(ctx context.Context) (float64, error) {
	b, err := r.engine.Bandwidth(ctx, bandwidthTime)
	if err == nil {
		r.bandwidth = append(r.bandwidth, b)
	}
	return b, err
}

func (r *runner) runContexts(ctx context.Context) error {
	for _, context := range r.Contexts {
		r.next("one row at context %d", context)
		t, err := r.watch.Step(ctx, 1, context)
		if err != nil {
			return err
		}
		r.contexts[context] = append(r.contexts[context], 1000*t)
	}
	return nil
}

func (r *runner) runBatches(ctx context.Context) error {
	for i, b := range r.Batches {
		r.next("%d sequences of %d rows", b.Sequences, b.Rows)
		t, err := r.watch.Batch(ctx, b.Sequences, b.Rows, r.Context)
		if err != nil {
			return err
		}
		r.batches[i] = append(r.batches[i], 1000*t)
	}
	return nil
}

// runModes answers the prompts, in all modes one after the other.
func (r *runner) runModes(ctx context.Context) error {
	for t, text := range r.Texts {
		sums := make([]decoder.Stats, len(r.Modes))
		for _, ids := range text.Prompts {
			for i, mode := range r.Modes {
				r.next("mode %s on %s", mode.Name, text.Name)
				s, err := r.engine.Answer(ctx, ids, mode.Options, decoder.Hooks{})
				if err == nil && s.FinishReason == decoder.FinishCancelled {
					err = context.Canceled
				}
				if err != nil {
					return fmt.Errorf("mode %s: %w", mode.Options.Mode, err)
				}
				sums[i].Add(s.Stats)
			}
		}
		for i, sum := range sums {
			r.modes[t][i] = append(r.modes[t][i], sum)
		}
	}
	return nil
}
