package model

import (
	"windrow/architecture"
	"windrow/backend"
	"windrow/checkpoint"
	"windrow/rope"
)

// Check says why Load, with a head for drafts where there is one, would refuse a source,
// as far as that shows without a backend and without reading weights: what is missing,
// has another shape than the config says, or is no part of the model.
func Check(src checkpoint.Source) error {
	c := src.Config()
	table, err := architecture.Lookup(c.Architecture)
	if err != nil {
		return err
	}
	if _, err := rope.New(c.Rope); err != nil {
		return err
	}
	m := &Model{config: c, blocks: make([]block, c.Layers)}
	l := &loader{src: src, config: c, table: table, layer: architecture.Model}
	if err := m.loadAll(l, backend.Bars{}, func(func(*backend.Program, *stream)) {}); err != nil {
		return err
	}
	if c.MTPLayers > 0 && l.err == nil {
		l.draftsOf(0)
	}
	return l.err
}

// described is a weight that no backend has taken: its shape.
type described []int

func (d described) Out() int { return d[0] }
func (d described) In() int  { return d[1] }
func (d described) Len() int { return d[0] }

// describe is what a loader without a backend makes of a weight.
func (l *loader) describe(t backend.Tensor) described {
	if t.Make == nil && l.err == nil {
		if err := t.Check(); err != nil {
			l.fail(err)
		}
	}
	return described(t.Shape)
}
