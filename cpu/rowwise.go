package cpu

import (
	"windrow/backend"
	"windrow/cpu/kernels"
)

// rowwise is operations that follow each other in which a row needs nothing of other rows,
// and a packing of what they made for the operation behind them. A worker takes rows through
// all of them: what one makes is in its caches for the next, where a loop for each would have
// half of it in another worker's, and what is too small for a loop all workers share.
type rowwise struct {
	ops  []backend.Op
	next *backend.Op // whose source is packed; nil: none is
}

// packedAhead says where the source of the operation that comes next lies packed already, and
// for which arithmetic; the zero value: nowhere.
type packedAhead struct {
	in   *kernels.Packed
	name string
}

// rowwiseBytes is up to how many bytes of weights each worker reads all of them for some of
// the rows: they come out of its L2.
const rowwiseBytes = 256 << 10

// rowwiseFrom lists the operations from number i on, as far as they are done row by row.
func (f *forward) rowwiseFrom(i int) (r rowwise) {
	ops, end := f.program.Ops, i
	for end < len(ops) && isRowwise(&ops[end]) {
		end++
	}
	r.ops = ops[i:end]
	if end == i || end == len(ops) || ops[end].Tapped {
		return r
	}
	if m := packedBehind(&ops[end]); m != nil {
		if _, ok := m.proj.(kernels.RowProjector); ok {
			r.next = &ops[end]
		}
	}
	return r
}

// isRowwise reports whether an operation is done row by row.
func isRowwise(o *backend.Op) bool {
	if o.Tapped {
		return false
	}
	switch o.Kind {
	case backend.OpRMSNorm:
		return true
	case backend.OpRoute:
		w := o.Weights[0].Weight.(*matrix)
		return 2*w.In()*w.Out() <= rowwiseBytes
	case backend.OpProjectAdd:
		w := o.Weights[0].Weight.(*matrix)
		rows, ok := w.proj.(kernels.RowProjector)
		return ok && rows.TakesRows(&w.Weight) && 2*w.In()*w.Out() <= rowwiseBytes
	}
	return false
}

// packedBehind is the matrix for whose arithmetic an operation packs its first source; nil:
// it packs none.
func packedBehind(o *backend.Op) *matrix {
	switch o.Kind {
	case backend.OpProject, backend.OpGatedProject:
		return o.Weights[0].Weight.(*matrix)
	case backend.OpExpertsAdd:
		return o.Experts.Gate[0].(*matrix)
	}
	return nil
}

// leastRowwise is how many rows each worker has at least: fewer are done sooner by columns, as
// their products take as long as reading the weights.
const leastRowwise = 4

// goesRowwise reports whether r is worth a loop of its own.
func (f *forward) goesRowwise(r *rowwise) bool {
	workers := f.b.pool.workers
	if f.b.blas.product != nil && f.rows > f.b.blas.rows {
		return false // Accelerate takes all rows at once
	}
	return len(r.ops) > 0 && workers > 1 && workers <= mostShares && f.rows >= leastRowwise*workers
}

// doRowwise does the operations of r, each worker some rows.
func (f *forward) doRowwise(r *rowwise) {
	var packs kernels.Projector
	pk := &f.b.packed
	if r.next != nil {
		m := packedBehind(r.next)
		packs = m.proj
		if r.next.Kind == backend.OpExpertsAdd {
			pk = &f.mixture.in
		}
		pk.Prepare(packs, f.rows, m.In())
		f.ahead = packedAhead{pk, packs.Name()}
	}
	for i := range r.ops {
		if o := &r.ops[i]; o.Kind == backend.OpRoute {
			f.mixture.logits.sized(f.rows, o.Weights[0].Weight.Out())
		}
	}
	workers := f.b.pool.workers
	block := min((f.rows+workers-1)/workers, mostRowwise)
	f.b.pool.run((f.rows+block-1)/block, func(worker, i int) {
		s, from, to := &f.b.scratch[worker], i*block, min((i+1)*block, f.rows)
		for i := range r.ops {
			f.someRows(s, &r.ops[i], from, to)
		}
		if r.next != nil {
			packs.Pack(pk, f.buffers[r.next.Src[0]].data, from, to)
		}
	})
}

// mostRowwise is how many rows an item of a loop has at most.
const mostRowwise = 32

// someRows does one operation for rows [from, to).
func (f *forward) someRows(s *scratch, o *backend.Op, from, to int) {
	src, dst, n := &f.buffers[o.Src[0]], &f.buffers[o.Dst[0]], to-from
	x, y := src.data[from*src.width:to*src.width], dst.data[from*dst.width:to*dst.width]
	project := func(y []float32, width int, proj kernels.Projector, w *matrix) {
		s.packed.Prepare(proj, n, src.width)
		proj.Pack(&s.packed, x, 0, n)
		proj.Project(y, width, &s.packed, &w.Weight, 0, width, &s.kernels)
	}
	switch o.Kind {
	case backend.OpRMSNorm:
		f.b.k.RMSNormRows(y, dst.width, x, src.width, o.Norm.(vector), src.width, n, o.Eps)
	case backend.OpProjectAdd:
		w, z := o.Weights[0].Weight.(*matrix), kernels.Grown(&s.out, len(y))
		project(z, dst.width, w.proj, w)
		if b := bias(o.Weights[0]); b != nil {
			for r := range n {
				f.b.k.Add(z[r*dst.width:(r+1)*dst.width], b)
			}
		}
		f.b.k.AddTo(y, dst.width, nil, z, dst.width, nil, n)
	case backend.OpRoute:
		w := o.Weights[0].Weight.(*matrix)
		experts := w.Out()
		logits := f.mixture.logits.data[from*experts : to*experts]
		project(logits, experts, w.exact, w)
		for r := range n {
			choose(y[r*dst.width:(r+1)*dst.width], logits[r*experts:(r+1)*experts], o.Renormalise, &s.chosen)
		}
	}
}
