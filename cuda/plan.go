package cuda

import (
	"slices"

	"windrow/backend"
	"windrow/cuda/driver"
	"windrow/cuda/launch"
)

// form is a set of the representations of a buffer.
type form uint8

const (
	asF32 form = 1 << iota
	asBF16
	later // while planning: operations of another section may read it
)

// buffer is activations [rows, width]. It has an address in each form that
// some operation needed.
type buffer struct {
	f32, bf16 driver.Ptr
	valid     form // the forms that hold its current value
	want      form // while planning: the forms that later operations read
}

// geometry is what the launches of a forward's operations depend on, besides them.
type geometry struct {
	shape  launch.StepShape
	decode bool // every span has at most invariantRows rows
	prompt bool // rows of prompts alone, whose bits do not depend on their number
	wide   bool // a decode pass whose projections are made as prefill's
	chunks int  // of the context, a power of two
	most   int  // rows of the longest span, rounded up
	kv     backend.Keys
	host   int  // bytes of embedded rows behind the step block
	head   int  // rows that the head runs on, rounded up; 0: it does not
	hidden bool // results bring hidden states
	top    int  // candidates a row
}

// section is operations that run without a wait between them.
type section struct {
	ops         []op
	told        []op           // of the last one: in place of them where results bring hidden states
	shown       backend.Buffer // by the Tap behind them; -1: none
	leaves      *leaving       // where the host's experts run behind them; nil: they do not
	beside      bool           // they run while the host's experts do
	first, last bool           // of the forward
}

// plan is operations made ready to launch: by a geometry, their buffers placed.
type plan struct {
	f *forward
	geometry
	buffers []buffer
	arena   launch.ArenaMark
	wants   []wanted // of each operation
	actions []action
	kept    bool // the device has the step block from a part before
}

// wanted is what later operations make of one.
type wanted struct {
	forms  form // of dst[0] that they read
	joined bool // its input is normed, or rotated, by its own kernel, not by the operation before
	gone   bool // the next one is joined with it
	normed form // of a joined router: what others read of the normed row
	left   bool // a router and its experts are in one section: these may choose
}

// reset forgets where buffers lie.
func (y *plan) reset() {
	y.buffers = slices.Grow(y.buffers[:0], len(y.f.widths))[:len(y.f.widths)]
	clear(y.buffers)
	y.arena, y.kept = launch.ArenaMark{}, false
}

// make plans a section by the geometry that the plan has. Buffers lie where the
// sections before have put them. The f32 form of what is shown is valid afterwards.
func (y *plan) make(s section) error {
	y.actions = y.actions[:0]

	// Backward: which forms does each operation have to write?
	for i := range y.buffers {
		y.buffers[i].want = 0
		if !s.last {
			y.buffers[i].want = later
		}
	}
	if s.shown >= 0 {
		y.buffers[s.shown].want |= asF32
	}
	y.wants = slices.Grow(y.wants[:0], len(s.ops))[:len(s.ops)]
	for i := len(s.ops) - 1; i >= 0; i-- {
		o := &s.ops[i]
		joined := i > 0 && y.joins(&s.ops[i-1], o)
		normed := form(0)
		if joined {
			normed = y.buffers[o.src[0]].want
		}
		left := o.kind == opRoute && i+1 < len(s.ops) && s.ops[i+1].kind == opExperts || o.kind == opExperts && i > 0 && s.ops[i-1].kind == opRoute
		y.wants[i] = wanted{forms: y.wanted(o), joined: joined, normed: normed, left: left}
		if joined {
			i--
			y.wants[i] = wanted{gone: true}
			y.buffers[o.src[0]].want = 0
			for _, b := range s.ops[i].src {
				y.buffers[b].want |= asF32
			}
		}
	}

	// Forward: give addresses.
	for i := range s.ops {
		var before *op
		switch {
		case y.wants[i].gone:
			continue
		case y.wants[i].joined:
			before = &s.ops[i-1]
		}
		if err := y.resolve(&s.ops[i], before, y.wants[i]); err != nil {
			return err
		}
	}
	if s.shown >= 0 {
		return y.convert(s.shown, asF32)
	}
	return nil
}

// joins reports whether an operation does what the one before it would: a projection
// norms its input, of few rows, and an attention rotates its queries, where nobody else
// reads what comes of that, now or later. Wants are those of the operations after them.
func (y *plan) joins(before, o *op) bool {
	switch o.kind {
	case opRoute:
		return y.joinsRoute(before, o)
	case opAttend:
		return y.joinsRotation(before, o)
	}
	if before.kind != opRMSNorm || o.kind != opProject && o.kind != opGated || o.src[0] != before.dst[0] || y.buffers[o.src[0]].want != 0 {
		return false
	}
	for _, d := range o.dst {
		if d == before.src[0] || d == before.dst[0] {
			return false
		}
	}
	w := o.w[:o.n]
	if o.kind == opGated && !gatedTogether(w[0], w[1]) {
		return false
	}
	return y.decode && y.reads(o) == asBF16 && !y.wide && y.f.b.device.TakesNorm(w, o.kind == opGated, y.shape.Bucket)
}

// wanted returns the forms of the first target that operation o has to write,
// and moves the wants to its inputs.
func (y *plan) wanted(o *op) (w form) {
	if len(o.dst) > 0 {
		w = y.buffers[o.dst[0]].want &^ later
		for _, d := range o.dst {
			y.buffers[d].want = 0
		}
		if o.adds() {
			y.buffers[o.dst[0]].want = asF32
		}
	}
	for _, s := range o.src {
		y.buffers[s].want |= y.reads(o)
	}
	return w
}

// reads returns the forms of its inputs that an operation reads.
func (y *plan) reads(o *op) form {
	if f := operations[o.kind].reads; f != nil {
		return f(y, o)
	}
	return asF32
}

// writes returns the forms that an operation's kernel produces, given those
// that are wanted.
func (y *plan) writes(o *op, forms form) form {
	if forms == 0 {
		forms = asF32
	}
	if f := operations[o.kind].writes; f != nil {
		return f(y, o, forms)
	}
	return asF32
}

// place gives a buffer memory in the forms f.
func (y *plan) place(at backend.Buffer, f form) error {
	b, n := &y.buffers[at], y.shape.Bucket*y.f.widths[at]
	var err error
	if f&asF32 != 0 && b.f32 == 0 {
		b.f32, err = y.take(4 * n)
	}
	if err == nil && f&asBF16 != 0 && b.bf16 == 0 {
		b.bf16, err = y.take(2 * n)
	}
	return err
}

func (y *plan) take(n int) (driver.Ptr, error) {
	return y.f.b.arena.Take(y.f.b.device.Context, &y.arena, n)
}

// operand is a buffer in the forms f.
func (y *plan) operand(at backend.Buffer, f form) operand {
	b, o := &y.buffers[at], operand{width: y.f.widths[at]}
	if f&asF32 != 0 {
		o.f32 = b.f32
	}
	if f&asBF16 != 0 {
		o.bf16 = b.bf16
	}
	return o
}

// resolve appends the actions of one operation, conversions of its inputs first. before
// is one that it is joined with, or nil.
func (y *plan) resolve(o, before *op, w wanted) error {
	a := action{op: *o, left: w.left}
	src, reads := o.src, y.reads(o)
	if before != nil {
		a.eps, a.norm, a.angles = before.eps, before.norm, before.angles
		src, reads = before.src, asF32
	}
	for i, s := range src {
		if err := y.convert(s, reads); err != nil {
			return err
		}
		a.from[i] = y.operand(s, reads)
	}
	writes := y.writes(o, w.forms)
	for i, d := range o.dst {
		if o.adds() {
			if err := y.convert(d, asF32); err != nil {
				return err
			}
		}
		if err := y.place(d, writes); err != nil {
			return err
		}
		a.to[i] = y.operand(d, writes)
		y.buffers[d].valid = writes
	}
	if o.delta != nil {
		if err := y.place(o.delta.room, asF32); err != nil {
			return err
		}
	}
	if before != nil && w.normed != 0 { // a router that leaves the normed row to others
		if err := y.place(o.src[0], w.normed); err != nil {
			return err
		}
		a.to[1] = y.operand(o.src[0], w.normed)
		y.buffers[o.src[0]].valid = w.normed
	}
	if scratch := operations[o.kind].scratch; scratch != nil {
		for i, n := range scratch(y, o) {
			if n > 0 {
				var err error
				if a.scratch[i], err = y.take(n); err != nil {
					return err
				}
			}
		}
	}
	y.actions = append(y.actions, a)
	return nil
}

// convert makes the forms f of a buffer valid.
func (y *plan) convert(at backend.Buffer, f form) error {
	b := &y.buffers[at]
	missing := f &^ b.valid
	if missing == 0 {
		return nil
	}
	if err := y.place(at, missing); err != nil {
		return err
	}
	if b.valid == 0 { // never written: its contents are undefined
		b.valid = missing
		return nil
	}
	y.actions = append(y.actions, action{
		op: op{kind: opConvert}, to: [3]operand{y.operand(at, missing)}, from: [6]operand{y.operand(at, b.valid)},
	})
	b.valid |= missing
	return nil
}
