package cuda

import (
	"slices"

	"windrow/backend"
)

// route chooses experts on every GPU: the same ones, by the same bits.
func (c *cutter) route(o *backend.Op) {
	m := c.matrix(o.Weights[0].Weight)
	switch {
	case m == nil || !c.whole("route", o.Src[0]):
		return
	case m.split != backend.SplitNone:
		c.fail("route: a router in parts")
		return
	}
	c.isWhole(o.Dst[0])
	for i, p := range c.parts {
		p.Route(c.on(i, o.Dst[0]), c.on(i, o.Src[0]), m.parts[i], o.Chosen, o.Renormalise)
	}
}

// experts adds what experts make: with cut ones each GPU has a share of the inner columns
// of all of them, and of the shared one, and makes a part of the sum.
func (c *cutter) experts(o *backend.Op) {
	e := o.Experts
	for _, b := range []backend.Buffer{o.Dst[0], o.Src[0], o.Src[1]} {
		if !c.whole("experts", b) {
			return
		}
	}
	gates, ups, downs := slices.Clone(e.Gate), slices.Clone(e.Up), slices.Clone(e.Down)
	if s := e.Shared; s != nil { // behind the others
		gates, ups, downs = append(gates, s.Gate), append(ups, s.Up), append(downs, s.Down)
		if m := c.matrix(s.Weight); m == nil || m.split != backend.SplitNone {
			c.fail("experts: the weight of the shared expert is in parts")
			return
		}
	}
	first := c.matrix(downs[0])
	if first == nil {
		return
	}
	out, in := backend.SplitNone, backend.SplitNone
	if first.split == backend.SplitInputs {
		out, in = backend.SplitOutputs, backend.SplitInputs
	}
	if !c.cutAs(gates, out) || !c.cutAs(ups, out) || !c.cutAs(downs, in) {
		return
	}
	for i, p := range c.parts {
		parts := func(list []backend.Matrix) (y []backend.Matrix) {
			for _, m := range list {
				y = append(y, m.(*groupMatrix).parts[i])
			}
			return y
		}
		n := len(e.Gate)
		gate, up, down := parts(gates), parts(ups), parts(downs)
		y := &backend.Experts{Gate: gate[:n], Up: up[:n], Down: down[:n]}
		if e.Shared != nil {
			y.Shared = &backend.SharedExpert{Gate: gate[n], Up: up[n], Down: down[n], Weight: parts([]backend.Matrix{e.Shared.Weight})[0]}
		}
		p.ExpertsAdd(c.on(i, o.Dst[0]), c.on(i, o.Src[0]), c.on(i, o.Src[1]), y)
	}
}

// cutAs checks that matrices of experts are cut in one way.
func (c *cutter) cutAs(list []backend.Matrix, split backend.Split) bool {
	for _, x := range list {
		switch m := c.matrix(x); {
		case m == nil:
			return false
		case m.split != split || m.runs != nil || m.copies > 1:
			c.fail("experts: gates and ups are cut by outputs and downs by inputs, all of them, or none is cut")
			return false
		}
	}
	return true
}
