package metal

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"windrow/backend"
)

// form is a set of the representations of a buffer.
type form uint8

const (
	asF32 form = 1 << iota
	asBF16
)

// buffer is activations [rows, width]. It has a place in each form that some
// operation needed.
type buffer struct {
	width     int
	f32, bf16 view
	placed    form // the forms that have a place
	valid     form // the forms that hold its current value
	want      form // while planning: the forms that later operations read
}

func (b *buffer) Width() int { return b.width }

// in is the buffer's place in one form.
func (b *buffer) in(f form) view {
	if f == asBF16 {
		return b.bf16
	}
	return b.f32
}

// op is one recorded operation: what it reads and writes, and how.
type op struct {
	dst, src []*buffer
	reads    form // of all of src
	writes   form // what its kernel can write: one form, or either
	adds     bool // to dst[0], which is f32
	apart    bool // dst may not lie where src does
	// scratch is how many bytes it needs besides, known when it is planned.
	scratch func() int
	// run encodes it.
	run func(e encoder, dst, src []view, scratch view)
}

// pass records the operations of one forward and runs them when something is
// asked of it.
type pass struct {
	b       *Backend
	rows    int
	ops     []op
	buffers []*buffer // those of this pass, then free ones
	used    int
	staged  []byte         // what the host says to the recorded operations
	angles  [2][]float32   // whose values are staged
	cosSin  [2]int         // where
	spans   []backend.Span // of the last operation that had some
	decode  bool           // every span has at most invariantRows rows
	scratch view           // of attention, one for all layers
	room    int            // bytes of scratch
	err     error
	open    bool
}

// maxRows bounds a pass, so that sizes in bytes stay far from overflow.
const maxRows = 1 << 20

// Begin starts a forward.
func (b *Backend) Begin(rows int) (backend.Pass, error) {
	if b.memory == nil {
		return nil, errClosed
	}
	if rows <= 0 || rows > maxRows {
		return nil, fmt.Errorf("metal: a forward of %d rows", rows)
	}
	p := &b.pass
	if p.open {
		return nil, fmt.Errorf("metal: a forward is still open")
	}
	p.b, p.rows, p.used, p.err, p.open = b, rows, 0, nil, true
	p.spans, p.decode = nil, rows <= invariantRows
	p.scratch, p.room = view{}, 0
	b.arena.reset()
	p.forget()
	return p, nil
}

// forget drops the recorded operations.
func (p *pass) forget() {
	clear(p.ops)
	p.ops, p.staged, p.angles = p.ops[:0], p.staged[:0], [2][]float32{}
}

func (p *pass) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("metal: "+format, args...)
	}
}

// record appends an operation.
func (p *pass) record(o op) {
	if p.err == nil {
		p.ops = append(p.ops, o)
	}
}

// Buffer names a buffer; it gets its memory when an operation needs it.
func (p *pass) Buffer(width int) backend.Buffer { return p.buffer(width) }

func (p *pass) buffer(width int) *buffer {
	if p.used == len(p.buffers) {
		p.buffers = append(p.buffers, new(buffer))
	}
	buf := p.buffers[p.used]
	p.used++
	*buf = buffer{width: width}
	return buf
}

// stage appends what the host says to an operation, and returns its offset.
func stage[T int32 | float32](p *pass, values []T) int {
	at := len(p.staged)
	for _, v := range values {
		switch v := any(v).(type) {
		case int32:
			p.staged = binary.LittleEndian.AppendUint32(p.staged, uint32(v))
		case float32:
			p.staged = binary.LittleEndian.AppendUint32(p.staged, math.Float32bits(v))
		}
	}
	p.staged = append(p.staged, make([]byte, aligned(len(p.staged), 16)-len(p.staged))...)
	return at
}

// said is the place of what was staged.
func (p *pass) said(at int, e elem) view {
	v := p.b.step.at(at)
	v.elem = e
	return v
}

// Embed gathers the tokens' rows of the table.
func (p *pass) Embed(dst backend.Buffer, table backend.Matrix, tokens []int32) {
	d, t := dst.(*buffer), table.(*matrix)
	if err := backend.CheckEmbed(p.rows, d.width, t, tokens); err != nil {
		p.fail("%w", err)
		return
	}
	at := stage(p, tokens)
	p.record(op{dst: []*buffer{d}, writes: asF32, run: func(e encoder, dst, _ []view, _ view) {
		embedRows(e, dst[0], t.weight, p.said(at, elemU32), p.rows)
	}})
}

// RMSNorm normalises each row.
func (p *pass) RMSNorm(dst, x backend.Buffer, weight backend.Vector, eps float32) {
	d, s, w := dst.(*buffer), x.(*buffer), weight.(*vector)
	if d.width != s.width || w.n != s.width {
		p.fail("rms norm: widths %d, %d and weight %d differ", d.width, s.width, w.n)
		return
	}
	p.record(op{dst: []*buffer{d}, src: []*buffer{s}, reads: asF32, writes: asF32 | asBF16,
		run: func(e encoder, dst, src []view, _ view) { rmsNorm(e, dst[0], src[0], w.data, p.rows, w.n, eps) }})
}

// linearOf checks a projection's shapes against its buffers.
func (p *pass) linearOf(what string, dst, x *buffer, w backend.Linear) (y linear, ok bool) {
	m := w.Weight.(*matrix)
	y.weight = m.weight
	if m.in != x.width || m.out != dst.width {
		p.fail("%s: weight [%d, %d] from width %d to %d", what, m.out, m.in, x.width, dst.width)
		return y, false
	}
	if w.Bias != nil {
		bias := w.Bias.(*vector)
		if bias.n != m.out {
			p.fail("%s: bias of %d for %d outputs", what, bias.n, m.out)
			return y, false
		}
		y.bias = bias.data
	}
	return y, true
}

// matrixUnit is the side of the GPU's matrices. What is no multiple of it is no
// model's shape, and too short for the errors of bf16 to even out.
const matrixUnit = 8

// operand is the form in which a weight's projections read activations: f32 and
// f16 weights would lose by bf16.
func (p *pass) operand(w linear) form {
	if p.b.exact || w.dtype == backend.F32 || w.dtype == backend.F16 || w.in%matrixUnit != 0 {
		return asF32
	}
	return asBF16
}

// Project multiplies with several weights, those that read one form together.
func (p *pass) Project(dst []backend.Buffer, x backend.Buffer, w []backend.Linear) {
	if len(dst) != len(w) || len(w) == 0 {
		p.fail("project: %d weights into %d buffers", len(w), len(dst))
		return
	}
	s := x.(*buffer)
	var byForm [asBF16 + 1]struct {
		dst     []*buffer
		weights []linear
	}
	for i := range w {
		d := dst[i].(*buffer)
		y, ok := p.linearOf("project", d, s, w[i])
		if !ok {
			return
		}
		if len(w) > 1 && d == s {
			p.fail("project: several weights, and one writes their input")
			return
		}
		g := &byForm[p.operand(y)]
		g.dst, g.weights = append(g.dst, d), append(g.weights, y)
	}
	for f, g := range byForm {
		if len(g.dst) == 0 {
			continue
		}
		p.record(op{dst: g.dst, src: []*buffer{s}, reads: form(f), writes: asF32, apart: true,
			run: func(e encoder, dst, src []view, _ view) { project(e, dst, src[0], p.rows, g.weights, p.decode) }})
	}
}

// ProjectAdd multiplies into the residual.
func (p *pass) ProjectAdd(dst, x backend.Buffer, w backend.Linear) {
	d, s := dst.(*buffer), x.(*buffer)
	y, ok := p.linearOf("project", d, s, w)
	if !ok {
		return
	}
	if d == s {
		p.fail("project: a buffer is added to itself")
		return
	}
	p.record(op{dst: []*buffer{d}, src: []*buffer{s}, reads: p.operand(y), writes: asF32, adds: true,
		run: func(e encoder, dst, src []view, _ view) { projectAdd(e, dst[0], src[0], p.rows, y, p.decode) }})
}

// GatedProject is SwiGLU's first half.
func (p *pass) GatedProject(dst, x backend.Buffer, gate, up backend.Linear) {
	d, s := dst.(*buffer), x.(*buffer)
	g, ok := p.linearOf("gated project", d, s, gate)
	if !ok {
		return
	}
	u, ok := p.linearOf("gated project", d, s, up)
	if !ok {
		return
	}
	if g.dtype != u.dtype || g.group != u.group {
		a, b := p.buffer(d.width), p.buffer(d.width)
		p.Project([]backend.Buffer{a, b}, s, []backend.Linear{gate, up})
		p.record(op{dst: []*buffer{d}, src: []*buffer{a, b}, reads: asF32, writes: asF32 | asBF16,
			run: func(e encoder, dst, src []view, _ view) { gateRows(e, dst[0], src[0], src[1], p.rows*d.width) }})
		return
	}
	p.record(op{dst: []*buffer{d}, src: []*buffer{s}, reads: p.operand(g), writes: asF32 | asBF16, apart: true,
		run: func(e encoder, dst, src []view, _ view) { gatedProject(e, dst[0], src[0], p.rows, g, u, p.decode) }})
}

// setSpans takes the spans of an operation, and makes room in their storage.
func (p *pass) setSpans(what string, spans []backend.Span, layer int) bool {
	if p.err != nil {
		return false
	}
	for i, s := range spans {
		c, ok := s.KV.(*kv)
		if !ok || !c.open || c.b != p.b {
			p.fail("%s: span %d has no open kv of this backend", what, i)
			return false
		}
	}
	err := backend.CheckAlike(spans)
	if err == nil {
		err = backend.CheckSpans(p.rows, spans, layer)
	}
	if err != nil {
		p.fail("%s: %w", what, err)
		return false
	}
	if slices.Equal(p.spans, spans) {
		return true
	}
	p.spans, p.decode = slices.Clone(spans), true
	for _, s := range spans {
		p.decode = p.decode && s.Rows <= invariantRows
		if err := s.KV.(*kv).reserve(s.Base + s.Rows); err != nil {
			p.err = err
			return false
		}
	}
	return true
}

// RotateStore norms and rotates heads and stores keys and values.
func (p *pass) RotateStore(q, k, v backend.Buffer, h backend.Heads, spans []backend.Span, layer int) {
	qb, kb, vb := q.(*buffer), k.(*buffer), v.(*buffer)
	if !p.setSpans("rotate", spans, layer) {
		return
	}
	l := spans[0].KV.Layout()
	d := l.HeadDim
	if err := h.Check(p.rows, qb.width, kb.width, vb.width, l); err != nil {
		p.fail("%w", err)
		return
	}
	r := rotation{eps: h.Eps, heads: qb.width / d, kvHeads: l.KVHeads, headDim: d}
	for _, n := range []struct {
		weight backend.Vector
		view   *view
	}{{h.QNorm, &r.qNorm}, {h.KNorm, &r.kNorm}} {
		if n.weight == nil {
			continue
		}
		w := n.weight.(*vector)
		if w.n != d {
			p.fail("rotate: a head norm of %d, want %d", w.n, d)
			return
		}
		*n.view = w.data
	}
	for i, values := range [][]float32{h.Cos, h.Sin} {
		if !same(p.angles[i], values) {
			p.angles[i], p.cosSin[i] = values, stage(p, values)
		}
	}
	cos, sin, each := p.cosSin[0], p.cosSin[1], p.spans
	p.record(op{dst: []*buffer{qb}, src: []*buffer{qb, kb, vb}, reads: asF32, writes: asF32 | asBF16,
		run: func(e encoder, dst, src []view, _ view) {
			for _, s := range each {
				r := r
				r.cos, r.sin = p.said(cos, elemF32).at(2*s.First*d), p.said(sin, elemF32).at(2*s.First*d)
				rotateStore(e, rowOf(dst[0], s.First, qb.width), rowOf(src[0], s.First, qb.width), rowOf(src[1], s.First, kb.width),
					rowOf(src[2], s.First, kb.width), r, s.KV.(*kv).layer(layer), s.Base, s.Rows)
			}
		}})
}

// same reports whether two slices are one.
func same(a, b []float32) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// rowOf is the place of a row of activations.
func rowOf(v view, row, width int) view { return v.at(row * width * v.elem.size()) }

// Attend is causal attention over the spans' keys and values.
func (p *pass) Attend(dst, q backend.Buffer, spans []backend.Span, layer int, scale float32) {
	d, s := dst.(*buffer), q.(*buffer)
	if !p.setSpans("attend", spans, layer) {
		return
	}
	l := spans[0].KV.Layout()
	if err := backend.CheckAttend(d.width, s.width, l); err != nil {
		p.fail("%w", err)
		return
	}
	// Keys and values in f32 are there to be read in f32.
	f := asBF16
	if p.b.exact || l.DType == backend.KVF32 || l.HeadDim%matrixUnit != 0 {
		f = asF32
	}
	heads, each := d.width/l.HeadDim, p.spans
	p.record(op{dst: []*buffer{d}, src: []*buffer{s}, reads: f, writes: f, apart: true,
		scratch: func() (most int) {
			for _, s := range each {
				most = max(most, attendScratch(s.Rows, heads, l.HeadDim, s.Base+s.Rows))
			}
			return most
		},
		run: func(e encoder, dst, src []view, scratch view) {
			for _, s := range each {
				attend(e, rowOf(dst[0], s.First, d.width), rowOf(src[0], s.First, d.width), s.KV.(*kv).layer(layer), scratch,
					s.Base, s.Rows, heads, l.KVHeads, l.HeadDim, scale, p.decode)
			}
		}})
}

// Read runs what is recorded and copies a buffer.
func (p *pass) Read(b backend.Buffer) []float32 {
	buf := b.(*buffer)
	out := make([]float32, p.rows*buf.width)
	p.flush(buf)
	if p.err == nil {
		floats(out, p.b.memory.bytes(buf.f32, 4*len(out)))
	}
	return out
}

// floats decodes f32; none where there are no values.
func floats(dst []float32, data []byte) {
	for i := 0; 4*i < len(data); i++ {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
}

// End runs what is recorded and ends the pass.
func (p *pass) End() error {
	if !p.open {
		return fmt.Errorf("metal: the forward has ended already")
	}
	p.flush(nil)
	p.open, p.spans = false, nil
	return p.err
}

var _ backend.Backend = (*Backend)(nil)
