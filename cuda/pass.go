package cuda

import (
	"errors"
	"fmt"
	"slices"

	"windrow/backend"
	"windrow/cuda/driver"
	"windrow/quant"
)

// form is a set of the representations of a buffer.
type form uint8

const (
	asF32 form = 1 << iota
	asBF16
	later // while planning: operations that are not recorded yet may read it
)

// buffer is activations [rows, width]. It has an address in each form that
// some operation needed.
type buffer struct {
	width     int
	f32, bf16 driver.Ptr
	valid     form // the forms that hold its current value
	want      form // while planning: the forms that later operations read
}

func (b *buffer) Width() int { return b.width }

type opKind uint8

const (
	opEmbed opKind = iota + 1
	opEmbedHost
	opRMSNorm
	opProject
	opProjectAdd
	opGated
	opRotate
	opAttend
	opHead
	opConvert // made by the plan
)

// op is one recorded operation.
type op struct {
	kind       opKind
	layer      int
	eps, scale float32
	dst, src   [3]*buffer
	w          [3]linear
	n          int // how many of dst and w are in use
	norm       [2]driver.Ptr
}

// pass records the operations of one forward and runs them when something is
// asked of it.
type pass struct {
	b       *Backend
	rows    int
	ops     []op
	buffers []*buffer // those of this pass, then free ones
	used    int
	values  stepValues
	host    []float32 // embedded rows that were decoded on the host
	layout  backend.KVLayout
	plan    plan
	graph   *driver.Graph // of what is recorded, once it is planned and captured
	idle    bool          // what is recorded takes no launch
	joint   func()        // in a group: flushes all of its passes
	flushed bool          // since Begin: buffers may have memory
	table   *matrix       // of the last Embed
	ran     int           // operations of the only flush so far, which Keep may still have
	kept    *kept         // whose operations this pass runs; nil: only its own
	own     own           // until what is kept has run
	next    ahead
	err     error
	open    bool
}

// errClosed is the error of a forward after Close.
var errClosed = errors.New("cuda: the backend is closed")

// maxRows bounds a pass, so that sizes in bytes stay far from overflow.
const maxRows = 1 << 20

// Begin starts a forward.
func (b *Backend) Begin(rows int) (backend.Pass, error) {
	if b.device == nil {
		return nil, errClosed
	}
	if rows <= 0 || rows > maxRows {
		return nil, fmt.Errorf("cuda: a forward of %d rows", rows)
	}
	p := &b.pass
	if p.open {
		return nil, fmt.Errorf("cuda: a forward is still open")
	}
	p.b, p.rows, p.used, p.err, p.open, p.flushed = b, rows, 0, nil, true, false
	p.table, p.ran = nil, 0
	b.arena.reset()
	p.forget()
	p.values.spans, p.values.cos, p.values.sin = p.values.spans[:0], nil, nil
	return p, nil
}

// forget drops the recorded operations.
func (p *pass) forget() {
	if p.own.ops != nil {
		p.ops, p.own.ops = p.own.ops, nil
	}
	p.ops, p.host = p.ops[:0], p.host[:0]
	p.values.tokens, p.values.want = p.values.tokens[:0], p.values.want[:0]
	p.values.rows = p.rows
}

func (p *pass) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("cuda: "+format, args...)
	}
}

// Buffer names a buffer; it gets its memory when an operation needs it.
func (p *pass) Buffer(width int) backend.Buffer {
	if p.used == len(p.buffers) {
		p.buffers = append(p.buffers, new(buffer))
	}
	buf := p.buffers[p.used]
	p.used++
	*buf = buffer{width: width}
	return buf
}

// record appends an operation.
func (p *pass) record(o op) {
	if p.err == nil {
		p.ops, p.ran = append(p.ops, o), 0
	}
}

// Embed gathers the tokens' rows of the table; quantised tables are decoded on
// the host, a few rows a step.
func (p *pass) Embed(dst backend.Buffer, table backend.Matrix, tokens []int32) {
	d, t := dst.(*buffer), table.(*matrix)
	if err := backend.CheckEmbed(p.rows, d.width, t, tokens); err != nil {
		p.fail("%w", err)
		return
	}
	// A step block has room for one list of tokens.
	if len(p.values.tokens) > 0 || len(p.host) > 0 {
		p.flush()
	}
	p.look(t, tokens)
	if t.dt.Quantized() {
		p.record(op{kind: opEmbedHost, dst: [3]*buffer{d}})
		return
	}
	p.record(op{kind: opEmbed, dst: [3]*buffer{d}, w: [3]linear{{w: t}}})
}

// look makes tokens, or the rows of a table that is decoded on the host, what the
// recorded embedding takes.
func (p *pass) look(t *matrix, tokens []int32) {
	p.table = t
	if !t.dt.Quantized() {
		p.values.tokens = append(p.values.tokens[:0], tokens...)
		return
	}
	n := p.rows * t.in
	p.host = slices.Grow(p.host[:0], n)[:n]
	for r, id := range tokens {
		quant.Row(p.host[r*t.in:(r+1)*t.in], &t.tensor, int(id))
	}
}

// RMSNorm normalises each row.
func (p *pass) RMSNorm(dst, x backend.Buffer, weight backend.Vector, eps float32) {
	d, s, w := dst.(*buffer), x.(*buffer), weight.(*vector)
	if d.width != s.width || w.n != s.width {
		p.fail("rms norm: widths %d, %d and weight %d differ", d.width, s.width, w.n)
		return
	}
	p.record(op{kind: opRMSNorm, dst: [3]*buffer{d}, src: [3]*buffer{s}, norm: [2]driver.Ptr{w.data}, eps: eps})
}

// linearOf holds a projection's shapes against its buffers.
func (p *pass) linearOf(what string, dst, x *buffer, w backend.Linear) (linear, bool) {
	m := w.Weight.(*matrix)
	y := linear{w: m}
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

// Project multiplies with up to three weights at once.
func (p *pass) Project(dst []backend.Buffer, x backend.Buffer, w []backend.Linear) {
	if len(dst) != len(w) || len(w) == 0 {
		p.fail("project: %d weights into %d buffers", len(w), len(dst))
		return
	}
	for len(w) > 0 {
		n := min(len(w), 3)
		o := op{kind: opProject, src: [3]*buffer{x.(*buffer)}, n: n}
		for i := range n {
			o.dst[i] = dst[i].(*buffer)
			y, ok := p.linearOf("project", o.dst[i], o.src[0], w[i])
			if !ok {
				return
			}
			o.w[i] = y
		}
		p.record(o)
		dst, w = dst[n:], w[n:]
	}
}

// ProjectAdd multiplies into the residual.
func (p *pass) ProjectAdd(dst, x backend.Buffer, w backend.Linear) {
	d, s := dst.(*buffer), x.(*buffer)
	if y, ok := p.linearOf("project", d, s, w); ok {
		p.record(op{kind: opProjectAdd, dst: [3]*buffer{d}, src: [3]*buffer{s}, w: [3]linear{y}, n: 1})
	}
}

// GatedProject is SwiGLU's first half.
func (p *pass) GatedProject(dst, x backend.Buffer, gate, up backend.Linear) {
	d, s := dst.(*buffer), x.(*buffer)
	g, ok := p.linearOf("gated project", d, s, gate)
	if !ok {
		return
	}
	if u, ok := p.linearOf("gated project", d, s, up); ok {
		p.record(op{kind: opGated, dst: [3]*buffer{d}, src: [3]*buffer{s}, w: [3]linear{g, u}, n: 1})
	}
}

// setSpans takes the spans of this pass; other ones than before flush first,
// since a step block has room for one list.
func (p *pass) setSpans(what string, spans []backend.Span, layer int) bool {
	for i, s := range spans {
		c, ok := s.KV.(*kv)
		if !ok || !c.open || c.b != p.b {
			p.fail("%s: span %d has no open kv of this backend", what, i)
			return false
		}
	}
	known := len(spans) > 0 && slices.Equal(p.values.spans, spans)
	if known && layer >= 0 && layer < p.layout.Layers {
		return true // checked when they came
	}
	err := backend.CheckAlike(spans)
	if err == nil {
		err = backend.CheckSpans(p.rows, spans, layer)
	}
	if err != nil {
		p.fail("%s: %w", what, err)
		return false
	}
	if len(p.values.spans) > 0 {
		p.flush()
	}
	p.values.spans = append(p.values.spans[:0], spans...)
	p.layout = spans[0].KV.(*kv).layout
	for _, s := range spans {
		if err := s.KV.(*kv).reserve(s.Base, s.Base+s.Rows); err != nil {
			p.err = err
			return false
		}
	}
	return true
}

// same tells whether two slices are one.
func same(a, b []float32) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// RotateStore norms and rotates heads and stores keys and values.
func (p *pass) RotateStore(q, k, v backend.Buffer, h backend.Heads, spans []backend.Span, layer int) {
	qb, kb, vb := q.(*buffer), k.(*buffer), v.(*buffer)
	if !p.setSpans("rotate", spans, layer) {
		return
	}
	l := p.layout
	d := l.HeadDim
	if err := h.Check(p.rows, qb.width, kb.width, vb.width, l); err != nil {
		p.fail("%w", err)
		return
	}
	o := op{kind: opRotate, dst: [3]*buffer{qb}, src: [3]*buffer{qb, kb, vb}, eps: h.Eps, layer: layer}
	for i, n := range []backend.Vector{h.QNorm, h.KNorm} {
		if n == nil {
			continue
		}
		w := n.(*vector)
		if w.n != d {
			p.fail("rotate: a head norm of %d, want %d", w.n, d)
			return
		}
		o.norm[i] = w.data
	}
	if p.values.cos != nil && !(same(p.values.cos, h.Cos) && same(p.values.sin, h.Sin)) {
		p.flush()
	}
	p.values.cos, p.values.sin = h.Cos, h.Sin
	p.record(o)
}

// Attend is causal attention over the spans' keys and values.
func (p *pass) Attend(dst, q backend.Buffer, spans []backend.Span, layer int, scale float32) {
	d, s := dst.(*buffer), q.(*buffer)
	if !p.setSpans("attend", spans, layer) {
		return
	}
	if err := backend.CheckAttend(d.width, s.width, p.layout); err != nil {
		p.fail("%w", err)
		return
	}
	p.record(op{kind: opAttend, dst: [3]*buffer{d}, src: [3]*buffer{s}, scale: scale, layer: layer})
}

// Read runs what is recorded and copies a buffer.
func (p *pass) Read(b backend.Buffer) []float32 {
	buf := b.(*buffer)
	out := make([]float32, p.rows*buf.width)
	p.flushWanting(buf)
	if p.err == nil {
		p.err = p.b.read(out, buf)
	}
	return out
}

// End runs what is recorded and ends the pass.
func (p *pass) End() error {
	if !p.open {
		return fmt.Errorf("cuda: the forward has ended already")
	}
	p.flush()
	p.open = false
	p.forget()
	p.giveBack()
	p.values.cos, p.values.sin = nil, nil
	clear(p.values.spans)
	p.values.spans = p.values.spans[:0]
	return p.err
}
