package cuda

import (
	"slices"

	"windrow/backend"
	"windrow/cuda/driver"
)

// operand is a buffer as a launch sees it: addresses of the forms in use.
type operand struct {
	width     int
	f32, bf16 driver.Ptr
}

// operand is the buffer in the forms f.
func (b *buffer) operand(f form) operand {
	o := operand{width: b.width}
	if f&asF32 != 0 {
		o.f32 = b.f32
	}
	if f&asBF16 != 0 {
		o.bf16 = b.bf16
	}
	return o
}

// action is one operation with its addresses. Two plans of equal actions and
// equal geometry make equal launches.
type action struct {
	kind       opKind
	layer      int
	eps, scale float32
	dst, src   [3]operand
	w          [3]linear
	n          int
	norm       [2]driver.Ptr
	scratch    [3]driver.Ptr
}

// geometry is what the launches of a plan depend on besides their actions.
type geometry struct {
	shape  stepShape
	decode bool             // every span has at most invariantRows rows
	wide   bool             // a decode pass whose projections are made as prefill's
	chunks int              // of the context, a power of two
	most   int              // rows of the longest span, rounded up
	kv     backend.KVLayout // its sizes are 0
	host   int              // bytes of embedded rows behind the step block
	head   int              // wanted rows, rounded up
	top    int              // candidates a row
}

// plan is a list of operations made ready to launch.
type plan struct {
	geometry
	wants   []wanted // of each operation
	actions []action
	logits  driver.Ptr // [head, vocabulary] f32
}

// wanted is what later operations make of one.
type wanted struct {
	forms  form // of dst[0] that they read
	joined bool // its input is normed by its own kernel, not by the operation before
	gone   bool // the next one is joined with it
}

// headRows bounds the rows that go through the head at once: 128 rows of
// 152 k logits are 78 MB.
const headRows = 128

// make plans the recorded operations by the geometry that the plan has. want is
// a buffer whose f32 form is read afterwards, or nil.
func (p *pass) make(want *buffer) error {
	y := &p.plan
	y.actions = y.actions[:0]

	// Backward: which forms does each operation have to write?
	for _, b := range p.buffers[:p.used] {
		b.want = later
	}
	if want != nil {
		want.want |= asF32
	}
	y.wants = slices.Grow(y.wants[:0], len(p.ops))[:len(p.ops)]
	for i := len(p.ops) - 1; i >= 0; i-- {
		o := &p.ops[i]
		joined := i > 0 && p.joins(&p.ops[i-1], o)
		y.wants[i] = wanted{forms: p.wanted(o), joined: joined}
		if joined {
			i--
			y.wants[i] = wanted{gone: true}
			o.src[0].want = 0
			p.ops[i].src[0].want |= asF32
		}
	}

	// Forward: give addresses.
	for i := range p.ops {
		var norm *op
		switch {
		case y.wants[i].gone:
			continue
		case y.wants[i].joined:
			norm = &p.ops[i-1]
		}
		if err := p.resolve(&p.ops[i], norm, y.wants[i].forms); err != nil {
			return err
		}
	}
	if want != nil {
		return p.convert(want, asF32)
	}
	return nil
}

// joins tells whether a projection norms its input itself: of one row, whose
// normed form nobody else reads, now or later. Wants are those of the operations
// after them.
func (p *pass) joins(norm, o *op) bool {
	if norm.kind != opRMSNorm || o.kind != opProject && o.kind != opGated || o.src[0] != norm.dst[0] || o.src[0].want != 0 || p.plan.shape.bucket != 1 {
		return false
	}
	for _, d := range o.dst {
		if d == norm.src[0] || d == norm.dst[0] {
			return false
		}
	}
	w := o.w[:o.n]
	if o.kind == opGated {
		if !gatedTogether(o.w[0], o.w[1]) {
			return false
		}
		w = o.w[:2]
	}
	return p.plan.decode && p.reads(o) == asBF16 && p.b.device.takesNorm(w)
}

// wanted returns the forms of the first target that operation o has to write,
// and moves the wants to its inputs.
func (p *pass) wanted(o *op) form {
	w := form(0)
	if o.dst[0] != nil {
		w = o.dst[0].want &^ later
		for _, d := range o.dst {
			if d != nil {
				d.want = 0
			}
		}
		if o.kind == opProjectAdd {
			o.dst[0].want = asF32
		}
	}
	for _, s := range o.src {
		if s != nil {
			s.want |= p.reads(o)
		}
	}
	return w
}

// reads returns the forms of its inputs that an operation reads.
func (p *pass) reads(o *op) form {
	switch o.kind {
	case opProject, opProjectAdd, opGated:
		var f form
		for _, w := range o.w {
			switch {
			case w.w == nil:
			case w.w.fast():
				f |= asBF16
			default:
				f |= asF32
			}
		}
		return f
	case opAttend:
		if p.attendFast(o) {
			return asBF16
		}
	}
	return asF32
}

// attentionOf is the shape of attention of queries of that width over a layout.
func attentionOf(width int, l backend.KVLayout, scale float32) attention {
	return attention{qHeads: width / l.HeadDim, kvHeads: l.KVHeads, dim: l.HeadDim, scale: scale, kv: l.DType, layers: l.Layers}
}

func (p *pass) attendFast(o *op) bool {
	return !p.b.exact && attendTakes(attentionOf(o.src[0].width, p.layout, o.scale))
}

// geometry rounds this pass's sizes up to those of its graphs, with those spans.
func (p *pass) geometry(spans []backend.Span) geometry {
	g := geometry{kv: p.layout, host: 4 * len(p.host), decode: true}
	g.kv.Slots, g.kv.Window, g.kv.Keep = 0, 0, 0 // the step block says
	slots, longest := 1, 0
	for _, s := range spans {
		slots = max(slots, slotsOf(s))
		longest = max(longest, s.Rows)
	}
	if len(spans) == 0 {
		longest = p.rows
	}
	g.decode = longest <= invariantRows
	g.chunks = powerOfTwo((slots + chunkSlots - 1) / chunkSlots)
	g.shape = stepShape{bucket: rowBucket(p.rows), half: p.layout.HeadDim / 2, spans: powerOfTwo(len(spans))}
	g.shape.pages = max(8, g.shape.spans*g.chunks)
	g.wide = g.decode && p.b.variant && p.rows > invariantRows
	if p.values.cos == nil {
		g.shape.half = 0
	}
	if g.decode {
		g.most = rowBucket(longest)
	} else {
		g.most = (longest + 127) &^ 127
	}
	if n := len(p.values.want); n > 0 {
		g.head, g.top = rowBucket(n), p.values.top
	}
	return g
}

// slotsOf is how many slots of its storage a span's rows may see.
func slotsOf(s backend.Span) int {
	n := s.Base + s.Rows
	if l := s.KV.Layout(); l.Window != 0 {
		n = min(n, l.Slots)
	}
	return n
}

// place gives a buffer memory in the forms f.
func (p *pass) place(b *buffer, f form) error {
	n := p.plan.shape.bucket * b.width
	var err error
	if f&asF32 != 0 && b.f32 == 0 {
		b.f32, err = p.take(4 * n)
	}
	if err == nil && f&asBF16 != 0 && b.bf16 == 0 {
		b.bf16, err = p.take(2 * n)
	}
	return err
}

func (p *pass) take(n int) (driver.Ptr, error) {
	chunks := len(p.b.arena.chunks)
	a, err := p.b.arena.take(p.b.device.ctx, n)
	if len(p.b.arena.chunks) != chunks {
		p.b.graphs.clear() // addresses of later plans change
	}
	return a, err
}

// resolve appends the actions of one operation of whose first target forms are
// wanted, conversions of its inputs first. norm is one that it is joined with, or
// nil.
func (p *pass) resolve(o, norm *op, forms form) error {
	a := action{kind: o.kind, layer: o.layer, eps: o.eps, scale: o.scale, w: o.w, n: o.n, norm: o.norm}
	from, reads := o.src, p.reads(o)
	if norm != nil {
		a.eps, a.norm = norm.eps, norm.norm
		from, reads = norm.src, asF32
	}
	for i, s := range from {
		if s == nil {
			continue
		}
		if err := p.convert(s, reads); err != nil {
			return err
		}
		a.src[i] = s.operand(reads)
	}
	writes := p.writes(o, forms)
	for i, d := range o.dst {
		if d == nil {
			continue
		}
		if o.kind == opProjectAdd {
			if err := p.convert(d, asF32); err != nil {
				return err
			}
		}
		if err := p.place(d, writes); err != nil {
			return err
		}
		a.dst[i] = d.operand(writes)
		d.valid = writes
	}
	if err := p.scratch(o, &a); err != nil {
		return err
	}
	p.plan.actions = append(p.plan.actions, a)
	return nil
}

// writes returns the forms that an operation's kernel produces, given those
// that are wanted.
func (p *pass) writes(o *op, forms form) form {
	if forms == 0 {
		forms = asF32
	}
	switch o.kind {
	case opRMSNorm:
		return forms
	case opAttend:
		if p.attendFast(o) {
			return forms
		}
	case opGated:
		if gatedTogether(o.w[0], o.w[1]) {
			return forms
		}
		return asF32 | forms&asBF16 // the activation kernel writes both
	case opRotate:
		return forms
	}
	return asF32
}

// convert makes the forms f of a buffer valid.
func (p *pass) convert(b *buffer, f form) error {
	missing := f &^ b.valid
	if missing == 0 {
		return nil
	}
	if err := p.place(b, missing); err != nil {
		return err
	}
	if b.valid == 0 { // never written: its contents are undefined
		b.valid = missing
		return nil
	}
	a := action{kind: opConvert, dst: [3]operand{b.operand(missing)}, src: [3]operand{b.operand(b.valid)}}
	b.valid |= missing
	p.plan.actions = append(p.plan.actions, a)
	return nil
}

// sameFormat tells whether two weights run in one launch.
func sameFormat(a, b *matrix) bool {
	return a.fast() == b.fast() && a.dt == b.dt && a.group == b.group
}

// gatedTogether tells whether gate and up run in one launch with the
// activation.
func gatedTogether(gate, up linear) bool {
	return sameFormat(gate.w, up.w) && gate.w.fast()
}

// scratch gives an action memory that no other sees.
func (p *pass) scratch(o *op, a *action) (err error) {
	take := func(i, n int) {
		if err == nil {
			a.scratch[i], err = p.take(n)
		}
	}
	switch o.kind {
	case opGated:
		if !gatedTogether(o.w[0], o.w[1]) {
			n := 4 * p.plan.shape.bucket * o.dst[0].width
			take(0, n)
			take(1, n)
		}
	case opHead:
		vocabulary := o.w[0].w.out
		partials, _ := statsBytes(vocabulary, p.plan.head, p.plan.top)
		size := 4
		if o.w[0].w.fast() {
			size = 2
		}
		take(0, size*p.plan.head*o.src[0].width)
		take(1, 4*p.plan.head*vocabulary)
		take(2, partials)
		p.plan.logits = a.scratch[1]
	}
	return err
}
