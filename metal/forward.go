package metal

import (
	"context"
	"fmt"
	"slices"

	"windrow/backend"
)

// forward is a compiled program.
type forward struct {
	b       *Backend
	program *backend.Program
	widths  []int // of the program's buffers, then of those that operations need besides
	ops     []op
	tables  map[*rotationTable]bool // that rotations read
	heads   int                     // query heads of the widest attention
	states  []backend.StateShape    // of layers of gated DeltaNet
	head    *head                   // nil: none
	plans   map[variant]*plan
	run     run // from Start to Wait
	closed  bool
}

// variant is what of a forward's values decides which operations run, and in which
// forms.
type variant struct {
	tapped bool
	head   bool // results are wanted
	kvF32  bool // keys and values are in f32
}

// Compile translates the operations of a program.
func (b *Backend) Compile(p *backend.Program) (backend.Forward, error) {
	if b.memory == nil {
		return nil, errClosed
	}
	if err := p.Err(); err != nil {
		return nil, fmt.Errorf("metal: %w", err)
	}
	f := &forward{b: b, program: p, widths: slices.Clone(p.Widths), tables: map[*rotationTable]bool{}, plans: map[variant]*plan{}}
	for i := range p.Ops {
		if err := f.translate(&p.Ops[i]); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Start plans a forward of these values, unless one like it was planned before,
// and submits it.
func (f *forward) Start(ctx context.Context, v backend.Values) error {
	switch {
	case f.closed || f.b.memory == nil:
		return errClosed
	case f.b.running != nil:
		return fmt.Errorf("metal: a forward is still running: Wait ends it")
	}
	if err := f.program.CheckValues(&v); err != nil {
		return fmt.Errorf("metal: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := f.run.begin(f, &v); err != nil {
		return err
	}
	if err := f.run.submit(ctx); err != nil {
		return err
	}
	f.b.running = f
	if v.Deferred != nil {
		v.Deferred()
	}
	return nil
}

// Wait waits for the GPU, and hands it what did not go into the first command
// buffer.
func (f *forward) Wait() ([]backend.Result, error) {
	if f.b.running != f {
		return nil, fmt.Errorf("metal: no forward is running: Start begins one")
	}
	defer func() { f.b.running = nil }()
	r := &f.run
	for {
		err := r.wait()
		r.statesRan(err)
		if err != nil {
			return nil, err
		}
		if err := r.collect(); err != nil {
			return nil, err
		}
		if r.ended() {
			return r.results, nil
		}
		if err := r.submit(context.Background()); err != nil {
			return nil, err
		}
	}
}

// Close waits for what runs.
func (f *forward) Close() {
	if f.b.running == f {
		f.b.settle()
	}
	f.closed, f.ops, f.plans, f.run = true, nil, nil, run{}
}

// settle waits for the forward that runs, and forgets it.
func (b *Backend) settle() {
	if b.running != nil {
		r := &b.running.run
		r.statesRan(r.wait()) // nobody asks for it any more
		b.running = nil
	}
}

var _ backend.Backend = (*Backend)(nil)
