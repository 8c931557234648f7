package bench

import (
	"context"
	"fmt"
	"io"

	"windrow/backend"
)

// Timeline is when the kernels of a step ran on a GPU: of some rows for each of some sequences,
// or of a prompt.
type Timeline struct {
	Prompt    int                `json:"prompt,omitempty"` // its tokens; 0: a step
	Sequences int                `json:"sequences,omitempty"`
	Rows      int                `json:"rows,omitempty"` // of a sequence
	Launches  []backend.Launched `json:"launches"`
}

// runTimelines takes each prompt of Prefill, a step of each size of Rows, and each of Batches.
func (r *runner) runTimelines(ctx context.Context) error {
	if !r.Timeline {
		return nil
	}
	for _, n := range r.Prefill {
		r.next("when kernels of a prompt of %d run", n)
		list, err := r.watch.PrefillTimeline(ctx, n)
		if err != nil {
			return err
		}
		r.timelines = append(r.timelines, Timeline{Prompt: n, Launches: list})
	}
	var steps []Batch
	for _, rows := range r.Rows {
		steps = append(steps, Batch{Sequences: 1, Rows: rows})
	}
	for _, b := range append(steps, r.Batches...) {
		r.next("when kernels of %d sequences of %d rows run", b.Sequences, b.Rows)
		list, err := r.watch.Timeline(ctx, b.Sequences, b.Rows, r.Context)
		if err != nil {
			return err
		}
		r.timelines = append(r.timelines, Timeline{Sequences: b.Sequences, Rows: b.Rows, Launches: list})
	}
	return nil
}

// alike are launches of one kernel in one grid: sums of their times from when the one before
// each had ended.
type alike struct {
	backend.Launched
	launches int
}

// alike sums up launches that are, in the order of the first ones.
func (t *Timeline) alike() (list []*alike) {
	type kind struct {
		name            string
		blocks, threads int
	}
	found := map[kind]*alike{}
	before := 0.0
	for _, l := range t.Launches {
		k := kind{l.Name, l.Blocks, l.Threads}
		a := found[k]
		if a == nil {
			a = &alike{Launched: backend.Launched{Name: l.Name, Blocks: l.Blocks, Threads: l.Threads}}
			found[k] = a
			list = append(list, a)
		}
		a.launches++
		for _, sum := range []struct {
			of *float64
			at float64
		}{{&a.Begun, l.Begun}, {&a.Half, l.Half}, {&a.Ready, l.Ready}, {&a.Released, l.Released}, {&a.First, l.First}, {&a.Middle, l.Middle}, {&a.Last, l.Last}} {
			*sum.of += sum.at - before
		}
		before = l.Last
	}
	return list
}

// table prints means of launches that are alike, in µs.
func (t *Timeline) table(w io.Writer) {
	if len(t.Launches) == 0 {
		return
	}
	const us = 1e6
	step := fmt.Sprintf("%d-row step", t.Rows)
	switch {
	case t.Prompt > 0:
		step = fmt.Sprintf("prompt of %d", t.Prompt)
	case t.Sequences > 1:
		step = fmt.Sprintf("step of %s rows", Batch{t.Sequences, t.Rows})
	}
	fmt.Fprintf(w, "\nkernels of a %s, %d in %.2f ms; µs from the end of the one before\n", step, len(t.Launches), 1000*t.Launches[len(t.Launches)-1].Last)
	fmt.Fprintf(w, "kernel\tlaunches\tblocks × threads\tbegun (half)\tready\treleased\tfirst ends\thalf\tlast\n")
	for _, a := range t.alike() {
		mean := func(sum float64) float64 { return us * sum / float64(a.launches) }
		fmt.Fprintf(w, "%s\t%d\t%d × %d\t%.1f (%.1f)\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\n",
			a.Name, a.launches, a.Blocks, a.Threads, mean(a.Begun), mean(a.Half), mean(a.Ready), mean(a.Released), mean(a.First), mean(a.Middle), mean(a.Last))
	}
}
