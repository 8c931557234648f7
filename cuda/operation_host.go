package cuda

import (
	"fmt"

	"windrow/backend"
	"windrow/cuda/driver"
	"windrow/cuda/launch"
)

// leaving is what a section ends with whose rows the host's experts take.
type leaving struct {
	mixture     backend.HostMixture
	width, line int // of a row, and of its routing
}

// hosted looks up a mixture whose experts are the host's. The rows leave behind the router,
// which ends a section; a shared expert runs on the device meanwhile, in a section of its
// own; the next one begins with what the host has made.
func (c *compiler) hosted(y op, o *backend.Op) error {
	before := c.last
	if before == nil || before.kind != opRoute || before.dst[0] != o.Src[1] || before.src[0] != o.Src[0] || before.router.Weight.Out != len(o.Experts.Gate) {
		return c.unrouted()
	}
	mixture, err := o.Experts.Host.Mixture(o.Experts, o.Chosen)
	if err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	leave := y
	leave.kind, leave.dst = opLeave, nil
	c.append(leave, false)
	c.cut(section{leaves: &leaving{mixture, c.f.widths[o.Src[0]], c.f.widths[o.Src[1]]}})
	if s := o.Experts.Shared; s != nil {
		e := &launch.SharedExpert{Router: before.router}
		for _, w := range []backend.Matrix{s.Gate, s.Up, s.Down} {
			e.Weights = append(e.Weights, launch.Linear{Weight: c.weight(w)})
		}
		share := c.matrix(s.Weight)
		if c.err != nil {
			return c.err
		}
		if before.router.Share, err = share.floats(); err != nil {
			return err
		}
		shared := y
		shared.kind, shared.src, shared.shared = opShared, o.Src[:1], e
		c.append(shared, false)
		c.cut(section{beside: true})
	}
	back := y
	back.kind, back.src, back.routing = opReturn, nil, o.Src[1]
	c.append(back, false)
	return nil
}

// unrouted is the error of experts whose router did not list their rows.
func (c *compiler) unrouted() error {
	return &backend.UnsupportedError{Backend: c.b.Name(), What: "experts that are not routed just before them, by the same rows"}
}

// cut ends a section of both kinds of forwards behind the last operation.
func (c *compiler) cut(s section) {
	s.shown, s.first = -1, len(c.f.sections) == 0
	tapped := s
	tapped.ops, c.ops = c.ops, nil
	c.f.sections = append(c.f.sections, tapped)
	s.ops, s.first = c.f.ops[c.parted:len(c.f.ops):len(c.f.ops)], len(c.f.parts) == 0
	c.f.parts, c.parted = append(c.f.parts, s), len(c.f.ops)
}

// endParts is the last part of a forward that has some.
func (c *compiler) endParts() {
	if f := c.f; f.parts != nil {
		ops := f.ops[c.parted:]
		f.parts = append(f.parts, section{ops: ops, told: c.told(ops), shown: -1, last: true})
	}
}

// hostLayout says where the rows of a pass lie in the host's memory.
func (y *plan) hostLayout(width, line int) launch.HostLayout {
	return launch.LayoutHost(y.shape.Bucket, width, line)
}

func prepareLeave(f *forward, y *plan, a *action) (moved bool, err error) {
	return f.b.host.Grow(f.b.device.Context, y.hostLayout(a.from[0].width, a.from[1].width).Size)
}

func (b *Backend) emitLeave(y *plan, a *action) {
	h, routing := a.from[0], a.from[1]
	l, at := y.hostLayout(h.width, routing.width), b.hostAddress()
	b.device.RowsLeave(at, at+driver.Ptr(l.Routing), h.f32, routing.f32, h.width, routing.width, b.step.Device, y.shape.Bucket)
}

func (b *Backend) emitReturn(y *plan, a *action) {
	l := y.hostLayout(a.to[0].width, y.f.widths[a.routing])
	b.device.RowsReturn(a.to[0].f32, b.hostAddress()+driver.Ptr(l.Made), a.to[0].width, b.step.Device, y.shape.Bucket)
}

// hostAddress is where kernels find the rows of the host; 0 before there is room for any.
func (b *Backend) hostAddress() driver.Ptr {
	if b.host.Host == nil {
		return 0
	}
	return b.host.Host.Address()
}

func readsOfShared(_ *plan, o *op) form { return formsOf(o.shared.Reads()) }

func prepareShared(f *forward, y *plan, a *action) (moved bool, err error) {
	return f.b.device.PrepareShared(a.shared, y.fewRows(), y.prefillRows())
}

func (b *Backend) emitShared(y *plan, a *action) {
	b.device.Shared(a.to[0].f32, a.from[0].f32, a.from[0].bf16, a.shared, b.step.Device, y.fewRows(), y.prefillRows())
}

// runHost has the host's experts make what they are to, of the rows that have left.
func (f *forward) runHost(s *leaving) error {
	l, rows, host := f.now.hostLayout(s.width, s.line), f.values.Rows, f.b.host.Host
	if err := s.mixture.Run(host.Floats(l.Made, rows*s.width), host.Floats(l.Rows, rows*s.width), host.Floats(l.Routing, rows*s.line)); err != nil {
		return fmt.Errorf("cuda: experts in the host's memory: %w", err)
	}
	return nil
}
