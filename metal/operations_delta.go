package metal

import (
	"fmt"

	"windrow/backend"
)

// delta is three dispatches a span, over its sequence's states.
func (f *forward) delta(o *backend.Op) error {
	d, layer := o.Delta, f.program.StateLayer(o.Layer)
	if deltaKernel(d.KeyDim) == "" {
		return &backend.UnsupportedError{Backend: f.b.Name(), What: fmt.Sprintf("gated DeltaNet with keys of %d, at most %d", d.KeyDim, deltaDims[len(deltaDims)-1])}
	}
	common := delta{StateShape: d.StateShape, eps: o.Eps}
	for _, v := range []struct {
		to   *view
		from backend.Vector
	}{{&common.taps, d.Taps}, {&common.logDecay, d.LogDecay}, {&common.timeStep, d.TimeStep}, {&common.norm, d.Norm}} {
		var err error
		if *v.to, err = f.vectorOf(o, v.from); err != nil {
			return err
		}
	}
	f.states = append(f.states, d.StateShape)
	width := d.Values()
	f.add(o, op{dst: o.Dst, src: o.Src, reads: asF32, writes: asF32 | asBF16, encode: func(e encoder, r *run, dst, src []view) {
		for _, s := range r.spans {
			y, step := common, s.storage.States.Step()
			y.logRows, y.base, y.rows, y.settle, y.folded = s.storage.layout.LogRows, s.base, s.rows, step.Settle, step.Folded(layer)
			for i, in := range []struct {
				to   *deltaInput
				part backend.Strided
			}{{&y.q, d.Q}, {&y.k, d.K}, {&y.v, d.V}, {&y.z, d.Z}, {&y.b, d.B}, {&y.a, d.A}} {
				w := f.widths[in.part.Buffer]
				*in.to = deltaInput{rowOf(src[i], s.first, w), deltaPart{uint32(in.part.First), uint32(in.part.Stride), uint32(w)}}
			}
			if step.From != nil {
				y.from = (*step.From).layer(layer)
			}
			y.to = (*step.To).layer(layer)
			deltaNet(e, rowOf(dst[0], s.first, width), workAt(r.deltaScratch, d.StateShape, s.rows), y)
		}
		r.stated = append(r.stated, layer)
	}})
	return nil
}

// statesRan says that layers with states are written, whose work has ended; or, after an
// error, that nobody knows what the states are: there are none then.
func (r *run) statesRan(err error) {
	for _, s := range r.spans {
		if len(r.stated) == 0 || s.storage.States == nil || !s.storage.Open() {
			continue
		}
		if err != nil {
			s.storage.States.Truncate(0)
			continue
		}
		for _, layer := range r.stated {
			s.storage.States.Done(layer)
		}
	}
	r.stated = r.stated[:0]
}
