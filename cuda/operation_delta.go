package cuda

import (
	"windrow/backend"
	"windrow/cuda/launch"
)

// deltaOp is a layer of gated DeltaNet as it was compiled: of what a launch takes all
// but addresses of activations.
type deltaOp struct {
	launch.Delta
	room backend.Buffer // of the forward's own, behind those of the program: all layers share it
}

// delta looks up the weights of a layer.
func (c *compiler) delta(y *op, o *backend.Op) error {
	d := o.Delta
	if err := launch.DeltaTakes(d.StateShape); err != nil {
		return &backend.UnsupportedError{Backend: c.b.Name(), What: err.Error()}
	}
	raw := func(s backend.Strided) launch.DeltaRaw { return launch.DeltaRaw{First: s.First, Stride: s.Stride} }
	x := launch.Delta{
		DeltaShape: launch.DeltaShape{StateShape: d.StateShape},
		Q:          raw(d.Q), K: raw(d.K), V: raw(d.V), Z: raw(d.Z), B: raw(d.B), A: raw(d.A),
		Taps: c.vector(d.Taps).data, LogDecay: c.vector(d.LogDecay).data, TimeStep: c.vector(d.TimeStep).data, Norm: c.vector(d.Norm).data,
		Eps: o.Eps, Layer: c.f.program.StateLayer(o.Layer),
	}
	for _, s := range c.f.program.Stores()[:o.Layer] {
		if s.Kind == backend.StoreState {
			fixed, byLog := launch.DeltaShape{StateShape: s.State}.Size()
			x.Fixed, x.ByLog = x.Fixed+fixed, x.ByLog+byLog
		}
	}
	room := c.f.own(deltaRoom)
	c.f.widths[room] = max(c.f.widths[room], x.DeltaShape.Room())
	y.kind, y.layer, y.delta = opDelta, x.Layer, &deltaOp{x, room}
	return c.err
}

// Buffers that a forward has behind those of its program.
const (
	deltaRoom  = iota // what a layer's kernels hand on
	deltaGates        // b and a of a layer, where one projection makes both
	ownBuffers
)

// own is one of them.
func (f *forward) own(which int) backend.Buffer {
	n := len(f.program.Widths)
	if len(f.widths) == n {
		f.widths = append(f.widths[:n:n], make([]int, ownBuffers)...)
	}
	return backend.Buffer(n + which)
}

// recurrent is how many layers have a state, of a program that works on them.
func recurrent(p *backend.Program) (n int) {
	if !p.Recurs() {
		return 0
	}
	for _, s := range p.Stores() {
		if s.Kind == backend.StoreState {
			n++
		}
	}
	return n
}

func prepareDelta(f *forward, y *plan, a *action) (moved bool, err error) {
	return f.b.device.PrepareDelta(&a.delta.Delta, y.shape.Bucket)
}

func (b *Backend) emitDelta(y *plan, a *action) {
	x := a.delta.Delta
	for i, r := range []*launch.DeltaRaw{&x.Q, &x.K, &x.V, &x.Z, &x.B, &x.A} {
		r.X, r.Width = a.from[i].f32, a.from[i].width
	}
	x.Room = y.buffers[a.delta.room].f32
	b.device.Delta(a.to[0].f32, a.to[0].bf16, &x, b.step.Device, y.shape.Bucket, y.shape.Spans)
}

// written notes that a section's layers have written their states.
func (f *forward) written(s section) {
	for i := range s.ops {
		if o := &s.ops[i]; o.kind == opDelta {
			for _, span := range f.values.Spans {
				span.Storage.(*storage).done(o.layer)
			}
		}
	}
}
