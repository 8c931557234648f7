package cuda

import (
	"context"
	"fmt"

	"windrow/backend"
)

// groupForward is a program on all GPUs: each has its part.
type groupForward struct {
	g       *Group
	program *backend.Program
	parts   []*forward
	closed  bool

	stores, split bool  // it stores keys and values, by heads
	tapSteps      []int // every how manyth GPU shows something else: of what is whole only the first

	// Of the head: how many GPUs' parts count, and the ids that they begin with.
	heads int
	first []int

	spans [][]backend.Span // of each GPU
}

// usable returns why a group is not.
func (g *Group) usable() error {
	switch {
	case g.shards == nil:
		return errClosed
	case g.dead != nil:
		return fmt.Errorf("cuda: the GPUs are no longer connected: %w", g.dead)
	}
	return nil
}

// Start begins a forward. In a group nothing is readied for the one after it.
func (f *groupForward) Start(ctx context.Context, v backend.Values) error {
	g := f.g
	if err := g.usable(); err != nil {
		return err
	}
	switch {
	case f.closed:
		return errGone
	case g.running != nil:
		return errRuns
	}
	if err := check(ctx, f.program, &v); err != nil {
		return err
	}
	err := f.set(&v)
	if err == nil && v.Tap != nil {
		err = f.show(ctx, v.Tap)
	}
	if err == nil {
		err = f.begin(func(p *forward) section { return p.rest(v.Tap != nil) })
	}
	for i, p := range f.parts {
		p.forget()
		clear(f.spans[i])
	}
	if err == nil {
		g.running = f
		if v.Deferred != nil {
			v.Deferred()
		}
	}
	return err
}

// set gives each GPU its values, one after the other: it may allocate, which may wait
// for other GPUs' work.
func (f *groupForward) set(v *backend.Values) error {
	if err := f.spread(v.Spans); err != nil {
		return err
	}
	return f.oneByOne(func(i int, p *forward) error {
		p.b.gathered, p.b.inGathered = nil, 0 // the weights are there
		return p.set(v, f.spans[i])
	})
}

// oneByOne does a step of each GPU's forward.
func (f *groupForward) oneByOne(step func(i int, p *forward) error) error {
	for i, p := range f.parts {
		p.b.device.Context.Enter()
		err := step(i, p)
		p.b.device.Context.Leave()
		if err != nil {
			return onGPU(i, err)
		}
	}
	return nil
}

// onAll does a step of all GPUs' forwards at once.
func (f *groupForward) onAll(step func(*forward) error) error {
	return f.g.together(func(i int, b *Backend) error {
		b.device.Context.Enter()
		defer b.device.Context.Leave()
		return step(f.parts[i])
	})
}

// Prepared implements backend.Preparer.
func (f *groupForward) Prepared() bool { return f.parts[0].prepared }

// spread makes f.spans the spans on each GPU, of storage by heads or whole.
func (f *groupForward) spread(spans []backend.Span) error {
	if f.spans == nil {
		f.spans = make([][]backend.Span, len(f.parts))
	}
	for i := range f.spans {
		f.spans[i] = f.spans[i][:0]
	}
	if !f.stores {
		return nil
	}
	for j, s := range spans {
		c, ok := s.Storage.(*groupStorage)
		if !ok || !c.open || c.g != f.g {
			return fmt.Errorf("cuda: span %d has no open storage of this backend", j)
		}
		if err := c.on(f.split); err != nil {
			return fmt.Errorf("cuda: span %d: %w", j, backend.InSpan(j, err))
		}
		if err := c.begin(s.Base, s.Rows, f.program.Recurs()); err != nil {
			return fmt.Errorf("cuda: %w", backend.InSpan(j, err))
		}
		for i := range f.spans {
			s.Storage = c.parts[i]
			f.spans[i] = append(f.spans[i], s)
		}
	}
	return nil
}

// begin plans and makes room on all GPUs before any of them works, so that an error of
// one leaves none waiting for it, and since an allocation may wait for other GPUs' work.
func (f *groupForward) begin(of func(*forward) section) error {
	known := true
	err := f.oneByOne(func(_ int, p *forward) error {
		err := p.settle(of(p))
		known = known && p.graph != nil
		return err
	})
	if err == nil && !known {
		err = f.onAll(func(p *forward) error { return p.makeReady(of(p)) })
	}
	if err == nil {
		err = f.onAll((*forward).launch)
	}
	if err == nil {
		f.parts[0].written(of(f.parts[0])) // on all of them
	}
	return err
}

// makeReady makes the graph, or loads the kernels of what has none: what may wait for
// another GPU is done before any of them depends on the others.
func (f *forward) makeReady(s section) error {
	if f.graph != nil {
		return nil
	}
	if err := f.record(s); err != nil {
		return err
	}
	if f.graph != nil {
		if err := f.graph.Upload(f.b.device.Stream); err != nil {
			return err
		}
		return f.b.device.Stream.Synchronize()
	}
	if s.whole() && f.warmed[f.now.geometry] {
		return nil
	}
	err := f.b.warm(&f.now, f.now.actions)
	if s.whole() && err == nil {
		if len(f.warmed) >= maxGraphs || f.warmed == nil {
			f.warmed = map[geometry]bool{}
		}
		f.warmed[f.now.geometry] = true
	}
	return err
}

// show runs the sections up to the last Tap, and shows what they leave: from the first
// GPU where that is whole, else from all of them.
func (f *groupForward) show(ctx context.Context, tap func(int, []float32)) error {
	for k, step := range f.tapSteps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := f.begin(func(p *forward) section { return p.sections[k] }); err != nil {
			return err
		}
		if err := f.onAll((*forward).wait); err != nil {
			return err
		}
		rows, width := f.parts[0].values.Rows, 0
		for i := 0; i < len(f.parts); i += step {
			p := f.parts[i]
			width += p.widths[p.sections[k].shown]
		}
		states, at := make([]float32, rows*width), 0
		for i := 0; i < len(f.parts); i += step {
			p := f.parts[i]
			p.b.device.Context.Enter()
			part, err := p.shown(k)
			p.b.device.Context.Leave()
			if err != nil {
				return onGPU(i, err)
			}
			n := len(part) / rows
			for r := range rows {
				copy(states[r*width+at:], part[r*n:(r+1)*n])
			}
			at += n
		}
		tap(k, states)
	}
	return nil
}

// Wait waits for the forward that Start began.
func (f *groupForward) Wait() ([]backend.Result, error) {
	g := f.g
	switch {
	case g.running != f:
		return nil, errNotStarted
	case g.shards == nil:
		return nil, errClosed
	}
	g.running = nil
	if err := f.onAll((*forward).wait); err != nil {
		return nil, err
	}
	return f.results()
}

// Close drops the graphs.
func (f *groupForward) Close() {
	if f.closed || f.g.shards == nil {
		return
	}
	f.closed = true
	if f.g.running == f {
		f.g.running = nil
		f.onAll((*forward).wait) // its error has nobody left to see it
	}
	for _, p := range f.parts {
		p.Close()
	}
}
