package cuda

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"windrow/backend"
	"windrow/cuda/driver"
	"windrow/cuda/launch"
	"windrow/quant"
)

// adds reports whether an operation adds to its target.
func (o *op) adds() bool {
	switch o.kind {
	case opProjectAdd, opExperts, opShared, opReturn:
		return true
	}
	return false
}

// route looks up a router.
func (c *compiler) route(y *op, o *backend.Op) error {
	w := c.matrix(o.Weights[0].Weight)
	switch {
	case c.err != nil:
		return c.err
	case w.Out() > launch.MostExperts || o.Chosen > launch.MostChosen:
		return &backend.UnsupportedError{Backend: c.b.Name(), What: fmt.Sprintf("%d of %d experts a row, at most %d of %d", o.Chosen, w.Out(), launch.MostChosen, launch.MostExperts)}
	}
	floats, err := w.floats()
	y.kind, y.router = opRoute, &launch.Router{Weight: floats, Chosen: o.Chosen, Renormalise: o.Renormalise}
	return err
}

// experts looks up the weights of a mixture. The router before it has listed its rows.
func (c *compiler) experts(y *op, o *backend.Op) error {
	before := c.last
	if before == nil || before.kind != opRoute || before.dst[0] != o.Src[1] || before.src[0] != o.Src[0] || before.router.Weight.Out != len(o.Experts.Gate) {
		return c.unrouted()
	}
	e := &launch.Experts{Chosen: o.Chosen}
	gates, err := c.alike(slices.Concat(o.Experts.Gate, o.Experts.Up))
	if err != nil {
		return err
	}
	downs, err := c.alike(o.Experts.Down)
	if err != nil {
		return err
	}
	n := len(downs)
	lists := [][]*matrix{gates[:n:n], gates[n:], downs}
	if s := o.Experts.Shared; s != nil {
		share := c.matrix(s.Weight)
		of := []*matrix{c.matrix(s.Gate), c.matrix(s.Up), c.matrix(s.Down)}
		if c.err != nil {
			return c.err
		}
		for _, m := range of {
			e.Shared = append(e.Shared, launch.Linear{Weight: &m.weight})
		}
		if before.router.Share, err = share.floats(); err != nil {
			return err
		}
		if e.Joined = launch.Joins(e.Shared, &gates[0].weight, &gates[n].weight, &downs[0].weight); e.Joined {
			for i, m := range of {
				lists[i] = append(lists[i], m)
			}
		}
		before.router.Joined = e.Joined
	}
	for i, list := range lists {
		if err := c.expertList([]*launch.ExpertList{&e.Gate, &e.Up, &e.Down}[i], list, len(list)-n); err != nil {
			return err
		}
	}
	before.router.Rounded = gates[0].weight.Fast()
	before.router.Wide = e.Wide()
	e.Leave(before.router)
	y.kind, y.mixture, y.routing, y.src = opExperts, e, o.Src[1], o.Src[:1]
	return nil
}

// expertList makes the list of the addresses of one matrix of each expert, and of `more`
// shared ones, which the forward owns.
func (c *compiler) expertList(to *launch.ExpertList, list []*matrix, more int) error {
	n := len(list)
	*to = launch.ExpertList{Of: &list[0].weight, Count: n - more, More: more}
	data := make([]byte, 8*3*n)
	for i, m := range list {
		for j, p := range []driver.Ptr{m.weight.Data(), m.weight.Scales, m.weight.Biases} {
			binary.LittleEndian.PutUint64(data[8*(j*n+i):], uint64(p))
		}
	}
	c.b.device.Context.Enter()
	defer c.b.device.Context.Leave()
	p, err := c.b.device.Context.Alloc(len(data))
	if err != nil {
		return err
	}
	c.f.owned = append(c.f.owned, p)
	to.Where = p
	return c.b.device.Context.Upload(p, data)
}

// floats is the weight as floats: routers multiply in f32, and are small.
func (m *matrix) floats() (*launch.Weight, error) {
	if !m.weight.DType.Quantized() {
		return &m.weight, nil
	}
	if m.decoded != nil {
		return m.decoded, nil
	}
	if m.tensor.Data == nil {
		return nil, fmt.Errorf("cuda: a router of type %v that is cut over GPUs", m.weight.DType)
	}
	out, in := m.weight.Out, m.weight.In
	data, row := make([]byte, 4*out*in), make([]float32, in)
	for i := range out {
		quant.Row(row, &m.tensor, i)
		quant.Blocks(data[4*i*in:4*(i+1)*in], backend.F32, row)
	}
	c := m.b.device.Context
	c.Enter()
	defer c.Leave()
	p, err := c.Alloc(len(data))
	if err != nil {
		return nil, err
	}
	m.b.owned = append(m.b.owned, p)
	if err := c.Upload(p, data); err != nil {
		return nil, err
	}
	m.decoded = &launch.Weight{DType: backend.F32, Out: out, In: in, Raw: p}
	return m.decoded, nil
}

func prepareRoute(f *forward, y *plan, a *action) (moved bool, err error) {
	return f.b.device.PrepareRoute(a.router, y.shape.Bucket)
}

func (b *Backend) emitRoute(y *plan, a *action) {
	r := *a.router
	r.Left = r.Left && a.left
	b.device.Route(a.to[0].f32, a.from[0].f32, &r, launch.Normed{Weight: a.norm[0], Eps: a.eps, F32: a.to[1].f32, BF16: a.to[1].bf16}, b.step.Device, y.fewRows(), y.prefillRows())
}

func readsOfExperts(_ *plan, o *op) form { return formsOf(o.mixture.Reads()) }

// formsOf is the forms that are read.
func formsOf(f32, bf16 bool) (f form) {
	if f32 {
		f |= asF32
	}
	if bf16 {
		f |= asBF16
	}
	return f
}

// fewRows reports whether projections of a pass are those of decode passes.
func (y *plan) fewRows() bool { return y.decode && !y.wide }

func prepareExperts(f *forward, y *plan, a *action) (moved bool, err error) {
	moved, err = f.b.device.PrepareExperts(a.mixture, y.fewRows(), y.prefillRows())
	if err == nil && a.mixture.Down.Of.Partial {
		var also bool
		also, err = f.b.device.PreparePartials(y.shape.Bucket*a.to[0].width, y.decode)
		moved = moved || also
	}
	return moved, err
}

func (b *Backend) emitExperts(y *plan, a *action) {
	routing, to, n := y.buffers[a.routing].f32, a.to[0].f32, y.shape.Bucket*a.to[0].width
	partial := a.mixture.Down.Of.Partial
	if partial { // experts add to what is there
		to = b.device.OwnPartial(n, y.decode)
		b.device.ClearPartial(n, y.decode)
	}
	e := *a.mixture
	if !a.left {
		e.Router = nil
	}
	b.device.Experts(to, a.from[0].f32, a.from[0].bf16, routing, &e, b.step.Device, y.fewRows(), y.prefillRows())
	if partial {
		b.device.JoinPartials(a.to[0].f32, n, y.decode)
	}
}

// free gives the lists of experts back.
func (f *forward) free() {
	f.b.device.Context.Enter()
	defer f.b.device.Context.Leave()
	for _, p := range f.owned {
		f.b.device.Context.Free(p)
	}
	f.owned = nil
}

// alike are matrices of one form, which one launch takes. Where affine groups are of
// several lengths, weights of longer ones are taken again in the shortest; where scales of
// one are too large for the kernels, which have it in bf16, all are taken so.
func (c *compiler) alike(list []backend.Matrix) ([]*matrix, error) {
	all, least, widened := make([]*matrix, len(list)), 0, false
	for i, x := range list {
		m := c.matrix(x)
		if c.err != nil {
			return nil, c.err
		}
		if all[i] = m; i == 0 || m.weight.Group < least {
			least = m.weight.Group
		}
		widened = widened || m.tensor.DType == backend.Affine4 && m.weight.DType == backend.BF16
	}
	if widened {
		for i, m := range all {
			if m.weight.DType != backend.Affine4 {
				continue
			}
			var err error
			if all[i], err = m.widened(); err != nil {
				return nil, err
			}
		}
		least = 0
	}
	of := &all[0].weight
	for i, m := range all {
		w := &m.weight
		if w.DType != of.DType || w.Fast() != of.Fast() {
			return nil, &backend.UnsupportedError{Backend: c.b.Name(), What: fmt.Sprintf("experts of several types in a layer, %v and %v", of.DType, w.DType)}
		}
		if w.Group != least && m.tensor.Data == nil {
			return nil, &backend.UnsupportedError{Backend: c.b.Name(), What: fmt.Sprintf("experts in groups of %d and of %d in a layer over several GPUs", least, w.Group)}
		}
		if w.Group != least {
			var err error
			if all[i], err = m.regrouped(least); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// widened is an affine weight in bf16, beside one whose scales are too large.
func (m *matrix) widened() (*matrix, error) {
	if m.tensor.Data == nil {
		return nil, &backend.UnsupportedError{Backend: m.b.Name(), What: "experts with scales from 1/2 on beside others in a layer over several GPUs"}
	}
	if m.other != nil && m.other.weight.DType == backend.BF16 {
		return m.other, nil
	}
	y, err := m.b.Matrix(quant.ConvertTo(m.tensor, backend.BF16))
	if err != nil {
		return nil, err
	}
	m.other = y.(*matrix)
	return m.other, nil
}

// regrouped is an affine weight whose scales and biases are repeated for shorter groups.
func (m *matrix) regrouped(group int) (*matrix, error) {
	if m.other != nil && m.other.weight.Group == group {
		return m.other, nil
	}
	t := m.tensor
	times := t.Group / group
	repeat := func(list []byte) []byte {
		out := make([]byte, 0, len(list)*times)
		for pair := range slices.Chunk(list, 2) {
			out = append(out, bytes.Repeat(pair, times)...)
		}
		return out
	}
	t.Scales, t.Biases, t.Group = repeat(t.Scales), repeat(t.Biases), group
	y, err := m.b.Matrix(t)
	if err != nil {
		return nil, err
	}
	m.other = y.(*matrix)
	return m.other, nil
}

// joinsRoute reports whether a router norms its rows itself, and leaves them to those
// who read them besides. None may be in another section.
func (y *plan) joinsRoute(norm, o *op) bool {
	return norm.kind == opRMSNorm && o.src[0] == norm.dst[0] && norm.src[0] != norm.dst[0] && o.dst[0] != norm.src[0] &&
		y.decode && y.buffers[o.src[0]].want&later == 0 && y.f.b.device.RouteTakesNorm(o.router, y.shape.Bucket)
}
