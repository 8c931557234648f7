package cuda

import (
	"context"
	"slices"

	"windrow/cuda/driver"
)

// Where the host runs the experts of some layers a forward has parts: each ends where rows
// leave for the host, and the next one begins with what it has made. All are planned before
// the first is launched, since room that moves would drop graphs that have been launched.
// Each has a graph of its own, where a forward in one piece would have one.

// runParts runs all parts but the last, which it leaves at work.
func (f *forward) runParts(ctx context.Context) error {
	err := f.allParts(ctx)
	if err != nil {
		f.b.device.Stream.Synchronize() // what was queued reads the step block
	}
	return err
}

func (f *forward) allParts(ctx context.Context) error {
	graphs, plans, err := f.settleParts()
	if err != nil {
		return err
	}
	for i := 0; i < len(f.parts); i++ {
		launch := func() error {
			f.graph, f.now.actions, f.now.kept = nil, nil, i > 0
			if graphs != nil {
				f.graph = graphs[i]
			} else {
				f.now.actions = plans[i]
			}
			if err := f.launch(); err != nil {
				return err
			}
			f.written(f.parts[i])
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := launch(); err != nil {
			return err
		}
		s := &f.parts[i]
		if s.leaves == nil {
			continue
		}
		if err := f.b.left.Record(f.b.device.Stream); err != nil {
			return err
		}
		if f.parts[i+1].beside { // runs while the host does
			i++
			if err := launch(); err != nil {
				return err
			}
		}
		if err := f.b.left.Synchronize(); err != nil {
			return err
		}
		if err := f.runHost(s.leaves); err != nil {
			return err
		}
	}
	f.now.kept = false
	if graphs != nil {
		f.b.graphs.parts = graphs
	}
	return nil
}

// settleParts finds the graphs of all parts, or plans them, makes room for what they need,
// and captures those of decode passes: it queues nothing.
func (f *forward) settleParts() (graphs []*driver.Graph, plans [][]action, err error) {
	b, y := f.b, &f.now
	if err := b.arrive(); err != nil {
		return nil, nil, err
	}
	if b.left == nil {
		if b.left, err = b.device.Context.NewEvent(); err != nil {
			return nil, nil, err
		}
	}
	if v := b.graphs.find(f, &y.geometry); v != nil {
		f.head = v.head
		return v.parts, nil, nil
	}
	if err := b.fillStacked(); err != nil {
		return nil, nil, err
	}
	y.reset()
	for i := range f.parts {
		s := f.parts[i]
		if s.last {
			s = f.rest(false)
		}
		if err := y.make(s); err != nil {
			return nil, nil, err
		}
		if err := f.prepare(y); err != nil {
			return nil, nil, err
		}
		plans = append(plans, slices.Clone(y.actions))
	}
	f.head = y.headAction()
	if !y.decode && !f.met() {
		// All kernels are loaded before the first one runs: see launch.
		return nil, plans, b.warm(y, slices.Concat(plans...))
	}
	v, err := f.captureParts(y, plans)
	if err != nil {
		return nil, nil, err
	}
	return v.parts, nil, nil
}

// captureParts makes the graphs of parts that were planned.
func (f *forward) captureParts(y *plan, plans [][]action) (*variant, error) {
	v := &variant{f: f, geometry: y.geometry, head: f.head}
	for i, actions := range plans {
		y.kept = i > 0
		graph, err := f.b.captured(y, actions)
		if err != nil {
			v.close()
			return nil, err
		}
		v.parts = append(v.parts, graph)
	}
	f.b.graphs.add(v)
	return v, nil
}
