package cpu

import (
	"math"
	"slices"

	"windrow/backend"
)

// statChunk is how many logits one partial of the row statistics covers. It is
// a constant of the arithmetic: partials are joined in the order of the
// vocabulary, so neither rows nor workers change a bit.
const statChunk = 512

// headRows bounds the rows that go through the head at once where logits are
// not asked for.
const headRows = 32

// partial holds the statistics of one chunk of one row's logits: the maximum,
// and Σ e^(z-peak) and Σ e^(z-peak)·(z-peak).
type partial struct{ peak, s0, s1 float32 }

// Results norms the wanted rows, multiplies them with the head, and takes the
// statistics and the best of each chunk of logits while it is in cache: logits
// are stored only where they are asked for.
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
	}
	chunks := (h.out + statChunk - 1) / statChunk
	if n := len(rows) * chunks; cap(b.partials) < n {
		b.partials = make([]partial, n)
	}
	partials := b.partials[:len(rows)*chunks]
	k := min(max(w.TopK, 1), limit)
	tops := b.topLists(len(rows), k)
	pk := p.packFor(h.proj, normed.data, len(rows), h.in)
	b.pool.run(chunks, func(worker, c int) {
		o0, o1 := c*statChunk, min((c+1)*statChunk, h.out)
		s := &b.scratch[worker]
		var y []float32 // this chunk's logits, [rows, ld]
		ld := statChunk
		if all != nil {
			y, ld = all[o0:], h.out
		} else {
			y = s.floats(scratchOut, len(rows)*statChunk)
		}
		h.proj.project(y, ld, pk, h, o0, o1, s)
		for i := range rows {
			z := y[i*ld : i*ld+o1-o0]
			m := b.k.maximum(z)
			s0, s1 := b.k.expSums(z, m)
			partials[i*chunks+c] = partial{m, s0, s1}
			tops[worker*len(rows)+i].chunk(z, m, o0, limit, int(w.Except))
		}
	})
	results := make([]backend.Result, len(rows))
	for i := range rows {
		r := &results[i]
		r.Entropy, r.LogSumExp = joinPartials(partials[i*chunks : (i+1)*chunks])
		top := &tops[i]
		for worker := 1; worker < b.pool.workers; worker++ {
			for _, c := range tops[worker*len(rows)+i].best {
				top.insert(c)
			}
		}
		r.Top = slices.Clone(top.best)
		if err := w.Finish(r, rows[i], backend.LogitsOf(all, i, h.out), limit, w.TopK); err != nil {
			return nil, err
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

// topList holds the k largest logits seen so far, best first, lower id first on
// a tie: whoever has seen which chunk, the lists of all workers together hold the
// k largest of all.
type topList struct {
	k    int
	best []backend.Candidate
}

// topLists gives each worker an empty list for each row.
func (b *Backend) topLists(rows, k int) []topList {
	for len(b.tops) < rows*b.pool.workers {
		b.tops = append(b.tops, topList{})
	}
	tops := b.tops[:rows*b.pool.workers]
	for i := range tops {
		tops[i].k, tops[i].best = k, tops[i].best[:0]
	}
	return tops
}

// chunk adds the logits of ids from first on that are not barred. One whose
// maximum cannot enter is not read.
func (t *topList) chunk(z []float32, peak float32, first, limit, except int) {
	if len(t.best) == t.k && !(peak >= t.best[t.k-1].Logit) {
		return
	}
	for i, v := range z[:max(0, min(len(z), limit-first))] {
		if first+i != except {
			t.insert(backend.Candidate{ID: int32(first + i), Logit: v})
		}
	}
}

// insert adds a candidate that is large enough; NaN never is.
func (t *topList) insert(c backend.Candidate) {
	if n := len(t.best); math.IsNaN(float64(c.Logit)) || n == t.k && !before(c, t.best[n-1]) {
		return
	}
	at, _ := slices.BinarySearchFunc(t.best, c, func(a, c backend.Candidate) int {
		if before(a, c) {
			return -1
		}
		return 1
	})
	if len(t.best) == t.k {
		t.best = t.best[:t.k-1]
	}
	t.best = slices.Insert(t.best, at, c)
}

// before orders candidates: the larger logit, then the lower id.
func before(a, b backend.Candidate) bool {
	return a.Logit > b.Logit || a.Logit == b.Logit && a.ID < b.ID
}
