package metal

import (
	"fmt"

	"windrow/backend"
)

// form is a set of the representations of a buffer.
type form uint8

const (
	asF32 form = 1 << iota
	asBF16
)

// op is one operation of a compiled program: what it reads and writes, and how.
type op struct {
	kind     backend.OpKind
	dst, src []backend.Buffer
	lists    []backend.Buffer // that it reads besides src, in 32-bit words
	reads    form             // of all of src
	writes   form             // what its kernel can write: one form, or either
	// form, where set, is what it reads and writes in forwards of a variant.
	form   func(v variant) form
	adds   bool // to dst[0], which is f32
	tapped bool // it runs only in forwards with a Tap
	index  int  // of a Tap
	// encode encodes it; lists follow src.
	encode func(e encoder, r *run, dst, src []view)
	head   *head // of OpHead, in place of encode
}

// translate appends what an operation of the program comes to.
func (f *forward) translate(o *backend.Op) error {
	switch o.Kind {
	case backend.OpEmbed:
		return f.embed(o)
	case backend.OpRMSNorm:
		return f.rmsNorm(o)
	case backend.OpProject:
		return f.project(o, o.Dst, o.Weights)
	case backend.OpProjectAdd:
		return f.projectAdd(o)
	case backend.OpGatedProject:
		return f.gatedProject(o)
	case backend.OpRotateStore:
		return f.rotateStore(o)
	case backend.OpAttend:
		return f.attend(o)
	case backend.OpDelta:
		return f.delta(o)
	case backend.OpRoute:
		return f.route(o)
	case backend.OpExpertsAdd:
		return f.expertsAdd(o)
	case backend.OpTap:
		f.add(o, op{src: o.Src, reads: asF32})
		return nil
	case backend.OpInput:
		f.input(o)
		return nil
	case backend.OpJoin:
		f.join(o)
		return nil
	case backend.OpHead:
		return f.addHead(o)
	}
	return &backend.UnsupportedError{Backend: f.b.Name(), What: o.Kind.String()}
}

func (f *forward) add(o *backend.Op, x op) {
	x.kind, x.tapped, x.index = o.Kind, o.Tapped, o.Index
	f.ops = append(f.ops, x)
}

// buffer is one besides the program's.
func (f *forward) buffer(width int) backend.Buffer {
	f.widths = append(f.widths, width)
	return backend.Buffer(len(f.widths) - 1)
}

// matrixOf is a weight of this backend.
func (f *forward) matrixOf(o *backend.Op, m backend.Matrix) (weight, error) {
	if w, ok := m.(*matrix); ok && w.b == f.b {
		return w.weight, nil
	}
	return weight{}, fmt.Errorf("metal: %v: a weight of another backend", o.Kind)
}

// vectorOf is the place of a vector of this backend, or of nil none.
func (f *forward) vectorOf(o *backend.Op, v backend.Vector) (view, error) {
	if v == nil {
		return view{}, nil
	}
	if w, ok := v.(*vector); ok && w.b == f.b {
		return w.data, nil
	}
	return view{}, fmt.Errorf("metal: %v: a vector of another backend", o.Kind)
}

func (f *forward) linearOf(o *backend.Op, w backend.Linear) (y linear, err error) {
	if y.weight, err = f.matrixOf(o, w.Weight); err == nil {
		y.bias, err = f.vectorOf(o, w.Bias)
	}
	return y, err
}

// matrixUnit is the side of the GPU's matrices. What is no multiple of it is no
// model's shape, and too short for the errors of bf16 to even out.
const matrixUnit = 8

// operand is the form in which a weight's projections read activations: f32 and
// f16 weights would lose by bf16.
func (b *Backend) operand(w linear) form {
	if b.exact || w.dtype == backend.F32 || w.dtype == backend.F16 || w.in%matrixUnit != 0 {
		return asF32
	}
	return asBF16
}

func (f *forward) embed(o *backend.Op) error {
	t, err := f.matrixOf(o, o.Weights[0].Weight)
	if err != nil {
		return err
	}
	f.add(o, op{dst: o.Dst, writes: asF32, encode: func(e encoder, r *run, dst, _ []view) {
		embedRows(e, dst[0], t, r.tokens, r.rows)
	}})
	return nil
}

// input is rows that the host gives: it writes them where they are read from.
func (f *forward) input(o *backend.Op) {
	f.add(o, op{dst: o.Dst, writes: asF32, encode: func(encoder, *run, []view, []view) {}})
}

// join puts rows beside each other, a dispatch a part.
func (f *forward) join(o *backend.Op) {
	width := f.widths[o.Dst[0]]
	f.add(o, op{dst: o.Dst, src: o.Src, reads: asF32, writes: asF32 | asBF16, encode: func(e encoder, r *run, dst, src []view) {
		first := 0
		for i, b := range o.Src {
			part := f.widths[b]
			putColumns(e, dst[0], src[i], r.rows, width, first, part)
			first += part
		}
	}})
}

func (f *forward) rmsNorm(o *backend.Op) error {
	w, err := f.vectorOf(o, o.Norm)
	if err != nil {
		return err
	}
	width, eps := o.Norm.Len(), o.Eps
	f.add(o, op{dst: o.Dst, src: o.Src, reads: asF32, writes: asF32 | asBF16, encode: func(e encoder, r *run, dst, src []view) {
		rmsNorm(e, dst[0], src[0], w, r.rows, width, eps)
	}})
	return nil
}

// project multiplies with several weights, those that read one form together.
func (f *forward) project(o *backend.Op, dst []backend.Buffer, w []backend.Linear) error {
	var byForm [asBF16 + 1]struct {
		dst     []backend.Buffer
		weights []linear
	}
	for i := range w {
		y, err := f.linearOf(o, w[i])
		if err != nil {
			return err
		}
		g := &byForm[f.b.operand(y)]
		g.dst, g.weights = append(g.dst, dst[i]), append(g.weights, y)
	}
	for reads, g := range byForm {
		if len(g.dst) == 0 {
			continue
		}
		f.add(o, op{dst: g.dst, src: o.Src, reads: form(reads), writes: asF32, encode: func(e encoder, r *run, dst, src []view) {
			project(e, dst, src[0], r.rows, g.weights, r.decode)
		}})
	}
	return nil
}

func (f *forward) projectAdd(o *backend.Op) error {
	y, err := f.linearOf(o, o.Weights[0])
	if err != nil {
		return err
	}
	f.add(o, op{dst: o.Dst, src: o.Src, reads: f.b.operand(y), writes: asF32, adds: true, encode: func(e encoder, r *run, dst, src []view) {
		projectAdd(e, dst[0], src[0], r.rows, y, r.decode)
	}})
	return nil
}

// gatedProject is one dispatch, but where gate and up have formats of their own.
func (f *forward) gatedProject(o *backend.Op) error {
	gate, err := f.linearOf(o, o.Weights[0])
	if err != nil {
		return err
	}
	up, err := f.linearOf(o, o.Weights[1])
	if err != nil {
		return err
	}
	width := f.widths[o.Dst[0]]
	if gate.dtype != up.dtype || gate.group != up.group {
		both := []backend.Buffer{f.buffer(width), f.buffer(width)}
		if err := f.project(o, both, o.Weights); err != nil {
			return err
		}
		f.add(o, op{dst: o.Dst, src: both, reads: asF32, writes: asF32 | asBF16, encode: func(e encoder, r *run, dst, src []view) {
			gateRows(e, dst[0], src[0], src[1], r.rows*width)
		}})
		return nil
	}
	f.add(o, op{dst: o.Dst, src: o.Src, reads: f.b.operand(gate), writes: asF32 | asBF16, encode: func(e encoder, r *run, dst, src []view) {
		gatedProject(e, dst[0], src[0], r.rows, gate, up, r.decode)
	}})
	return nil
}

// rotateStore norms and rotates heads and stores keys and values, a dispatch a span.
func (f *forward) rotateStore(o *backend.Op) error {
	h, layer := o.Heads, f.program.KeyLayer(o.Layer)
	wq, wk := f.widths[o.Src[0]], f.widths[o.Src[1]]
	table, ok := h.Rotation.(*rotationTable)
	if !ok || table.b != f.b {
		return fmt.Errorf("metal: %v: a rotation of another backend", o.Kind)
	}
	rotate := rotation{eps: o.Eps, pairs: table.pairs, heads: wq / h.QStride(), gated: h.Gated, kvHeads: h.KVHeads, headDim: h.HeadDim}
	var err error
	if rotate.qNorm, err = f.vectorOf(o, h.QNorm); err != nil {
		return err
	}
	if rotate.kNorm, err = f.vectorOf(o, h.KNorm); err != nil {
		return err
	}
	f.tables[table] = true
	f.add(o, op{dst: o.Dst, src: o.Src, reads: asF32, writes: asF32 | asBF16, encode: func(e encoder, r *run, dst, src []view) {
		for _, s := range r.spans {
			each := rotate
			each.angles, each.positions = table.data, r.positions.at(4*s.first)
			rotateStore(e, rowOf(dst[0], s.first, wq), rowOf(src[0], s.first, wq), rowOf(src[1], s.first, wk), rowOf(src[2], s.first, wk),
				each, s.storage.layer(layer, s.table), s.base, s.rows)
		}
	}})
	return nil
}

// rowOf is the place of a row of activations.
func rowOf(v view, row, width int) view { return v.at(row * width * v.elem.size()) }

// attend is a dispatch or two a span.
func (f *forward) attend(o *backend.Op) error {
	h, layer, scale := o.Heads, f.program.KeyLayer(o.Layer), o.Scale
	width, wq := f.widths[o.Dst[0]], f.widths[o.Src[0]]
	heads := width / h.HeadDim
	f.heads = max(f.heads, heads)
	// Keys and values in f32 are there to be read in f32.
	form := func(v variant) form {
		if f.b.exact || v.kvF32 || h.HeadDim%matrixUnit != 0 {
			return asF32
		}
		return asBF16
	}
	f.add(o, op{dst: o.Dst, src: o.Src, form: form, encode: func(e encoder, r *run, dst, src []view) {
		for _, s := range r.spans {
			attend(e, rowOf(dst[0], s.first, width), rowOf(src[0], s.first, wq), s.storage.layer(layer, s.table), r.scratch,
				s.base, s.rows, heads, h.KVHeads, h.HeadDim, scale, h.Gated, r.decode)
		}
	}})
	return nil
}
