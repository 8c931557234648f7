package metal

import "windrow/metal/driver"

// planned is an operation with its places.
type planned struct {
	dst, src []view
	scratch  view
	run      func(e encoder, dst, src []view, scratch view)
}

// submitFLOPs bounds the work of one command buffer: the system ends what keeps
// the GPU from drawing for seconds. An M1 does about 2 TFLOP/s at best; a step of
// decoding stays far below.
const submitFLOPs = 2e12

// flush runs what is recorded, and waits. The f32 form of buffer want, where
// there is one, is valid afterwards.
func (p *pass) flush(want *buffer) {
	if p.err == nil && (len(p.ops) > 0 || want != nil) {
		p.err = p.run(want)
	}
	p.forget()
}

func (p *pass) run(want *buffer) error {
	plan, err := p.plan(want)
	if err != nil || len(plan) == 0 {
		return err
	}
	if err := p.say(); err != nil {
		return err
	}
	for len(plan) > 0 {
		err := p.b.memory.encode(func(e encoder) {
			m := meter{encoder: e}
			for len(plan) > 0 && m.flops < submitFLOPs {
				s := plan[0]
				plan = plan[1:]
				s.run(&m, s.dst, s.src, s.scratch)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// meter adds up what goes through it.
type meter struct {
	encoder
	flops int64
}

func (m *meter) dispatch(d dispatch) {
	m.flops += d.cost.flops
	m.encoder.dispatch(d)
}

// say writes what is staged into memory of the device. Nothing runs there now.
func (p *pass) say() error {
	b := p.b
	if n := len(p.staged); n > b.room {
		if b.room > 0 {
			b.memory.free(b.step)
			b.room = 0
		}
		n = aligned(max(2*n, 1<<16), driver.PageSize)
		v, err := b.memory.alloc(n, elemBytes)
		if err != nil {
			return err
		}
		b.step, b.room = v, n
	}
	if len(p.staged) > 0 {
		copy(b.memory.bytes(b.step, len(p.staged)), p.staged)
	}
	return nil
}

// plan gives the recorded operations their places, and conversions between
// them. Each operation writes the one form that is read later, where its kernel
// can; where both are read it writes f32.
func (p *pass) plan(want *buffer) ([]planned, error) {
	for _, b := range p.buffers[:p.used] {
		b.want = 0
	}
	if want != nil {
		want.want = asF32
	}
	// Backward: which form does each operation have to write?
	for i := len(p.ops) - 1; i >= 0; i-- {
		o := &p.ops[i]
		if len(o.dst) > 0 && o.writes == asF32|asBF16 {
			o.writes = asF32
			if o.dst[0].want == asBF16 {
				o.writes = asBF16
			}
		}
		for _, d := range o.dst {
			d.want = 0
			if o.adds {
				d.want = asF32
			}
		}
		for _, s := range o.src {
			s.want |= o.reads
		}
	}
	// Forward: places.
	var plan []planned
	for i := range p.ops {
		var err error
		if plan, err = p.resolve(plan, &p.ops[i]); err != nil {
			return nil, err
		}
	}
	if want != nil {
		return p.convert(plan, want, asF32)
	}
	return plan, nil
}

// resolve appends one operation, conversions of its inputs first.
func (p *pass) resolve(plan []planned, o *op) (_ []planned, err error) {
	s := planned{run: o.run}
	for _, b := range o.src {
		if plan, err = p.convert(plan, b, o.reads); err != nil {
			return nil, err
		}
		s.src = append(s.src, b.in(o.reads))
	}
	for _, b := range o.dst {
		if o.adds {
			if plan, err = p.convert(plan, b, asF32); err != nil {
				return nil, err
			}
		}
		if o.apart && o.reads == o.writes {
			for _, x := range o.src {
				if x == b {
					b.placed &^= o.writes
				}
			}
		}
		if err = p.place(b, o.writes); err != nil {
			return nil, err
		}
		s.dst = append(s.dst, b.in(o.writes))
		b.valid = o.writes
	}
	if o.scratch != nil {
		if n := o.scratch(); n > 0 {
			if n > p.room {
				if p.scratch, err = p.b.arena.take(p.b.memory, n, elemF32); err != nil {
					return nil, err
				}
				p.room = n
			}
			s.scratch = p.scratch
		}
	}
	return append(plan, s), nil
}

// place gives a buffer memory in one form.
func (p *pass) place(b *buffer, f form) (err error) {
	if b.placed&f != 0 {
		return nil
	}
	n := p.rows * b.width
	if f == asBF16 {
		b.bf16, err = p.b.arena.take(p.b.memory, 2*n, elemBF16)
	} else {
		b.f32, err = p.b.arena.take(p.b.memory, 4*n, elemF32)
	}
	if err == nil {
		b.placed |= f
	}
	return err
}

// convert makes one form of a buffer valid. What was never written stays
// undefined.
func (p *pass) convert(plan []planned, b *buffer, f form) ([]planned, error) {
	if b.valid&f != 0 {
		return plan, nil
	}
	if err := p.place(b, f); err != nil {
		return nil, err
	}
	from := b.valid
	b.valid |= f
	if from == 0 {
		return plan, nil
	}
	n := p.rows * b.width
	return append(plan, planned{dst: []view{b.in(f)}, src: []view{b.in(from)}, run: func(e encoder, dst, src []view, _ view) {
		convertRows(e, dst[0], src[0], n)
	}}), nil
}
