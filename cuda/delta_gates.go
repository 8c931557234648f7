package cuda

import (
	"fmt"
	"slices"

	"windrow/backend"
	"windrow/cuda/driver"
	"windrow/cuda/launch"
)

// joinGates replaces a program by one in which b and a of recurrent layers, where they
// are two projections of one format, are made by one: all that a layer projects then fits
// in one launch, which norms its input where there is one row.
func (c *compiler) joinGates(p **backend.Program) error {
	y := **p
	y.Ops = slices.Clone(y.Ops)
	for i := 1; i < len(y.Ops); i++ {
		if project, o := &y.Ops[i-1], &y.Ops[i]; o.Kind == backend.OpDelta && project.Kind == backend.OpProject {
			if err := c.join((*p).Ops, project, o); err != nil {
				return err
			}
		}
	}
	*p = &y
	return nil
}

// join joins those of one layer, if it can.
func (c *compiler) join(ops []backend.Op, project, o *backend.Op) error {
	d := *o.Delta
	b, a := slices.Index(project.Dst, d.B.Buffer), slices.Index(project.Dst, d.A.Buffer)
	if b < 0 || a < 0 || b == a || !onlyGates(ops, d.B.Buffer) || !onlyGates(ops, d.A.Buffer) {
		return nil
	}
	w, err := c.b.above(project.Weights[b], project.Weights[a])
	if err != nil || w == nil {
		return err
	}
	gates := c.f.own(deltaGates)
	if had := c.f.widths[gates]; had != 0 && had != w.Out() {
		return nil
	}
	c.f.widths[gates] = w.Out()
	p := *project
	p.Dst, p.Weights = nil, nil
	for i := range project.Dst {
		if i != b && i != a {
			p.Dst, p.Weights = append(p.Dst, project.Dst[i]), append(p.Weights, project.Weights[i])
		}
	}
	p.Dst, p.Weights = append(p.Dst, gates), append(p.Weights, backend.Linear{Weight: w})
	d.A.First += project.Weights[b].Weight.Out()
	d.B.Buffer, d.A.Buffer = gates, gates
	o.Delta, o.Src = &d, slices.Clone(o.Src)
	o.Src[4], o.Src[5] = gates, gates
	*project = p
	return nil
}

// onlyGates reports whether a buffer is written by projections, and read as b or a alone.
func onlyGates(ops []backend.Op, x backend.Buffer) bool {
	for i := range ops {
		o := &ops[i]
		read, written := slices.Index(o.Src, x), slices.Contains(o.Dst, x)
		if written && o.Kind != backend.OpProject || read >= 0 && (o.Kind != backend.OpDelta || read < 4) {
			return false
		}
	}
	return true
}

// above is a weight of the second's outputs behind the first's, in memory of its own; nil where they are not
// tensor-core weights of one form without biases. It is made once, and filled when the
// weights have arrived.
func (b *Backend) above(first, second backend.Linear) (*matrix, error) {
	x, _ := first.Weight.(*matrix)
	y, _ := second.Weight.(*matrix)
	if x == nil || y == nil || x.b != b || y.b != b || first.Bias != nil || second.Bias != nil {
		return nil, nil // add tells of foreign ones
	}
	if m := b.stacked[[2]*matrix{x, y}]; m != nil {
		return m, nil
	}
	room, ok := launch.Above(&x.weight, &y.weight)
	if !ok {
		return nil, nil
	}
	d := b.device
	d.Context.Enter()
	defer d.Context.Leave()
	at, err := d.Context.Alloc(room.Bytes())
	if err != nil {
		return nil, fmt.Errorf("cuda: b and a of a recurrent layer: %w", err)
	}
	b.owned = append(b.owned, at)
	m := &matrix{b: b, weight: room.At(at)}
	b.stacked[[2]*matrix{x, y}] = m
	b.unfilled = append(b.unfilled, unfilled{room, at})
	return m, nil
}

// unfilled is memory for a stacked weight.
type unfilled struct {
	launch.Stacked
	at driver.Ptr
}

// fillStacked fills those, once the weights are there.
func (b *Backend) fillStacked() error {
	for _, u := range b.unfilled {
		if err := u.Fill(b.device, u.at); err != nil {
			return err
		}
	}
	b.unfilled = nil
	return nil
}
