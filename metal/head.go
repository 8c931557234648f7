package metal

import (
	"slices"

	"windrow/backend"
)

// headRows bounds the rows that go through the head at once: 128 rows of 152 k
// logits are 78 MB.
const headRows = 128

// Results norms the wanted rows, multiplies them with the head, and returns
// the statistics of each row's logits.
func (p *pass) Results(x backend.Buffer, norm backend.Vector, eps float32, head backend.Matrix, w backend.Want) ([]backend.Result, error) {
	if p.err != nil {
		return nil, p.err
	}
	xb, nw, h := x.(*buffer), norm.(*vector), head.(*matrix)
	if h.in != xb.width || nw.n != xb.width {
		p.fail("results: norm %d and head %d for width %d", nw.n, h.in, xb.width)
		return nil, p.err
	}
	limit, err := w.Check(p.rows, h.out)
	if err != nil {
		p.fail("%w", err)
		return nil, p.err
	}
	results := make([]backend.Result, 0, len(w.Rows))
	for rows := range slices.Chunk(w.Rows, headRows) {
		part, err := p.head(xb, nw, eps, h, w, limit, rows)
		if err != nil {
			if p.err == nil {
				p.fail("%w", err)
			}
			return nil, p.err
		}
		results = append(results, part...)
	}
	return results, nil
}

// head runs the head on at most headRows rows.
func (p *pass) head(x *buffer, norm *vector, eps float32, h *matrix, w backend.Want, limit int, rows []int32) ([]backend.Result, error) {
	n, top := len(rows), max(1, min(w.TopK, mostTop, h.out))
	y := linear{weight: h.weight}
	normed := elemF32
	if p.operand(y) == asBF16 {
		normed = elemBF16
	}
	memory, arena := p.b.memory, &p.b.arena
	var places [4]view
	for i, s := range []struct {
		bytes int
		elem  elem
	}{
		{n * x.width * normed.size(), normed}, {4 * n * h.out, elemF32},
		{partialBytes(n, h.out, top), elemBytes}, {n * resultBytes(top), elemBytes},
	} {
		var err error
		if places[i], err = arena.take(memory, s.bytes, s.elem); err != nil {
			return nil, err
		}
	}
	states, logits, partials, out := places[0], places[1], places[2], places[3]
	want := stage(p, rows)
	// Rows of the head are those of decode passes wherever there are few.
	decode := p.decode || n <= invariantRows
	p.record(op{src: []*buffer{x}, reads: asF32, run: func(e encoder, _, src []view, _ view) {
		rmsNormWanted(e, states, src[0], norm.data, p.said(want, elemU32), n, x.width, eps)
		project(e, []view{logits}, states, n, []linear{y}, decode)
		rowResults(e, out, partials, logits, n, h.out, limit, int(w.Except), top)
	}})
	p.flush(nil)
	if p.err != nil {
		return nil, p.err
	}
	var z []float32
	if w.Logits || w.TopK > mostTop {
		z = make([]float32, n*h.out)
		floats(z, memory.bytes(logits, 4*len(z)))
	}
	data := memory.bytes(out, n*resultBytes(top))
	if data == nil { // only costs are counted
		return make([]backend.Result, n), nil
	}
	results, err := decodeResults(data, n, top)
	if err != nil {
		return nil, err
	}
	for i := range results {
		r := &results[i]
		if err := w.Finish(r, rows[i], backend.LogitsOf(z, i, h.out), limit, mostTop); err != nil {
			return nil, err
		}
	}
	return results, nil
}
