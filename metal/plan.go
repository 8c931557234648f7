package metal

import "windrow/backend"

// plan is the operations that forwards of one variant run, with the places that
// their buffers have: nothing in it depends on a forward's values.
type plan struct {
	steps  []step
	places []place
}

// step is an operation, or, without one, the conversion of one form of a buffer to
// another.
type step struct {
	op       *op
	dst, src []int // places
}

// place is memory for a buffer in one form.
type place struct {
	width int
	form  form
}

// bytes is what a place takes of that many rows, and the type of its elements.
func (p place) bytes(rows int) (int, elem) {
	if p.form == asBF16 {
		return 2 * rows * p.width, elemBF16
	}
	return 4 * rows * p.width, elemF32
}

// planFor is the plan of a variant.
func (f *forward) planFor(v variant) *plan {
	p := f.plans[v]
	if p == nil {
		p = newPlan(f.widths, f.ops, v)
		f.plans[v] = p
	}
	return p
}

// planner makes a plan.
type planner struct {
	plan
	widths  []int
	buffers []planned
}

// planned is a buffer while a plan is made.
type planned struct {
	f32, bf16 int  // places
	placed    form // the forms that have a place
	valid     form // the forms that hold its current value
	want      form // the forms that later operations read
}

// forms are how an operation is run.
type forms struct{ reads, writes form }

// newPlan gives operations their places, with conversions between them. Each
// operation writes the one form that is read later, where its kernel can; where both
// are read it writes f32.
func newPlan(widths []int, all []op, v variant) *plan {
	p := planner{widths: widths, buffers: make([]planned, len(widths))}
	var ops []*op
	for i := range all {
		o := &all[i]
		if (v.tapped || !o.tapped) && (v.head || o.kind != backend.OpHead) {
			ops = append(ops, o)
		}
	}
	// Backward: which form does each operation have to write?
	chosen := make([]forms, len(ops))
	for i := len(ops) - 1; i >= 0; i-- {
		o, c := ops[i], &chosen[i]
		*c = forms{o.reads, o.writes}
		if o.form != nil {
			*c = forms{o.form(v), o.form(v)}
		}
		if len(o.dst) > 0 && c.writes == asF32|asBF16 {
			c.writes = asF32
			if p.buffers[o.dst[0]].want == asBF16 {
				c.writes = asBF16
			}
		}
		for _, d := range o.dst {
			p.buffers[d].want = 0
			if o.adds {
				p.buffers[d].want = asF32
			}
		}
		for _, s := range o.src {
			p.buffers[s].want |= c.reads
		}
		for _, s := range o.lists {
			p.buffers[s].want |= asF32
		}
	}
	// Forward: places.
	for i, o := range ops {
		p.resolve(o, chosen[i])
	}
	return &p.plan
}

// resolve appends one operation, conversions of its inputs first.
func (p *planner) resolve(o *op, c forms) {
	s := step{op: o}
	for _, b := range o.src {
		s.src = append(s.src, p.valid(b, c.reads))
	}
	for _, b := range o.lists {
		s.src = append(s.src, p.valid(b, asF32))
	}
	for _, b := range o.dst {
		if o.adds {
			p.valid(b, asF32)
		}
		s.dst = append(s.dst, p.place(b, c.writes))
		p.buffers[b].valid = c.writes
	}
	p.steps = append(p.steps, s)
}

// place is a buffer's place in one form.
func (p *planner) place(b backend.Buffer, f form) int {
	x := &p.buffers[b]
	at := &x.f32
	if f == asBF16 {
		at = &x.bf16
	}
	if x.placed&f == 0 {
		x.placed |= f
		*at = len(p.places)
		p.places = append(p.places, place{p.widths[b], f})
	}
	return *at
}

// valid makes one form of a buffer valid, and is its place. What was never written
// stays undefined.
func (p *planner) valid(b backend.Buffer, f form) int {
	at, x := p.place(b, f), &p.buffers[b]
	from := x.valid
	x.valid |= f
	if from != 0 && from&f == 0 {
		p.steps = append(p.steps, step{dst: []int{at}, src: []int{p.place(b, from)}})
	}
	return at
}
