package cuda

import (
	"fmt"

	"windrow/backend"
)

// Read runs what is recorded and copies a buffer, from the first GPU where it is
// whole, else from all of them.
func (p *groupPass) Read(b backend.Buffer) []float32 {
	buf := b.(*groupBuffer)
	out := make([]float32, p.rows*buf.width)
	p.flush(buf)
	at := 0
	for i, o := range p.g.shards {
		if p.err != nil {
			break
		}
		from := p.on(i, buf)
		if !buf.split {
			p.err = o.read(out, from)
			break
		}
		part := make([]float32, p.rows*from.width)
		p.err = onGPU(i, o.read(part, from))
		for r := range p.rows {
			copy(out[r*buf.width+at:], part[r*from.width:(r+1)*from.width])
		}
		at += from.width
	}
	return out
}

// End runs what is recorded and ends the pass.
func (p *groupPass) End() error {
	if !p.open {
		return fmt.Errorf("cuda: the forward has ended already")
	}
	p.flush(nil)
	p.open = false
	for _, q := range p.passes {
		q.End() // its error has been seen
	}
	clear(p.spans)
	return p.err
}

// flush runs what all GPUs have recorded, and waits.
func (p *groupPass) flush(want *groupBuffer) {
	if p.failed() == nil && (want != nil || len(p.passes[0].ops) > 0) {
		p.ready(want)
		p.onAll(func(q *pass) error {
			if err := q.launch(); err != nil {
				return err
			}
			return q.wait()
		})
		for _, q := range p.passes {
			q.done(want == nil && p.err == nil)
		}
	}
	for _, q := range p.passes {
		q.forget()
	}
}

// ready plans and makes room, for all GPUs before any of them works, so that an
// error of one leaves none waiting for it, and since an allocation may wait for
// other GPUs' work.
func (p *groupPass) ready(want *groupBuffer) {
	wanted := func(i int) *buffer {
		if want == nil {
			return nil
		}
		return p.on(i, want)
	}
	known := true
	for i, q := range p.passes {
		q.b.device.ctx.Enter()
		p.err = onGPU(i, q.settle(wanted(i)))
		q.b.device.ctx.Leave()
		if p.err != nil {
			return
		}
		known = known && (q.graph != nil || q.idle)
	}
	if !known {
		p.onAll((*pass).makeReady)
	}
}

// onAll does a step of all GPUs' passes at once.
func (p *groupPass) onAll(step func(*pass) error) {
	if p.err == nil {
		p.err = p.g.together(func(_ int, b *Backend) error {
			b.device.ctx.Enter()
			defer b.device.ctx.Leave()
			return step(&b.pass)
		})
	}
}

// makeReady captures, or loads the kernels of what is not captured: what may wait
// for another GPU is done before any of them depends on the others.
func (p *pass) makeReady() error {
	if p.idle || p.graph != nil {
		return nil
	}
	if !p.plan.decode {
		key := p.b.graphs.key(&p.plan)
		if p.b.warmed[key] {
			return nil
		}
		if len(p.b.warmed) >= maxGraphs || p.b.warmed == nil {
			p.b.warmed = map[uint64]bool{}
		}
		err := p.b.warm(&p.plan)
		p.b.warmed[key] = err == nil
		return err
	}
	if err := p.capture(); err != nil {
		return err
	}
	if err := p.graph.Upload(p.b.device.stream); err != nil {
		return err
	}
	return p.b.device.stream.Synchronize()
}
