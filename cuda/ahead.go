package cuda

import "windrow/backend"

// lookAhead readies what the next forward needs if it is as this one, after all of its
// rows: pages, angles, and the graph of the context's next bucket. The device works
// meanwhile, so nothing is done that waits for it: memory is taken but not freed (which
// waits for all work), a graph is captured, made and uploaded (2 ms of 331 nodes). What
// fails is tried again, and reported, when it is needed. In a group, where some of this
// may wait for another GPU, nothing is done, nor for prompts: what follows one is a step;
// nor in parts, where the host works as long as the device.
func (f *forward) lookAhead() {
	if f.graph == nil || f.parts != nil || f.now.prompt || f.b.device.Grouped() {
		return
	}
	f.spans = append(f.spans[:0], f.values.Spans...)
	for i := range f.spans {
		if f.readyAfter(&f.spans[i]) != nil {
			return
		}
	}
	g := f.geometry(f.spans)
	if g != f.now.geometry && len(f.b.graphs.list) < maxGraphs && f.b.graphs.find(f, &g) == nil {
		f.captureAhead(g)
	}
}

// readyAfter moves a span behind its rows, and has its pages and angles.
func (f *forward) readyAfter(s *backend.Span) error {
	for _, a := range f.angles {
		for _, p := range f.values.Positions[s.First : s.First+s.Rows] {
			if err := a.Has(min(int(p)+s.Rows, a.Positions()-1)); err != nil {
				return err
			}
		}
	}
	c := s.Storage.(*storage)
	s.Base += s.Rows
	if c.layout.Window == 0 {
		s.Base = min(s.Base, c.layout.Slots-s.Rows)
	}
	return c.Writable(s.Base, s.Base+s.Rows)
}

// captureAhead makes the graph of another geometry, if there is room already for what
// grows with the context.
func (f *forward) captureAhead(g geometry) {
	y := &f.next
	y.geometry = g
	y.reset()
	if y.make(f.rest(false)) != nil || !f.fits(y) {
		return
	}
	if v, err := f.capture(y); err == nil {
		v.graph.Upload(f.b.device.Stream) // else the first launch does it
	}
}

// fits reports whether there is room already for what grows with the context.
func (f *forward) fits(y *plan) bool {
	if y.shape.Bytes()+y.host > f.b.step.Size {
		return false
	}
	for i := range y.actions {
		if y.attendRoom(&y.actions[i]) > f.b.device.AttendHolds() {
			return false
		}
	}
	return true
}
