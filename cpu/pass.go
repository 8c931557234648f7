package cpu

import (
	"fmt"
	"math"
	"slices"

	"windrow/backend"
)

// buffer is activations [rows, width] in f32.
type buffer struct {
	width int
	data  []float32
}

func (b *buffer) Width() int { return b.width }

// pass runs each operation as it is called; there is one pass at a time.
type pass struct {
	b    *Backend
	rows int
	used []*buffer
	err  error
	open bool
}

// Begin starts a forward.
func (b *Backend) Begin(rows int) (backend.Pass, error) {
	if rows <= 0 {
		return nil, fmt.Errorf("cpu: a forward of %d rows", rows)
	}
	if b.pass.open {
		return nil, fmt.Errorf("cpu: a forward is still open")
	}
	b.pass = pass{b: b, rows: rows, used: b.pass.used[:0], open: true}
	return &b.pass, nil
}

func (p *pass) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("cpu: "+format, args...)
	}
}

// Buffer takes a freed buffer where one is large enough, so that a step in
// steady state allocates nothing.
func (p *pass) Buffer(width int) backend.Buffer {
	n := p.rows * width
	best := -1
	for i, f := range p.b.free {
		if cap(f.data) >= n && (best < 0 || cap(f.data) < cap(p.b.free[best].data)) {
			best = i
		}
	}
	var buf *buffer
	if best >= 0 {
		last := len(p.b.free) - 1
		buf = p.b.free[best]
		p.b.free[best] = p.b.free[last]
		p.b.free = p.b.free[:last]
	} else {
		buf = &buffer{data: make([]float32, n)}
	}
	buf.width, buf.data = width, buf.data[:n]
	p.used = append(p.used, buf)
	return buf
}

// End frees the pass's buffers for the next one.
func (p *pass) End() error {
	if !p.open {
		return fmt.Errorf("cpu: the forward has ended already")
	}
	p.open = false
	// Buffers of a larger prefill would otherwise pile up beside a step's.
	if len(p.b.free)+len(p.used) > 64 {
		p.b.free = p.b.free[:0]
	}
	p.b.free = append(p.b.free, p.used...)
	p.used = p.used[:0]
	return p.err
}

// Read copies a buffer.
func (p *pass) Read(b backend.Buffer) []float32 {
	return append([]float32(nil), b.(*buffer).data...)
}

// rowsEach runs body for each row: inline when the work is too small to be
// worth a dispatch (about 1 µs), else in blocks of rows.
func (p *pass) rowsEach(work int, body func(worker, row int)) {
	const block = 8
	if p.rows == 1 || p.rows*work < 16384 {
		for r := range p.rows {
			body(0, r)
		}
		return
	}
	p.b.pool.run((p.rows+block-1)/block, func(worker, i int) {
		for r := i * block; r < min((i+1)*block, p.rows); r++ {
			body(worker, r)
		}
	})
}

// Embed widens the tokens' rows of the table.
func (p *pass) Embed(dst backend.Buffer, table backend.Matrix, tokens []int32) {
	d, t := dst.(*buffer), table.(*matrix)
	if err := backend.CheckEmbed(p.rows, d.width, t, tokens); err != nil {
		p.fail("%w", err)
		return
	}
	for r, id := range tokens {
		t.widenRow(d.data[r*d.width:(r+1)*d.width], int(id), p.b.k.widenBF16, p.b.k.widenF16)
	}
}

// RMSNorm normalises each row.
func (p *pass) RMSNorm(dst, x backend.Buffer, weight backend.Vector, eps float32) {
	d, s, w := dst.(*buffer), x.(*buffer), weight.(vector)
	if d.width != s.width || len(w) != s.width {
		p.fail("rms norm: widths %d, %d and weight %d differ", d.width, s.width, len(w))
		return
	}
	n := s.width
	p.rowsEach(n, func(_, r int) {
		p.b.k.rmsNorm(d.data[r*n:(r+1)*n], s.data[r*n:(r+1)*n], w, eps)
	})
}

// rmsNorm sets dst = x / sqrt(mean(x²) + eps) · w.
func (k *kernels) rmsNorm(dst, x, w []float32, eps float32) {
	mean := float64(k.sumSquares(x)) / float64(len(x))
	k.scaleMul(dst, x, w, float32(1/math.Sqrt(mean+float64(eps))))
}

// RotateStore norms and rotates the heads of each row, and stores keys and
// values.
func (p *pass) RotateStore(q, k, v backend.Buffer, h backend.Heads, spans []backend.Span, layer int) {
	qb, kb, vb := q.(*buffer), k.(*buffer), v.(*buffer)
	if !p.checkSpans("rotate", spans, layer) {
		return
	}
	l := spans[0].KV.Layout()
	d := l.HeadDim
	if err := h.Check(p.rows, qb.width, kb.width, vb.width, l); err != nil {
		p.fail("%w", err)
		return
	}
	qn, _ := h.QNorm.(vector)
	kn, _ := h.KNorm.(vector)
	if (qn != nil && len(qn) != d) || (kn != nil && len(kn) != d) {
		p.fail("rotate: head norms of %d and %d, want %d", len(qn), len(kn), d)
		return
	}
	for _, s := range spans {
		s.KV.(*kv).reserve(s.Base, s.Base+s.Rows)
	}
	kn2 := p.b.k
	head := func(x, norm, cos, sin []float32) {
		if norm != nil {
			kn2.rmsNorm(x, x, norm, h.Eps)
		}
		kn2.rotate(x, cos, sin)
	}
	p.rowsEach(qb.width+2*kb.width, func(_, r int) {
		span := spanOf(spans, r)
		index := span.Base + r - span.First
		cache := span.KV.(*kv)
		cos, sin := h.Cos[r*d/2:(r+1)*d/2], h.Sin[r*d/2:(r+1)*d/2]
		row := qb.data[r*qb.width : (r+1)*qb.width]
		for ; len(row) > 0; row = row[d:] {
			head(row[:d], qn, cos, sin)
		}
		for i := range l.KVHeads {
			at := r*kb.width + i*d
			key := kb.data[at : at+d]
			head(key, kn, cos, sin)
			cache.store(kn2, layer, i, false, index, key)
			if !cache.turned {
				cache.store(kn2, layer, i, true, index, vb.data[at:at+d])
			}
		}
	})
	turned := func(s backend.Span) bool { return s.KV.(*kv).turned }
	if !slices.ContainsFunc(spans, turned) {
		return
	}
	p.b.pool.run(len(spans)*l.KVHeads, func(worker, i int) {
		if s, head := spans[i/l.KVHeads], i%l.KVHeads; turned(s) {
			s.KV.(*kv).storeTurned(kn2, &p.b.scratch[worker], layer, head, s.Base, s.Rows, vb.data[s.First*vb.width+head*d:], vb.width)
		}
	})
	for _, s := range spans {
		if turned(s) {
			s.KV.(*kv).endTurned(layer, s.Base+s.Rows)
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

// checkSpans compares the spans with the pass and the storage.
func (p *pass) checkSpans(op string, spans []backend.Span, layer int) bool {
	for i, s := range spans {
		if c, ok := s.KV.(*kv); !ok || c.pages == nil {
			p.fail("%s: span %d has no open cpu kv", op, i)
			return false
		}
	}
	if err := backend.CheckSpans(p.rows, spans, layer); err != nil {
		p.fail("%s: %w", op, err)
		return false
	}
	return true
}
