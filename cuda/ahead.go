package cuda

import "windrow/backend"

// ahead is what planning the next forward needs besides a pass's own.
type ahead struct {
	plan    plan
	spans   []backend.Span
	buffers []buffer
}

// lookAhead readies what the next forward of kept operations needs if it is as this
// one, after all of its rows: pages, and the graph of the context's next bucket. The
// device works meanwhile, so nothing is done that waits for it: memory is taken but
// not freed (which waits for all work), a graph is captured, made and uploaded (2 ms
// of 331 nodes). What fails is tried again, and told of, when it is needed. In a group, where some of
// this may wait for another GPU, nothing is done.
func (p *pass) lookAhead() {
	if p.graph == nil || p.b.device.rank != nil {
		return
	}
	a := &p.next
	a.spans = append(a.spans[:0], p.values.spans...)
	for i := range a.spans {
		s := &a.spans[i]
		c := s.KV.(*kv)
		s.Base += s.Rows
		if c.layout.Window == 0 {
			s.Base = min(s.Base, c.layout.Slots-s.Rows)
		}
		if c.reserve(s.Base, s.Base+s.Rows) != nil {
			return
		}
	}
	g := p.geometry(a.spans)
	if g != p.plan.geometry && p.kept.find(&g) == nil && p.b.graphs.count < maxGraphs {
		p.captureAhead(g)
	}
}

// captureAhead makes the graph of another geometry, and leaves the pass as it was.
func (p *pass) captureAhead(g geometry) {
	k, a, arena := p.kept, &p.next, &p.b.arena
	mark, graph := arena.arenaMark, p.graph
	a.buffers = a.buffers[:0]
	for _, b := range k.buffers {
		a.buffers = append(a.buffers, *b)
		*b = buffer{width: b.width}
	}
	p.plan, a.plan = a.plan, p.plan
	p.plan.geometry, p.graph = g, nil
	arena.reset()
	if p.make(nil) == nil && p.fits() && p.capture() == nil {
		p.graph.Upload(p.b.device.stream) // else the first launch does it
	}
	p.plan, a.plan = a.plan, p.plan
	p.graph, arena.arenaMark = graph, mark
	for i, b := range k.buffers {
		*b = a.buffers[i]
	}
}

// fits tells whether there is room already for what grows with the context.
func (p *pass) fits() bool {
	y, d := &p.plan, p.b.device
	if y.shape.layout().size+y.host > p.b.step.size {
		return false
	}
	for i := range y.actions {
		a := &y.actions[i]
		if a.kind == opAttend && a.src[0].bf16 != 0 &&
			d.attendPartsRoom(y.shape.bucket, y.most, y.shape.spans, y.chunks, a.src[0].width/y.kv.HeadDim, y.kv.HeadDim) > d.attendBytes {
			return false
		}
	}
	return true
}
