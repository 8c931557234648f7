package cpu

import (
	"math"
	"slices"

	"windrow/backend"
	"windrow/cpu/kernels"
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

// head norms the wanted rows, multiplies them with the head, and takes the
// statistics and the best of each chunk of logits while it is in cache: logits
// are stored only where they are asked for.
func (f *forward) head(x *buffer, o *backend.Op) ([]backend.Result, error) {
	want := f.values.Want
	hidden := f.hidden(x, o, want)
	results := make([]backend.Result, 0, len(want))
	for len(want) > 0 {
		n := slices.IndexFunc(want, func(w backend.Wanted) bool { return w.Bare })
		if n == 0 {
			results, want = append(results, backend.Result{Argmax: -1}), want[1:]
			continue
		}
		if n < 0 {
			n = len(want)
		}
		logits := slices.ContainsFunc(want[:n], func(w backend.Wanted) bool { return w.Logits })
		if !logits {
			n = min(n, headRows)
		}
		rs, err := f.headRows(x, o, want[:n], logits)
		if err != nil {
			return nil, err
		}
		results, want = append(results, rs...), want[n:]
	}
	for i, h := range hidden {
		results[i].Hidden = h
	}
	return results, nil
}

// hidden are the normed states of the rows of which they are wanted; nil: of none.
func (f *forward) hidden(x *buffer, o *backend.Op, want []backend.Wanted) [][]float32 {
	n := 0
	for _, w := range want {
		if w.Hidden {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	room, list := make([]float32, n*x.width), make([][]float32, len(want))
	for i, w := range want {
		if w.Hidden {
			r := int(w.Row)
			list[i], room = room[:x.width:x.width], room[x.width:]
			f.b.k.RMSNorm(list[i], x.data[r*x.width:(r+1)*x.width], o.Norm.(vector), o.Eps)
		}
	}
	return list
}

// headRows is head for rows of which logits are stored for all, or for none.
func (f *forward) headRows(x *buffer, o *backend.Op, want []backend.Wanted, logits bool) ([]backend.Result, error) {
	b, h, norm := f.b, o.Weights[0].Weight.(*matrix), o.Norm.(vector)
	f.normed.sized(len(want), x.width)
	for i, w := range want {
		r := int(w.Row)
		b.k.RMSNorm(f.normed.data[i*x.width:(i+1)*x.width], x.data[r*x.width:(r+1)*x.width], norm, o.Eps)
	}
	var all []float32 // logits [rows, vocabulary]
	if logits {
		all = make([]float32, len(want)*h.Out())
	}
	chunks := (h.Out() + statChunk - 1) / statChunk
	partials := kernels.Grown(&b.partials, len(want)*chunks)
	limit := o.Bars.Ids(h.Out())
	tops := b.topLists(want, limit)
	pk := f.packFor(h.proj, f.normed.data, len(want), h.In())
	b.pool.run(chunks, func(worker, c int) {
		o0, o1 := c*statChunk, min((c+1)*statChunk, h.Out())
		s := &b.scratch[worker]
		var y []float32 // this chunk's logits, [rows, ld]
		ld := statChunk
		if all != nil {
			y, ld = all[o0:], h.Out()
		} else {
			y = kernels.Grown(&s.out, len(want)*statChunk)
		}
		h.proj.Project(y, ld, pk, &h.Weight, o0, o1, &s.kernels)
		for i := range want {
			z := y[i*ld : i*ld+o1-o0]
			m := b.k.Maximum(z)
			s0, s1 := b.k.ExpSums(z, m)
			partials[i*chunks+c] = partial{m, s0, s1}
			tops[worker*len(want)+i].chunk(b.k, z, m, o0, limit, int(o.Bars.Except), want[i].Allowed)
		}
	})
	results := make([]backend.Result, len(want))
	for i := range want {
		w, r := &want[i], &results[i]
		r.Entropy, r.LogSumExp = joinPartials(partials[i*chunks : (i+1)*chunks])
		top := &tops[i]
		for worker := 1; worker < b.pool.workers; worker++ {
			for _, c := range tops[worker*len(want)+i].best {
				top.insert(c)
			}
		}
		r.Top = slices.Clone(top.best)
		// Every candidate that is wanted has been found: nothing is taken from the logits.
		found := *w
		found.Allowed = nil
		if err := found.Finish(r, backend.LogitsOf(all, i, h.Out()), o.Bars, found.TopK); err != nil {
			return nil, err
		}
	}
	return results, nil
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
func (b *Backend) topLists(want []backend.Wanted, limit int) []topList {
	n := len(want) * b.pool.workers
	for len(b.tops) < n {
		b.tops = append(b.tops, topList{})
	}
	tops := b.tops[:n]
	for i := range tops {
		tops[i].k, tops[i].best = min(max(want[i%len(want)].TopK, 1), limit), tops[i].best[:0]
	}
	return tops
}

// chunk adds the logits of ids from first on that may be chosen. One whose
// maximum cannot enter is not read.
func (t *topList) chunk(k *kernels.Table, z []float32, peak float32, first, limit, except int, allowed backend.IDSet) {
	if len(t.best) == t.k && !(peak >= t.best[t.k-1].Logit) {
		return
	}
	z = z[:max(0, min(len(z), limit-first))]
	if inside := except >= first && except < first+len(z); t.k == 1 && allowed == nil && !inside && peak == peak {
		// The best of all is the only one that is asked for, and may be chosen.
		if i := k.FirstAtLeast(z, peak); i < len(z) {
			t.insert(backend.Candidate{ID: int32(first + i), Logit: z[i]})
		} else {
			t.each(z, first, except, allowed) // the peak is beyond the limit
		}
		return
	}
	t.each(z, first, except, allowed)
}

// each adds logits one by one.
func (t *topList) each(z []float32, first, except int, allowed backend.IDSet) {
	for i, v := range z {
		if len(t.best) == t.k && !(v >= t.best[t.k-1].Logit) {
			continue // before it is asked whether it is allowed: most are too small
		}
		if first+i != except && (allowed == nil || allowed.Has(int32(first+i))) {
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
