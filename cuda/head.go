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
	results := make([]backend.Result, 0, len(w.Rows))
	for rows := range slices.Chunk(w.Rows, headRows) {
		if err := p.head(&results, xb, nw, eps, h, w, int32(limit), rows); err != nil {
			p.fail("%w", err)
			return nil, p.err
		}
	}
	return results, nil
}

// head runs the head on at most headRows rows.
func (p *pass) head(results *[]backend.Result, x *buffer, norm *vector, eps float32, h *matrix, w backend.Want, limit int32, rows []int32) error {
	n, top := len(rows), topOf(w, h.out)
	p.recordHead(x, norm, eps, h, candidates{top, limit, w.Except}, rows)
	p.flush()
	if p.err != nil {
		return p.err
	}
	var logits []float32
	if w.Logits || w.TopK > mostTop {
		logits = make([]float32, n*h.out)
		if err := p.b.downloadLogits(logits, p.plan.logits); err != nil {
			return err
		}
	}
	for i := range n {
		stats, err := readStats(p.b.results.host.Bytes(), i, top)
		if err != nil {
			return err
		}
		r := stats.result()
		if err := w.Finish(&r, rows[i], backend.LogitsOf(logits, i, h.out), int(limit), mostTop); err != nil {
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

// recordHead records the final norm and the head of some rows, whose statistics
// and best candidates the next flush brings.
func (p *pass) recordHead(x *buffer, norm *vector, eps float32, h *matrix, c candidates, rows []int32) {
	v := &p.values
	v.want = append(v.want[:0], rows...)
	v.top, v.limit, v.except = c.top, c.limit, c.except
	p.record(op{kind: opHead, src: [3]*buffer{x}, w: [3]linear{{w: h}}, eps: eps, norm: [2]driver.Ptr{norm.data}})
}

// downloadLogits copies logits that the head left.
func (b *Backend) downloadLogits(out []float32, from driver.Ptr) error {
	b.device.ctx.Enter()
	defer b.device.ctx.Leave()
	return b.device.downloadFloats(out, from)
}
