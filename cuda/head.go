package cuda

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"windrow/backend"
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
	for rows := w.Rows; len(rows) > 0; {
		n := min(len(rows), headRows)
		if err := p.head(&results, xb, nw, eps, h, w, int32(limit), rows[:n]); err != nil {
			p.fail("%w", err)
			return nil, p.err
		}
		rows = rows[n:]
	}
	return results, nil
}

// head runs the head on at most headRows rows.
func (p *pass) head(results *[]backend.Result, x *buffer, norm *vector, eps float32, h *matrix, w backend.Want, limit int32, rows []int32) error {
	v := &p.values
	v.want = append(v.want[:0], rows...)
	v.limit, v.except, v.top = limit, w.Except, max(1, min(w.TopK, mostTop, h.out))
	p.record(op{kind: opHead, src: [3]*buffer{x}, w: [3]linear{{w: h}}, eps: eps})
	p.ops[len(p.ops)-1].norm[0] = norm.data
	n, top := len(rows), v.top
	p.flush()
	if p.err != nil {
		return p.err
	}
	var logits []float32
	if w.Logits || w.TopK > mostTop {
		logits = make([]float32, n*h.out)
		p.b.device.ctx.Enter()
		err := p.b.download(logits, p.plan.logits)
		p.b.device.ctx.Leave()
		if err != nil {
			return err
		}
	}
	for i := range n {
		r, err := decodeStats(p.b.results.host.Bytes(), i, top)
		if err != nil {
			return err
		}
		if l := float64(r.LogSumExp); math.IsNaN(l) || math.IsInf(l, 0) || math.IsNaN(float64(r.Entropy)) {
			return fmt.Errorf("the logits of row %d are not finite: the weights hold NaN or infinite values, or overflow", rows[i])
		}
		if len(r.Top) == 0 {
			return fmt.Errorf("results: no id may be chosen")
		}
		r.Argmax = r.Top[0].ID
		if w.TopK > mostTop {
			r.Top = hostTop(logits[i*h.out:(i+1)*h.out], w.TopK, limit, w.Except)
		}
		if w.TopK == 0 {
			r.Top = nil
		}
		if w.Logits {
			r.Logits = logits[i*h.out : (i+1)*h.out : (i+1)*h.out]
		}
		*results = append(*results, r)
	}
	return nil
}

// hostTop takes the k best candidates from a row of logits.
func hostTop(z []float32, k int, limit, except int32) []backend.Candidate {
	all := make([]backend.Candidate, 0, limit)
	for id, v := range z[:limit] {
		if int32(id) != except {
			all = append(all, backend.Candidate{ID: int32(id), Logit: v})
		}
	}
	slices.SortStableFunc(all, func(a, b backend.Candidate) int { return cmp.Compare(b.Logit, a.Logit) })
	return all[:min(k, len(all))]
}
