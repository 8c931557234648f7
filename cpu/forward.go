package cpu

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"windrow/backend"
	"windrow/cpu/kernels"
)

// buffer is activations [rows, width] in f32.
type buffer struct {
	width int
	data  []float32
}

// forward runs the operations of a program one after the other, as Start is called.
type forward struct {
	b       *Backend
	program *backend.Program
	angles  []angles // of the program's rotations
	buffers []buffer
	apart   [2]buffer // gate and up, where they are made one after the other
	normed  buffer    // the wanted rows, for the head
	targets []target  // of the last projection
	results []backend.Result
	recurs  bool    // it works on states
	mixture mixture // of the experts at work
	delta   deltaWork
	started bool
	rowwise []rowwise // from each operation on
	ahead   packedAhead

	// Of the forward at work.
	values *backend.Values
	rows   int
}

// angles are the cosines and sines [rows, pairs] of a forward's positions.
type angles struct {
	rotation *rotation
	cos, sin []float32
}

// rotation is where the angles come from.
type rotation struct {
	backend.Angles
	positions int
}

func (r *rotation) Positions() int { return r.positions }

// Rotation keeps a: rows are taken from it as they are needed.
func (b *Backend) Rotation(a backend.Angles, positions int) (backend.Rotation, error) {
	if positions <= 0 || a.Pairs() <= 0 {
		return nil, fmt.Errorf("cpu: a rotation of %d pairs for %d positions", a.Pairs(), positions)
	}
	return &rotation{a, positions}, nil
}

// Compile checks that the weights are this backend's, and that it has all operations.
func (b *Backend) Compile(p *backend.Program) (backend.Forward, error) {
	if err := p.Err(); err != nil {
		return nil, fmt.Errorf("cpu: %w", err)
	}
	f := &forward{b: b, program: p, recurs: p.Recurs(), buffers: make([]buffer, len(p.Widths)), delta: deltaWork{weights: map[*backend.Delta]*deltaWeights{}}}
	for i := range p.Ops {
		if err := f.takes(&p.Ops[i]); err != nil {
			return nil, err
		}
	}
	for i := range p.Ops {
		f.rowwise = append(f.rowwise, f.rowwiseFrom(i))
	}
	return f, nil
}

// takes checks one operation.
func (f *forward) takes(o *backend.Op) error {
	if !o.Kind.Known() {
		return &backend.UnsupportedError{Backend: "cpu", What: o.Kind.String()}
	}
	for _, l := range o.Weights {
		if _, ok := l.Weight.(*matrix); !ok {
			return fmt.Errorf("cpu: %v: a weight of another backend", o.Kind)
		}
		if _, ok := l.Bias.(vector); !ok && l.Bias != nil {
			return fmt.Errorf("cpu: %v: a bias of another backend", o.Kind)
		}
	}
	for _, n := range []backend.Vector{o.Norm, o.Heads.QNorm, o.Heads.KNorm} {
		if _, ok := n.(vector); !ok && n != nil {
			return fmt.Errorf("cpu: %v: a norm of another backend", o.Kind)
		}
	}
	switch o.Kind {
	case backend.OpExpertsAdd:
		return f.takesExperts(o.Experts)
	case backend.OpDelta:
		return f.takesDelta(o.Delta)
	case backend.OpRotateStore:
	default:
		return nil
	}
	r, ok := o.Heads.Rotation.(*rotation)
	if !ok {
		return fmt.Errorf("cpu: %v: a rotation of another backend", o.Kind)
	}
	if f.anglesOf(r) == nil {
		f.angles = append(f.angles, angles{rotation: r})
	}
	return nil
}

// anglesOf finds a rotation's angles; there are one or two rotations.
func (f *forward) anglesOf(r backend.Rotation) *angles {
	for i := range f.angles {
		if f.angles[i].rotation == r {
			return &f.angles[i]
		}
	}
	return nil
}

// Start runs the forward. ctx is looked at between operations.
func (f *forward) Start(ctx context.Context, v backend.Values) error {
	f.started = false
	if err := f.ready(&v); err != nil {
		return fmt.Errorf("cpu: %w", err)
	}
	defer func() { f.values = nil }()
	if v.Deferred != nil {
		v.Deferred()
	}
	f.ahead = packedAhead{}
	for i := 0; i < len(f.program.Ops); i++ {
		o := &f.program.Ops[i]
		if o.Tapped && v.Tap == nil || o.Kind == backend.OpHead && len(v.Want) == 0 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if r := &f.rowwise[i]; f.goesRowwise(r) {
			f.doRowwise(r)
			i += len(r.ops) - 1
			continue
		}
		if err := f.run(o); err != nil {
			return fmt.Errorf("cpu: %w", err)
		}
		f.ahead = packedAhead{}
	}
	f.started = true
	return nil
}

// ready checks the values, and makes room for their rows.
func (f *forward) ready(v *backend.Values) error {
	if f.b.pool.closed.Load() {
		return errors.New("the backend is closed")
	}
	if err := f.program.CheckValues(v); err != nil {
		return err
	}
	for i, s := range v.Spans {
		if c, ok := s.Storage.(*storage); !ok || !c.Open() || c.b != f.b {
			return fmt.Errorf("span %d has no open storage of this backend", i)
		}
	}
	for i, s := range v.Spans {
		c := s.Storage.(*storage)
		if err := c.Begin(c, s.Base, s.Rows, f.recurs); err != nil {
			return backend.InSpan(i, err)
		}
	}
	f.values, f.rows, f.results = v, len(v.Tokens), nil
	for i, width := range f.program.Widths {
		f.buffers[i].sized(f.rows, width)
	}
	for i := range f.angles {
		a := &f.angles[i]
		n := f.rows * a.rotation.Pairs()
		a.rotation.Fill(kernels.Grown(&a.cos, n), kernels.Grown(&a.sin, n), v.Positions)
	}
	return nil
}

// sized makes room for rows, of undefined contents.
func (b *buffer) sized(rows, width int) {
	b.width, b.data = width, kernels.Grown(&b.data, rows*width)
}

// Wait returns the results of the forward that Start ran.
func (f *forward) Wait() ([]backend.Result, error) {
	if !f.started {
		return nil, errors.New("cpu: no forward has been started")
	}
	f.started = false
	return f.results, nil
}

// Close gives the buffers' memory back.
func (f *forward) Close() {
	clear(f.buffers)
	f.apart, f.normed, f.results, f.started = [2]buffer{}, buffer{}, nil, false
	f.mixture, f.delta = mixture{}, deltaWork{weights: f.delta.weights}
}

// run does one operation.
func (f *forward) run(o *backend.Op) (err error) {
	buf := func(list []backend.Buffer, i int) *buffer { return &f.buffers[list[i]] }
	switch o.Kind {
	case backend.OpEmbed:
		f.embed(buf(o.Dst, 0), o.Weights[0].Weight.(*matrix))
	case backend.OpInput:
		copy(buf(o.Dst, 0).data, f.values.Input)
	case backend.OpJoin:
		f.join(buf(o.Dst, 0), o.Src)
	case backend.OpRMSNorm:
		f.rmsNorm(buf(o.Dst, 0), buf(o.Src, 0), o.Norm.(vector), o.Eps)
	case backend.OpProject:
		f.project(o.Dst, buf(o.Src, 0), o.Weights, false)
	case backend.OpProjectAdd:
		f.project(o.Dst, buf(o.Src, 0), o.Weights, true)
	case backend.OpGatedProject:
		f.gatedProject(buf(o.Dst, 0), buf(o.Src, 0), o.Weights[0], o.Weights[1])
	case backend.OpRotateStore:
		f.rotateStore(buf(o.Src, 0), buf(o.Src, 1), buf(o.Src, 2), &o.Heads, f.program.KeyLayer(o.Layer))
	case backend.OpAttend:
		f.attend(buf(o.Dst, 0), buf(o.Src, 0), &o.Heads, f.program.KeyLayer(o.Layer), o.Scale)
	case backend.OpTap:
		f.values.Tap(o.Index, slices.Clone(buf(o.Src, 0).data))
	case backend.OpRoute:
		f.route(buf(o.Dst, 0), buf(o.Src, 0), o)
	case backend.OpExpertsAdd:
		f.expertsAdd(buf(o.Dst, 0), buf(o.Src, 0), buf(o.Src, 1), o)
	case backend.OpDelta:
		f.deltaNet(buf(o.Dst, 0), o, f.program.StateLayer(o.Layer))
	case backend.OpHead:
		f.results, err = f.head(buf(o.Src, 0), o)
	}
	return err
}

// rowBlock is how many rows an item of a loop over rows has, each of which has so many
// items by itself: up to 8, and fewer where the workers would have less than 4 items each.
func (f *forward) rowBlock(parts int) int {
	return max(1, min(8, f.rows*parts/(4*f.b.pool.workers)))
}

// rowsEach runs body for each row, in blocks of rows where that is worth a dispatch.
func (f *forward) rowsEach(work int, body func(worker, row int)) {
	block := f.rowBlock(1)
	f.worth(f.rows*work, (f.rows+block-1)/block, func(worker, i int) {
		for r := i * block; r < min((i+1)*block, f.rows); r++ {
			body(worker, r)
		}
	})
}

// leastWork is from how many elements of work on a loop is worth a dispatch (about 1 µs).
const leastWork = 16384

// worth runs body for each item: inline when the work of all is too small for a dispatch.
func (f *forward) worth(work, items int, body func(worker, i int)) {
	if work >= leastWork {
		f.b.pool.run(items, body)
		return
	}
	for i := range items {
		body(0, i)
	}
}

// embed widens the tokens' rows of the table.
func (f *forward) embed(d *buffer, t *matrix) {
	for r, id := range f.values.Tokens {
		f.b.k.WidenRow(d.data[r*d.width:(r+1)*d.width], &t.Weight, int(id))
	}
}

// join puts rows of the parts behind each other.
func (f *forward) join(d *buffer, parts []backend.Buffer) {
	at := 0
	for _, part := range parts {
		s := &f.buffers[part]
		for r := range f.rows {
			copy(d.data[r*d.width+at:], s.data[r*s.width:(r+1)*s.width])
		}
		at += s.width
	}
}

// rmsNorm normalises each row.
func (f *forward) rmsNorm(d, s *buffer, w vector, eps float32) {
	n, block := s.width, f.rowBlock(1)
	f.worth(f.rows*n, (f.rows+block-1)/block, func(_, i int) {
		from, to := i*block*n, min((i+1)*block, f.rows)*n
		f.b.k.RMSNormRows(d.data[from:to], n, s.data[from:to], n, w, n, (to-from)/n, eps)
	})
}

// rotateStore norms and rotates the heads of each row, and stores keys and
// values.
func (f *forward) rotateStore(qb, kb, vb *buffer, h *backend.Heads, layer int) {
	d, spans, a := h.HeadDim, f.values.Spans, f.anglesOf(h.Rotation)
	pairs := a.rotation.Pairs()
	qn, _ := h.QNorm.(vector)
	kn, _ := h.KNorm.(vector)
	k := f.b.k
	head := func(x, norm, cos, sin []float32) {
		if norm != nil {
			k.RMSNorm(x, x, norm, h.Eps)
		}
		k.Rotate(x[:2*pairs], cos, sin)
	}
	f.rowsEach(qb.width+2*kb.width, func(_, r int) {
		span := spanOf(spans, r)
		index := span.Base + r - span.First
		cache := span.Storage.(*storage)
		cos, sin := a.cos[r*pairs:(r+1)*pairs], a.sin[r*pairs:(r+1)*pairs]
		row := qb.data[r*qb.width : (r+1)*qb.width]
		for ; len(row) > 0; row = row[h.QStride():] {
			head(row[:d], qn, cos, sin)
		}
		for i := range h.KVHeads {
			at := r*kb.width + i*d
			key := kb.data[at : at+d]
			head(key, kn, cos, sin)
			cache.store(k, layer, i, false, index, key)
			if !cache.transposed {
				cache.store(k, layer, i, true, index, vb.data[at:at+d])
			}
		}
	})
	transposed := func(s backend.Span) bool { return s.Storage.(*storage).transposed }
	if !slices.ContainsFunc(spans, transposed) {
		return
	}
	f.b.pool.run(len(spans)*h.KVHeads, func(worker, i int) {
		if s, head := spans[i/h.KVHeads], i%h.KVHeads; transposed(s) {
			s.Storage.(*storage).storeTransposed(k, &f.b.scratch[worker], layer, head, s.Base, s.Rows, vb.data[s.First*vb.width+head*d:], vb.width)
		}
	})
	for _, s := range spans {
		if transposed(s) {
			s.Storage.(*storage).endTransposed(layer, s.Base+s.Rows)
		}
	}
}

// spanOf finds the span of a row; spans are few.
func spanOf(spans []backend.Span, row int) *backend.Span {
	for i := range spans {
		if row < spans[i].First+spans[i].Rows {
			return &spans[i]
		}
	}
	return &spans[len(spans)-1]
}
