package cuda

// begin launches a section.
func (f *forward) begin(s section) error {
	if err := f.settle(s); err != nil {
		return err
	}
	if err := f.record(s); err != nil {
		return err
	}
	if err := f.launch(); err != nil {
		f.b.device.Stream.Synchronize() // what was queued reads the step block
		return err
	}
	f.written(s)
	return nil
}

// settle finds the graph of a section, or plans it and makes room for what it needs:
// it queues nothing.
func (f *forward) settle(s section) error {
	if err := f.b.arrive(); err != nil {
		return err
	}
	known := f.find(s)
	f.prepared = !known && s.whole() && (f.now.decode || f.now.prompt)
	if known {
		return nil
	}
	if err := f.b.fillStacked(); err != nil {
		return err
	}
	y := &f.now
	if s.first {
		y.reset()
	}
	if err := y.make(s); err != nil {
		return err
	}
	if s.last {
		f.head = y.headAction()
	}
	return f.prepare(y)
}

// whole reports whether a section is all of a forward.
func (s *section) whole() bool { return s.first && s.last }

// find reports whether a section has its graph already, which is to be launched then.
func (f *forward) find(s section) bool {
	f.graph = nil
	if s.whole() {
		if v := f.b.graphs.find(f, &f.now.geometry); v != nil {
			f.use(v)
		}
	}
	return f.graph != nil
}

// use launches a variant next.
func (f *forward) use(v *variant) {
	f.graph, f.head, f.now.actions = v.graph, v.head, f.now.actions[:0]
}

// record makes the graph of a decode pass that has none, and of a pass of prompts in a
// geometry that it has met before.
func (f *forward) record(s section) error {
	if f.graph != nil || !s.whole() || !f.now.decode && !f.met() {
		return nil
	}
	v, err := f.capture(&f.now)
	if err == nil {
		f.use(v)
	}
	return err
}

// met reports whether a pass of prompts had this geometry before. One that comes once is
// sooner launched than captured.
func (f *forward) met() bool {
	if !f.now.prompt {
		return false
	}
	if f.prompted[f.now.geometry] {
		return true
	}
	if f.prompted == nil || len(f.prompted) == maxGraphs {
		f.prompted = map[geometry]bool{}
	}
	f.prompted[f.now.geometry] = true
	return false
}

// launch enqueues the plan, as its graph or its kernels one by one.
func (f *forward) launch() error {
	b, y := f.b, &f.now
	if f.graph == nil && len(y.actions) == 0 {
		return nil
	}
	block := b.step.Host.Bytes()
	if !y.kept {
		f.values.Write(block, y.shape, b.step.Device)
		copy(b.step.Host.Floats(y.shape.Bytes(), len(f.host)), f.host)
	}
	if f.graph != nil {
		b.graphs.last, b.graphs.parts = f.graph, nil
		return f.graph.Launch(b.device.Stream)
	}
	// States that some layers have been written, and others not, would not be told apart:
	// all kernels are loaded before the first one runs.
	if f.states > 0 {
		if err := b.warm(y, y.actions); err != nil {
			return err
		}
	}
	b.emit(y, y.actions)
	return b.device.Take()
}

// wait waits for what launch has enqueued. The driver spins: to block costs 40 µs a
// step, and to spin on a word that the device writes gains nothing.
func (f *forward) wait() error { return f.b.device.Stream.Synchronize() }

// prepare makes room for what the launches use besides the arena: it may
// allocate, which a capture may not.
func (f *forward) prepare(y *plan) error {
	b := f.b
	moved, err := b.step.Grow(b.device.Context, y.shape.Bytes()+y.host)
	for i := range y.actions {
		if prepare := operations[y.actions[i].kind].prepare; prepare != nil && err == nil {
			var also bool
			also, err = prepare(f, y, &y.actions[i])
			moved = moved || also
		}
	}
	if moved {
		b.graphs.drop(nil)
	}
	return err
}
