package cuda

import (
	"slices"

	"windrow/backend"
	"windrow/cuda/driver"
)

// mostTop is how many candidates a row the device finds; where more are
// wanted the host takes them from the logits.
const mostTop = 64

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
	o := headOp(xb, nw, eps, h)
	results := make([]backend.Result, 0, len(w.Rows))
	for rows := range slices.Chunk(w.Rows, headRows) {
		if err := p.head(&results, o, w, int32(limit), rows); err != nil {
			p.fail("%w", err)
			return nil, p.err
		}
	}
	return results, nil
}

// headOp is the final norm and the head, of rows that are wanted.
func headOp(x *buffer, norm *vector, eps float32, h *matrix) op {
	return op{kind: opHead, src: [3]*buffer{x}, w: [3]linear{{w: h}}, eps: eps, norm: [2]driver.Ptr{norm.data}}
}

// head runs the head on at most headRows rows.
func (p *pass) head(results *[]backend.Result, o op, w backend.Want, limit int32, rows []int32) error {
	vocabulary := o.w[0].w.out
	p.wantRows(candidates{topOf(w, vocabulary), limit, w.Except}, rows)
	p.record(o)
	p.flush()
	if p.err != nil {
		return p.err
	}
	return p.collect(results, vocabulary, w, int(limit), rows)
}

// collect appends the results that a flush has brought.
func (p *pass) collect(results *[]backend.Result, vocabulary int, w backend.Want, limit int, rows []int32) error {
	var logits []float32
	if w.Logits || w.TopK > mostTop {
		logits = make([]float32, len(rows)*vocabulary)
		if err := p.b.downloadLogits(logits, p.plan.logits); err != nil {
			return err
		}
	}
	for i, row := range rows {
		stats, err := readStats(p.b.results.host.Bytes(), i, topOf(w, vocabulary))
		if err != nil {
			return err
		}
		r := stats.result()
		if err := w.Finish(&r, row, backend.LogitsOf(logits, i, vocabulary), limit, mostTop); err != nil {
			return err
		}
		*results = append(*results, r)
	}
	return nil
}

// candidates say which ids a row's candidates may have, and how many are wanted.
type candidates struct {
	top           int
	limit, except int32
}

// topOf is how many candidates a row the device finds.
func topOf(w backend.Want, vocabulary int) int { return max(1, min(w.TopK, mostTop, vocabulary)) }

// wantRows says which rows' statistics and best candidates the next flush brings.
func (p *pass) wantRows(c candidates, rows []int32) {
	v := &p.values
	v.want = append(v.want[:0], rows...)
	v.top, v.limit, v.except = c.top, c.limit, c.except
}

// downloadLogits copies logits that the head left.
func (b *Backend) downloadLogits(out []float32, from driver.Ptr) error {
	b.device.ctx.Enter()
	defer b.device.ctx.Leave()
	return b.device.downloadFloats(out, from)
}
