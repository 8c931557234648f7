package cpu

import (
	"windrow/backend"
	"windrow/cpu/kernels"
)

// packFor lays out x for the projector; the packed form is kept until the
// next call.
func (f *forward) packFor(proj kernels.Projector, x []float32, rows, in int) *kernels.Packed {
	f.packInto(&f.b.packed, proj, x, rows, in)
	return &f.b.packed
}

// packInto lays out x for the projector in pk, where that has not been done ahead.
func (f *forward) packInto(pk *kernels.Packed, proj kernels.Projector, x []float32, rows, in int) {
	done := f.ahead == packedAhead{pk, proj.Name()}
	if f.ahead = (packedAhead{}); done {
		return
	}
	pk.Prepare(proj, rows, in)
	block := proj.PackRows()
	if n := (rows + block - 1) / block; n > 1 && rows*in >= leastWork {
		f.b.pool.run(n, func(_, i int) { proj.Pack(pk, x, i*block, min((i+1)*block, rows)) })
	} else {
		proj.Pack(pk, x, 0, rows)
	}
}

// target is one matrix of a dispatch and where its outputs go: straight into
// dst [rows, width], or, where they are added, by way of a chunk in cache.
type target struct {
	w    *matrix
	dst  *buffer
	bias vector
	add  bool
}

// dispatch projects x by every target in one loop over chunks of outputs.
// Targets that need different packings go one after the other.
func (f *forward) dispatch(x []float32, rows int, targets []target) {
	for len(targets) > 0 {
		n := 1
		for n < len(targets) && targets[n].w.proj.Name() == targets[0].w.proj.Name() && targets[n].w.In() == targets[0].w.In() {
			n++
		}
		f.dispatchSame(x, rows, targets[:n])
		targets = targets[n:]
	}
}

func (f *forward) dispatchSame(x []float32, rows int, targets []target) {
	proj, in := targets[0].w.proj, targets[0].w.In()
	if f.accelerates(proj) {
		f.dispatchBLAS(x, targets)
		return
	}
	pk := f.packFor(proj, x, rows, in)
	var several [4]int
	outs := several[:0]
	for _, t := range targets {
		outs = append(outs, t.w.Out())
	}
	chunk := spread(proj.Chunk(rows, in), f.b.pool.workers, outs)
	items := 0
	for _, t := range targets {
		items += (t.w.Out() + chunk - 1) / chunk
	}
	f.b.pool.run(items, func(worker, i int) {
		for _, t := range targets {
			n := (t.w.Out() + chunk - 1) / chunk
			if i >= n {
				i -= n
				continue
			}
			next := &f.b.scratch[worker].kernels.Next
			*next = chunk * f.b.pool.apart()
			f.chunkInto(t, pk, worker, i*chunk, min((i+1)*chunk, t.w.Out()))
			*next = 0
			return
		}
	})
}

// leastChunk is the fewest outputs of an item that is made smaller: the kernels of most
// outputs take 32 at a time.
const leastChunk = 32

// spread is how many outputs an item has in a loop over matrices of so many: as many as
// the projector likes, or a half, a quarter … of that where it keeps more workers at work.
// In items of 256, 2,048 outputs keep 8 of 16 workers busy, and 6,144 need two turns of
// which the second is half empty. Outputs do not depend on how they are cut.
func spread(chunk, workers int, outs []int) int {
	best, most := chunk, 0.0
	for c := chunk; c >= leastChunk && c%leastChunk == 0; c /= 2 {
		if share := busy(c, workers, outs); share > 1.05*most {
			best, most = c, share
		}
	}
	return best
}

// busy is the share of the workers' time that is spent on outputs, where all take equally
// long.
func busy(chunk, workers int, outs []int) float64 {
	items, total := 0, 0
	for _, n := range outs {
		items += (n + chunk - 1) / chunk
		total += n
	}
	turns := (items + workers - 1) / workers
	return float64(total) / float64(turns*workers*chunk)
}

// chunkInto computes outputs [o0, o1) of one target.
func (f *forward) chunkInto(t target, pk *kernels.Packed, worker, o0, o1 int) {
	s := &f.b.scratch[worker]
	width := t.dst.width
	if !t.add {
		t.w.proj.Project(t.dst.data[o0:], width, pk, &t.w.Weight, o0, o1, &s.kernels)
		if t.bias != nil {
			for r := range pk.Rows {
				f.b.k.Add(t.dst.data[r*width+o0:r*width+o1], t.bias[o0:o1])
			}
		}
		return
	}
	n := o1 - o0
	y := kernels.Grown(&s.out, pk.Rows*n)
	t.w.proj.Project(y, n, pk, &t.w.Weight, o0, o1, &s.kernels)
	if t.bias != nil {
		for r := range pk.Rows {
			f.b.k.Add(y[r*n:(r+1)*n], t.bias[o0:o1])
		}
	}
	f.b.k.AddTo(t.dst.data[o0:], width, nil, y, n, nil, pk.Rows)
}

// bias returns the bias of a projection, nil where it has none.
func bias(l backend.Linear) vector {
	v, _ := l.Bias.(vector)
	return v
}

// project multiplies x by each weight, into a buffer each or, where add is set,
// added to what is there.
func (f *forward) project(dst []backend.Buffer, x *buffer, w []backend.Linear, add bool) {
	f.targets = f.targets[:0]
	for i, l := range w {
		f.targets = append(f.targets, target{w: l.Weight.(*matrix), dst: &f.buffers[dst[i]], bias: bias(l), add: add})
	}
	f.dispatch(x.data, f.rows, f.targets)
}

// gatedProject multiplies by gate and up, and joins the two while they are in
// cache.
func (f *forward) gatedProject(d, xb *buffer, gate, up backend.Linear) {
	g, u := gate.Weight.(*matrix), up.Weight.(*matrix)
	if g.proj.Name() != u.proj.Name() || gate.Bias != nil || up.Bias != nil {
		f.gatedApart(d, xb, gate, up)
		return
	}
	if f.accelerates(g.proj) {
		f.gatedBLAS(d, xb, g, u)
		return
	}
	pk := f.packFor(g.proj, xb.data, f.rows, g.In())
	chunk := spread(g.proj.Chunk(f.rows, g.In()), f.b.pool.workers, []int{g.Out()})
	f.b.pool.run((g.Out()+chunk-1)/chunk, func(worker, i int) {
		o0, o1 := i*chunk, min((i+1)*chunk, g.Out())
		n := o1 - o0
		s := &f.b.scratch[worker]
		y := kernels.Grown(&s.out, f.rows*n)
		z := kernels.Grown(&s.up, f.rows*n)
		s.kernels.Next = chunk * f.b.pool.apart()
		g.proj.Project(y, n, pk, &g.Weight, o0, o1, &s.kernels)
		u.proj.Project(z, n, pk, &u.Weight, o0, o1, &s.kernels)
		s.kernels.Next = 0
		for r := range f.rows {
			f.b.k.SiluMul(d.data[r*d.width+o0:r*d.width+o1], y[r*n:(r+1)*n], z[r*n:(r+1)*n])
		}
	})
}

// gatedApart is gatedProject where gate and up have biases or run in different
// arithmetics.
func (f *forward) gatedApart(d, x *buffer, gate, up backend.Linear) {
	g, u := &f.apart[0], &f.apart[1]
	for i, l := range []backend.Linear{gate, up} {
		f.apart[i].sized(f.rows, d.width)
		f.dispatch(x.data, f.rows, []target{{w: l.Weight.(*matrix), dst: &f.apart[i], bias: bias(l)}})
	}
	f.rowsEach(d.width, func(_, r int) {
		a, b := r*d.width, (r+1)*d.width
		f.b.k.SiluMul(d.data[a:b], g.data[a:b], u.data[a:b])
	})
}
