package cpu

import (
	"fmt"
	"math"
	"slices"

	"windrow/backend"
)

// statChunk is how many logits one partial of the row statistics covers. It is
// a constant of the arithmetic: partials are joined in the order of the
// vocabulary, so neither rows nor workers change a bit.
const statChunk = 512

// headRows bounds the rows that go through the head at once where logits are
// not asked for: 32 rows of 152 k logits are 19 MB.
const headRows = 32

// partial holds the statistics of one chunk of one row's logits: the maximum,
// and Σ e^(z-peak) and Σ e^(z-peak)·(z-peak).
type partial struct{ peak, s0, s1 float32 }

// Results norms the wanted rows, multiplies them with the head, and takes the
// statistics of each chunk of logits while it is in cache.
func (p *pass) Results(x backend.Buffer, norm backend.Vector, eps float32, head backend.Matrix, w backend.Want) ([]backend.Result, error) {
	if p.err != nil {
		return nil, p.err
	}
	xb, nw, h := x.(*buffer), norm.(vector), head.(*matrix)
	if h.in != xb.width || len(nw) != xb.width {
		p.fail("results: norm %d and head %d for width %d", len(nw), h.in, xb.width)
		return nil, p.err
	}
	limit, err := w.Check(p.rows, h.out)
	if err != nil {
		p.fail("%w", err)
		return nil, p.err
	}
	results := make([]backend.Result, 0, len(w.Rows))
	batch := headRows
	if w.Logits {
		batch = len(w.Rows)
	}
	for a := 0; a < len(w.Rows); a += batch {
		rows := w.Rows[a:min(a+batch, len(w.Rows))]
		rs, err := p.headRows(xb, nw, eps, h, w, limit, rows)
		if err != nil {
			p.fail("%w", err)
			return nil, p.err
		}
		results = append(results, rs...)
	}
	return results, nil
}

func (p *pass) headRows(x *buffer, norm vector, eps float32, h *matrix, w backend.Want, limit int, rows []int32) ([]backend.Result, error) {
	b := p.b
	normed := p.scratchBuffer(len(rows) * x.width)
	for i, r := range rows {
		b.k.rmsNorm(normed.data[i*x.width:(i+1)*x.width], x.data[int(r)*x.width:int(r+1)*x.width], norm, eps)
	}
	var all []float32 // logits [rows, vocabulary]
	if w.Logits {
		all = make([]float32, len(rows)*h.out)
	} else {
		all = p.scratchBuffer(len(rows) * h.out).data
	}
	logits := func(i int) []float32 { return all[i*h.out : (i+1)*h.out : (i+1)*h.out] }
	chunks := (h.out + statChunk - 1) / statChunk
	if n := len(rows) * chunks; cap(b.partials) < n {
		b.partials = make([]partial, n)
	}
	partials := b.partials[:len(rows)*chunks]
	pk := p.packFor(h.proj, normed.data, len(rows), h.in)
	b.pool.run(chunks, func(worker, c int) {
		o0, o1 := c*statChunk, min((c+1)*statChunk, h.out)
		h.proj.project(all[o0:], h.out, pk, h, o0, o1, &b.scratch[worker])
		for i := range rows {
			z := logits(i)[o0:o1]
			m := b.k.maximum(z)
			s0, s1 := b.k.expSums(z, m)
			partials[i*chunks+c] = partial{m, s0, s1}
		}
	})
	results := make([]backend.Result, len(rows))
	k := min(max(w.TopK, 1), limit)
	for i := range rows {
		r := &results[i]
		part := partials[i*chunks : (i+1)*chunks]
		r.Entropy, r.LogSumExp = joinPartials(part)
		if l := float64(r.LogSumExp); math.IsNaN(l) || math.IsInf(l, 0) || math.IsNaN(float64(r.Entropy)) {
			return nil, fmt.Errorf("the logits of row %d are not finite: the weights hold NaN or infinite values, or overflow", rows[i])
		}
		top := topK(logits(i), part, k, limit, int(w.Except))
		if len(top) == 0 {
			return nil, fmt.Errorf("results: no id may be chosen")
		}
		r.Argmax = top[0].ID
		if w.TopK > 0 {
			r.Top = top
		}
		if w.Logits {
			r.Logits = logits(i)
		}
	}
	return results, nil
}

// scratchBuffer is a buffer of n floats that lives until the pass ends.
func (p *pass) scratchBuffer(n int) *buffer {
	rows := p.rows
	p.rows = 1
	b := p.Buffer(n).(*buffer)
	p.rows = rows
	return b
}

// joinPartials gives entropy and log-sum-exp in nats:
// H = ln S0 − S1/S0 with S0 = Σ e^(z−M), S1 = Σ e^(z−M)(z−M).
func joinPartials(parts []partial) (entropy, logSumExp float32) {
	peak := math.Inf(-1)
	for _, c := range parts {
		peak = max(peak, float64(c.peak))
	}
	var s0, s1 float64
	for _, c := range parts {
		d := float64(c.peak) - peak
		f := math.Exp(d)
		if f == 0 {
			continue
		}
		s0 += f * float64(c.s0)
		s1 += f * (float64(c.s1) + d*float64(c.s0))
	}
	return float32(max(0, math.Log(s0)-s1/s0)), float32(peak + math.Log(s0))
}

// topK returns the k largest of the logits that are not barred, best first,
// lower id first on a tie. Chunks whose maximum cannot enter are not read.
func topK(z []float32, parts []partial, k, limit, except int) []backend.Candidate {
	top := make([]backend.Candidate, 0, k)
	for c, part := range parts {
		if c*statChunk >= limit {
			break
		}
		if len(top) == k && !(part.peak > top[k-1].Logit) {
			continue
		}
		for id := c * statChunk; id < min((c+1)*statChunk, limit); id++ {
			v := z[id]
			if id == except || (len(top) == k && !(v > top[k-1].Logit)) {
				continue
			}
			at, _ := slices.BinarySearchFunc(top, v, func(a backend.Candidate, v float32) int {
				if a.Logit >= v {
					return -1
				}
				return 1
			})
			if len(top) == k {
				top = top[:k-1]
			}
			top = slices.Insert(top, at, backend.Candidate{ID: int32(id), Logit: v})
		}
	}
	return top
}
