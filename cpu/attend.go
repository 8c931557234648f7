package cpu

import (
	"math"

	"windrow/backend"
	"windrow/cpu/kernels"
)

// attendRows is how many rows of a span one attention item takes, with all
// query heads of one KV head: 16 rows keep the queries, accumulators and one
// tile of keys and values within L2.
const attendRows = 16

// narrowQueries is the most queries that take keys and values as they are
// stored: with 16 the widening is repaid.
const narrowQueries = 8

// attend computes causal attention, tiled over keys with an online softmax:
// memory is bounded by a tile, never rows × context.
//
// Tiles are bounded by multiples of pageSlots of the key's index, whatever the
// span's base, and a row's running maximum, sum and accumulator go through its
// tiles in ascending order: a row's bits depend on its own index only.
func (f *forward) attend(d, qb *buffer, h *backend.Heads, layer int, scale float32) {
	spans := f.values.Spans
	l := spans[0].Storage.(*storage).keys
	items := 0 // of a head
	for _, s := range spans {
		items += (s.Rows + attendRows - 1) / attendRows
	}
	f.b.pool.run(items*l.KVHeads, func(worker, i int) {
		// Later rows see more keys: taken first, they leave the short items to
		// even out the workers.
		head, block := i/items, items-1-i%items
		for si := range spans {
			s := &spans[si]
			blocks := (s.Rows + attendRows - 1) / attendRows
			if block >= blocks {
				block -= blocks
				continue
			}
			r0 := block * attendRows
			block = min(r0+attendRows, s.Rows)
			if s.Storage.(*storage).transposed {
				f.attendPages(&f.b.scratch[worker], d, qb, h.QStride(), s, layer, head, r0, block, scale)
			} else {
				f.attendBlock(&f.b.scratch[worker], d, qb, h.QStride(), s, layer, head, r0, block, scale)
			}
			if h.Gated {
				f.attendGate(&f.b.scratch[worker], d, qb, s.First+r0, s.First+block, head)
			}
			return
		}
	})
}

// attendGate multiplies what rows [r0, r1) have for the query heads of one KV head with
// the sigmoid of their gates, which lie behind the queries.
func (f *forward) attendGate(s *scratch, dst, q *buffer, r0, r1, head int) {
	l := f.values.Spans[0].Storage.(*storage).keys
	d := l.HeadDim
	group := dst.width / (l.KVHeads * d)
	e := kernels.Grown(&s.scores, d)
	for r := r0; r < r1; r++ {
		for i := head * group; i < (head+1)*group; i++ {
			gate := q.data[r*q.width+i*2*d+d : r*q.width+(i+1)*2*d]
			out := dst.data[r*dst.width+i*d : r*dst.width+(i+1)*d]
			if f.b.k.GateDiv != nil {
				f.b.k.GateDiv(out, gate)
				continue
			}
			for j, x := range gate {
				e[j] = -x
			}
			f.b.k.ExpSum(e, 0)
			for j := range out {
				out[j] /= 1 + e[j]
			}
		}
	}
}

// attendBlock does rows [r0, r1) of a span for the query heads of one KV head.
func (f *forward) attendBlock(s *scratch, dst, q *buffer, stride int, span *backend.Span, layer, head, r0, r1 int, scale float32) {
	k := f.b.k
	cache := span.Storage.(*storage)
	l, kvHeads := &cache.layout, cache.keys.KVHeads
	d := cache.keys.HeadDim
	group := dst.width / (kvHeads * d)
	rows := r1 - r0
	nq := rows * group

	// One tile's memory serves its keys and then its values: 32 KB at a head
	// dimension of 128, which L1 holds.
	keys := kernels.Grown(&s.keys, pageSlots*d)
	values := keys
	work := kernels.Grown(&s.queries, 2*nq*d)
	queries, acc := work[:nq*d], work[nq*d:2*nq*d]
	state := kernels.Grown(&s.scores, nq*(pageSlots+2))
	scores, peak, sum := state[:nq*pageSlots], state[nq*pageSlots:nq*(pageSlots+1)], state[nq*(pageSlots+1):nq*(pageSlots+2)]

	// A few queries are done with a key sooner than memory gives the next: they
	// take the keys as they are stored. Which way is taken changes no bit.
	narrow := k.NarrowScores != nil && nq <= narrowQueries && group%2 == 0 && d%64 == 0 && l.DType == backend.KVBF16 && l.Window == 0
	var stored []byte // the tile's values

	// Query i is row i/group, head i%group of this KV head.
	for i := range nq {
		at := (span.First+r0+i/group)*q.width + (head*group+i%group)*stride
		copy(queries[i*d:(i+1)*d], q.data[at:at+d])
	}
	k.Scale(queries, scale)
	clear(acc)
	for i := range nq {
		peak[i], sum[i] = float32(math.Inf(-1)), 0
	}

	// soft folds scores [lo, hi) of a row's queries into their running maxima
	// and sums, and leaves the weights in place of the scores.
	soft := func(r, lo, hi int) {
		for i := r * group; i < (r+1)*group; i++ {
			row := scores[i*pageSlots+lo : i*pageSlots+hi]
			if m := k.Maximum(row); m > peak[i] {
				c := kernels.Exp32(peak[i] - m)
				peak[i] = m
				sum[i] *= c
				k.Scale(acc[i*d:(i+1)*d], c)
			}
			sum[i] += k.ExpSum(row, peak[i])
		}
	}
	// weigh adds the weighted values of tile places [lo, hi) to rows [a, b).
	weigh := func(a, b, lo, hi int) {
		if a >= b || lo >= hi {
			return
		}
		if narrow {
			k.NarrowValues(acc[a*group*d:], scores[a*group*pageSlots+lo:], pageSlots, stored[lo*2*d:], (b-a)*group, hi-lo, d)
		} else {
			k.AttendValues(acc[a*group*d:], scores[a*group*pageSlots+lo:], pageSlots, values[lo*d:], (b-a)*group, hi-lo, d)
		}
	}

	first, last := span.Base+r0, span.Base+r1-1 // indices of the block's rows
	for t := 0; t <= last; t += pageSlots {
		// A rotating cache has a gap between the kept indices and the oldest
		// that is still visible.
		if t >= l.Keep && t+pageSlots <= l.Visible(first) {
			continue
		}
		n := min(pageSlots, last+1-t)
		var ahead []byte // the next tile's bytes, fetched while this one is worked on
		if t+pageSlots <= last {
			ahead = cache.tile(layer, head, t+pageSlots)
		}
		if narrow {
			tile := cache.tile(layer, head, t)
			k.NarrowScores(scores, pageSlots, queries, tile, nq, n, d, ahead)
			stored = tile[len(tile)/2:]
		} else {
			kernels.Prefetch(ahead)
			cache.load(k, keys, layer, head, false, t, n)
			k.AttendScores(scores, pageSlots, queries, keys, nq, n, d)
			cache.load(k, values, layer, head, true, t, n)
		}
		whole := -1 // first of a run of rows that see the whole tile
		for r := range rows {
			hi := min(n, first+r+1-t)
			from := l.Visible(first+r) - t
			if from <= 0 && hi == n {
				soft(r, 0, n)
				if whole < 0 {
					whole = r
				}
				continue
			}
			if whole >= 0 {
				weigh(whole, r, 0, n)
				whole = -1
			}
			if kept := min(l.Keep-t, hi); from > 0 && kept > 0 {
				soft(r, 0, kept)
				weigh(r, r+1, 0, kept)
			}
			if from = max(from, 0); from < hi {
				soft(r, from, hi)
				weigh(r, r+1, from, hi)
			}
		}
		if whole >= 0 {
			weigh(whole, rows, 0, n)
		}
	}
	for i := range nq {
		at := (span.First+r0+i/group)*dst.width + (head*group+i%group)*d
		out := dst.data[at : at+d]
		copy(out, acc[i*d:(i+1)*d])
		k.Scale(out, 1/sum[i])
	}
}
