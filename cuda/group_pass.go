package cuda

import (
	"fmt"
	"slices"

	"windrow/backend"
)

// groupBuffer is activations [rows, width], whole on every GPU or in parts of the
// columns. It has a buffer on each GPU in each form that was needed.
type groupBuffer struct {
	width       int
	whole, part []*buffer // nil where there is none yet
	split       bool      // the parts hold the value
}

func (b *groupBuffer) Width() int { return b.width }

// groupPass records the operations of a forward in a pass of each GPU.
type groupPass struct {
	g       *Group
	rows    int
	passes  []*pass
	buffers []*groupBuffer // those of this pass, then free ones
	used    int
	spans   []backend.Span // the last ones, and
	parts   [][]backend.Span
	targets []backend.Buffer
	weights []backend.Linear
	head    *groupMatrix // of the last Results
	err     error
	open    bool
}

func (p *groupPass) init(g *Group) {
	p.g = g
	p.passes = make([]*pass, len(g.shards))
	p.parts = make([][]backend.Span, len(g.shards))
	for i, b := range g.shards {
		p.passes[i] = &b.pass
		b.pass.joint = func() { p.flush(nil) }
	}
}

// Begin starts a forward on all GPUs.
func (g *Group) Begin(rows int) (backend.Pass, error) {
	if g.dead != nil {
		return nil, fmt.Errorf("cuda: the GPUs are no longer connected: %w", g.dead)
	}
	p := &g.pass
	if p.open {
		return nil, fmt.Errorf("cuda: a forward is still open")
	}
	for _, b := range g.shards {
		b.gathered = nil // the weights are there
		if _, err := b.Begin(rows); err != nil {
			return nil, err
		}
	}
	p.rows, p.used, p.err, p.open = rows, 0, nil, true
	p.spans, p.head = p.spans[:0], nil
	return p, nil
}

func (p *groupPass) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("cuda: "+format, args...)
	}
}

// failed is the first error, of the group or of a GPU's pass.
func (p *groupPass) failed() error {
	for i, q := range p.passes {
		if p.err == nil && q.err != nil {
			p.err = onGPU(i, q.err)
		}
	}
	return p.err
}

// Buffer names a buffer; what is written to it says whether it is whole.
func (p *groupPass) Buffer(width int) backend.Buffer {
	n := len(p.passes)
	if p.used == len(p.buffers) {
		p.buffers = append(p.buffers, &groupBuffer{whole: make([]*buffer, n), part: make([]*buffer, n)})
	}
	b := p.buffers[p.used]
	p.used++
	b.width, b.split = width, false
	clear(b.whole)
	clear(b.part)
	return b
}

// on is the buffer of GPU i that holds b's value.
func (p *groupPass) on(i int, b *groupBuffer) *buffer {
	if b.split {
		return b.part[i]
	}
	if b.whole[i] == nil {
		b.whole[i] = p.passes[i].Buffer(b.width).(*buffer)
	}
	return b.whole[i]
}

// cut makes b parts, of that width on GPU i.
func (p *groupPass) cut(i int, b *groupBuffer, width int) *buffer {
	b.split = true
	if b.part[i] == nil || b.part[i].width != width {
		b.part[i] = p.passes[i].Buffer(width).(*buffer)
	}
	return b.part[i]
}

// whole holds buffers that an operation reads whole.
func (p *groupPass) whole(what string, list ...*groupBuffer) bool {
	for _, b := range list {
		if b.split {
			p.fail("%s: a buffer of width %d is in parts", what, b.width)
			return false
		}
	}
	return true
}

// Embed gathers the tokens' rows of the table, which is whole.
func (p *groupPass) Embed(dst backend.Buffer, table backend.Matrix, tokens []int32) {
	d, t := dst.(*groupBuffer), table.(*groupMatrix)
	if t.split != backend.SplitNone {
		p.fail("embed: a table in parts")
		return
	}
	d.split = false
	for i, q := range p.passes {
		q.Embed(p.on(i, d), t.parts[i], tokens)
	}
}

// RMSNorm normalises each row.
func (p *groupPass) RMSNorm(dst, x backend.Buffer, weight backend.Vector, eps float32) {
	d, s, w := dst.(*groupBuffer), x.(*groupBuffer), weight.(*groupVector)
	if !p.whole("rms norm", s) {
		return
	}
	d.split = false
	for i, q := range p.passes {
		q.RMSNorm(p.on(i, d), p.on(i, s), w.parts[i], eps)
	}
}

// linear is GPU i's part of a projection.
func (p *groupPass) linear(i int, w backend.Linear) backend.Linear {
	m := w.Weight.(*groupMatrix)
	y := backend.Linear{Weight: m.parts[i]}
	// A bias of sums is added once.
	if w.Bias != nil && (m.split != backend.SplitInputs || i == 0) {
		y.Bias = w.Bias.(*groupVector).parts[i]
	}
	return y
}

// takes holds a projection from a whole buffer against its shapes; they are those
// of the parts too.
func (p *groupPass) takes(what string, dst, x *groupBuffer, w backend.Linear) bool {
	m := w.Weight.(*groupMatrix)
	if m.in != x.width || m.out != dst.width {
		p.fail("%s: weight [%d, %d] from width %d to %d", what, m.out, m.in, x.width, dst.width)
		return false
	}
	if w.Bias != nil && w.Bias.Len() != m.out {
		p.fail("%s: bias of %d for %d outputs", what, w.Bias.Len(), m.out)
		return false
	}
	if m.split == backend.SplitInputs {
		p.fail("%s: a weight of cut inputs makes sums, which only ProjectAdd takes", what)
		return false
	}
	if v, ok := w.Bias.(*groupVector); ok && v.split != m.split {
		p.fail("%s: weight and bias are not cut alike", what)
		return false
	}
	return p.whole(what, x)
}

// target is GPU i's buffer for the outputs of m.
func (p *groupPass) target(i int, dst *groupBuffer, m *groupMatrix) *buffer {
	if m.split == backend.SplitOutputs {
		return p.cut(i, dst, m.parts[i].out)
	}
	dst.split = false
	return p.on(i, dst)
}

// Project multiplies; outputs that are cut make parts.
func (p *groupPass) Project(dst []backend.Buffer, x backend.Buffer, w []backend.Linear) {
	s := x.(*groupBuffer)
	if len(dst) != len(w) {
		p.fail("project: %d targets for %d weights", len(dst), len(w))
		return
	}
	for j := range w {
		if !p.takes("project", dst[j].(*groupBuffer), s, w[j]) {
			return
		}
	}
	for i, q := range p.passes {
		from := p.on(i, s)
		p.targets, p.weights = p.targets[:0], p.weights[:0]
		for j := range w {
			p.targets = append(p.targets, p.target(i, dst[j].(*groupBuffer), w[j].Weight.(*groupMatrix)))
			p.weights = append(p.weights, p.linear(i, w[j]))
		}
		q.Project(p.targets, from, p.weights)
	}
}

// ProjectAdd multiplies into the residual: parts of the inputs make parts of the
// sums, which the GPUs exchange.
func (p *groupPass) ProjectAdd(dst, x backend.Buffer, w backend.Linear) {
	d, s, m := dst.(*groupBuffer), x.(*groupBuffer), w.Weight.(*groupMatrix)
	switch {
	case !p.whole("project", d):
		return
	case m.split != backend.SplitInputs:
		if m.split != backend.SplitNone {
			p.fail("project: outputs in parts cannot be added to a buffer that is whole")
			return
		}
		if !p.takes("project", d, s, w) {
			return
		}
	case !s.split || s.width != m.in || d.width != m.out:
		p.fail("project: weight [%d, %d] of cut inputs from width %d (in parts: %t) to %d", m.out, m.in, s.width, s.split, d.width)
		return
	case w.Bias != nil && (w.Bias.Len() != m.out || w.Bias.(*groupVector).split != backend.SplitNone):
		p.fail("project: the bias of sums is whole: %d for %d outputs", w.Bias.Len(), m.out)
		return
	}
	for i, q := range p.passes {
		q.ProjectAdd(p.on(i, d), p.on(i, s), p.linear(i, w))
	}
}

// GatedProject is SwiGLU's first half.
func (p *groupPass) GatedProject(dst, x backend.Buffer, gate, up backend.Linear) {
	d, s := dst.(*groupBuffer), x.(*groupBuffer)
	if !p.takes("gated project", d, s, gate) || !p.takes("gated project", d, s, up) {
		return
	}
	m := gate.Weight.(*groupMatrix)
	if m.split != up.Weight.(*groupMatrix).split {
		p.fail("gated project: gate and up are not cut alike")
		return
	}
	for i, q := range p.passes {
		from := p.on(i, s)
		q.GatedProject(p.target(i, d, m), from, p.linear(i, gate), p.linear(i, up))
	}
}

// spread makes p.parts the spans on each GPU, of storage by heads or whole.
func (p *groupPass) spread(what string, spans []backend.Span, split bool) bool {
	if len(spans) > 0 && slices.Equal(p.spans, spans) && spans[0].KV.(*groupKV).split == split {
		return true
	}
	p.spans = p.spans[:0]
	for i := range p.parts {
		p.parts[i] = p.parts[i][:0]
	}
	for j, s := range spans {
		c, ok := s.KV.(*groupKV)
		if !ok || !c.open || c.g != p.g {
			p.fail("%s: span %d has no open kv of this backend", what, j)
			return false
		}
		if err := c.on(split); err != nil {
			p.fail("%s: span %d: %w", what, j, err)
			return false
		}
		for i := range p.parts {
			s.KV = c.parts[i]
			p.parts[i] = append(p.parts[i], s)
		}
	}
	p.spans = append(p.spans, spans...)
	return true
}

// RotateStore norms and rotates the heads that each GPU has, and stores their keys
// and values.
func (p *groupPass) RotateStore(q, k, v backend.Buffer, h backend.Heads, spans []backend.Span, layer int) {
	qb, kb, vb := q.(*groupBuffer), k.(*groupBuffer), v.(*groupBuffer)
	if qb.split != kb.split || kb.split != vb.split {
		p.fail("rotate: queries, keys and values are not cut alike")
		return
	}
	if !p.spread("rotate", spans, kb.split) {
		return
	}
	for i, o := range p.passes {
		on := h
		for _, norm := range []*backend.Vector{&on.QNorm, &on.KNorm} {
			if *norm != nil {
				*norm = (*norm).(*groupVector).parts[i]
			}
		}
		o.RotateStore(p.on(i, qb), p.on(i, kb), p.on(i, vb), on, p.parts[i], layer)
	}
}

// Attend is causal attention of the heads that each GPU has.
func (p *groupPass) Attend(dst, q backend.Buffer, spans []backend.Span, layer int, scale float32) {
	d, s := dst.(*groupBuffer), q.(*groupBuffer)
	if d.width != s.width {
		p.fail("attend: widths %d and %d", d.width, s.width)
		return
	}
	if !p.spread("attend", spans, s.split) {
		return
	}
	for i, o := range p.passes {
		from := p.on(i, s)
		if s.split {
			p.cut(i, d, from.width)
		} else {
			d.split = false
		}
		o.Attend(p.on(i, d), from, p.parts[i], layer, scale)
	}
}
