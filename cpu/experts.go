package cpu

import (
	"fmt"
	"math"

	"windrow/backend"
	"windrow/cpu/kernels"
)

// mixture is what the experts of one layer have to do, and room for it.
type mixture struct {
	logits buffer // of the router [rows, experts]
	// The pairs (row, expert), by expert: counts, and of each pair its row and weight.
	first   []int // of expert e; first[experts] counts all
	rows    []int
	weights []float32
	in      kernels.Packed // all rows, where experts take them from there
	gather  buffer         // the rows of all pairs
	mlp     buffer         // what gate and up make of them
	all     []active       // room for as many as there are
	active  []active
	outs    []int // of each of them
	shared  struct {
		gate, mlp buffer
		gated     kernels.Packed // rows for the gate, where it is one of the experts
	}
}

// active is an expert that has rows.
type active struct {
	gate, up, down *matrix
	weight         *matrix // of the shared one: whose sigmoid is a row's weight
	first, rows    int     // its pairs
	in, inner      kernels.Packed
	apart          kernels.Packed // for an up of another arithmetic than gate's
}

// takesExperts checks that the weights are this backend's.
func (f *forward) takesExperts(e *backend.Experts) error {
	lists := [][]backend.Matrix{e.Gate, e.Up, e.Down}
	if s := e.Shared; s != nil {
		lists = append(lists, []backend.Matrix{s.Gate, s.Up, s.Down, s.Weight})
	}
	for _, list := range lists {
		for _, m := range list {
			if _, ok := m.(*matrix); !ok {
				return fmt.Errorf("cpu: %v: a weight of another backend", backend.OpExpertsAdd)
			}
		}
	}
	return nil
}

// expertsAdd runs each expert once, over all rows that chose it: its weights are read
// once a forward. Products and sums are in the order that a row alone has.
func (f *forward) expertsAdd(d, h, routing *buffer, o *backend.Op) {
	m, shared, inner := &f.mixture, o.Experts.Shared, o.Experts.Gate[0].Out()
	m.sort(routing, f.rows, len(o.Experts.Gate))
	m.collect(o.Experts)
	if shared != nil && f.rows <= listedRows && shared.Gate.Out() == inner {
		m.list(shared, f.rows)
		shared = nil
	}
	if m.takesRows(inner) {
		f.expertsOfRows(h, inner)
	} else {
		m.gather.sized(len(m.rows), h.width)
		m.mlp.sized(len(m.rows), inner)
		f.expertsGated(h)
	}
	f.expertsDown(d)
	if shared != nil {
		f.sharedAdd(d, h, shared)
	}
}

// listedRows is up to how many rows a shared expert is listed behind the others, which
// saves loops: an item packs all rows of an expert, which of many rows is too much for one.
const listedRows = 64

// sort makes the pairs of a routing, by expert and of one expert by row.
func (m *mixture) sort(routing *buffer, rows, experts int) {
	k := routing.width / 2
	first := kernels.Grown(&m.first, experts+1)
	m.first = first
	clear(first)
	for r := range rows {
		for _, e := range routing.data[r*2*k : r*2*k+k] {
			first[int(e)+1]++
		}
	}
	for e := range experts {
		first[e+1] += first[e]
	}
	m.rows, m.weights = kernels.Grown(&m.rows, rows*k), kernels.Grown(&m.weights, rows*k)
	for r := range rows {
		row := routing.data[r*2*k : (r+1)*2*k]
		for i, e := range row[:k] {
			at := first[int(e)]
			first[int(e)]++
			m.rows[at], m.weights[at] = r, row[k+i]
		}
	}
	copy(first[1:], first[:experts]) // each has moved to the next one's beginning
	first[0] = 0
}

// collect lists the experts that have rows.
func (m *mixture) collect(e *backend.Experts) {
	m.active = m.all[:0]
	for i := range e.Gate {
		if rows := m.first[i+1] - m.first[i]; rows > 0 {
			m.activate(e.Gate[i], e.Up[i], e.Down[i], m.first[i], rows)
		}
	}
}

// activate lists one more expert, in the memory of one that was listed before.
func (m *mixture) activate(gate, up, down backend.Matrix, first, rows int) *active {
	n := len(m.active)
	if n == len(m.all) {
		m.all = append(m.all, active{})
	}
	m.active = m.all[:n+1]
	x := &m.active[n]
	x.gate, x.up, x.down = gate.(*matrix), up.(*matrix), down.(*matrix)
	x.weight, x.first, x.rows = nil, first, rows
	return x
}

// list puts the expert that every row has behind those that were chosen: so it is the last
// of a row's sum, as where it is run by itself.
func (m *mixture) list(s *backend.SharedExpert, rows int) {
	m.activate(s.Gate, s.Up, s.Down, len(m.rows), rows).weight = s.Weight.(*matrix)
	for r := range rows {
		m.rows, m.weights = append(m.rows, r), append(m.weights, 0)
	}
}

// gateRows makes the weights of the rows of the shared expert that is listed: all there are.
func (m *mixture) gateRows(s *scratch, x *active, h *buffer) {
	m.shared.gated.Prepare(x.weight.exact, x.rows, h.width)
	x.weight.exact.Pack(&m.shared.gated, h.data, 0, x.rows)
	weights := m.weights[x.first : x.first+x.rows]
	x.weight.exact.Project(weights, 1, &m.shared.gated, &x.weight.Weight, 0, 1, &s.kernels)
	for r := range weights {
		weights[r] = sigmoid(weights[r])
	}
}

// sigmoid is 1/(1+e^-x).
func sigmoid(x float32) float32 { return float32(1 / (1 + math.Exp(-float64(x)))) }

// pack lays the pairs of an expert out for a projector, in p.
func (x *active) pack(p *kernels.Packed, proj kernels.Projector, src *buffer) {
	p.Prepare(proj, x.rows, src.width)
	proj.Pack(p, src.data[x.first*src.width:(x.first+x.rows)*src.width], 0, x.rows)
}

// expertsGated makes silu(gate·x) ⊙ (up·x) of all pairs.
func (f *forward) expertsGated(h *buffer) {
	m, width := &f.mixture, h.width
	f.activeEach(width, func(s *scratch, x *active) {
		for i, r := range m.rows[x.first : x.first+x.rows] {
			copy(m.gather.data[(x.first+i)*width:(x.first+i+1)*width], h.data[r*width:(r+1)*width])
		}
		if x.weight != nil {
			m.gateRows(s, x, h)
		}
		x.pack(&x.in, x.gate.proj, &m.gather)
		if x.up.proj.Name() != x.gate.proj.Name() {
			x.pack(&x.apart, x.up.proj, &m.gather)
		}
	})
	liked := func(x *active) int { return x.gate.proj.Chunk(x.rows, width) }
	most := f.mostOf(m.mlp.width, liked)
	f.chunksEach(m.mlp.width, 0, func(x *active) int { return min(liked(x), most) }, func(s *scratch, x *active, o0, o1 int, next *active, from int) {
		n := o1 - o0
		s.kernels.After, s.kernels.AfterFrom = &x.up.Weight, o0
		y, z := kernels.Grown(&s.out, x.rows*n), kernels.Grown(&s.up, x.rows*n)
		x.gate.proj.Project(y, n, &x.in, &x.gate.Weight, o0, o1, &s.kernels)
		in := &x.in
		if x.up.proj.Name() != x.gate.proj.Name() {
			in = &x.apart
		}
		if s.kernels.After = nil; next != nil {
			s.kernels.After, s.kernels.AfterFrom = &next.gate.Weight, from
		}
		x.up.proj.Project(z, n, in, &x.up.Weight, o0, o1, &s.kernels)
		s.kernels.After = nil
		for r := range x.rows {
			at := (x.first + r) * m.mlp.width
			f.b.k.SiluMul(m.mlp.data[at+o0:at+o1], y[r*n:(r+1)*n], z[r*n:(r+1)*n])
		}
	})
	f.activeEach(m.mlp.width, func(_ *scratch, x *active) { x.pack(&x.inner, x.down.proj, &m.mlp) })
}

// takesRows reports whether all experts take their rows from one packing of all, and what
// gate and up make of them is packed for down as it is made.
func (m *mixture) takesRows(inner int) bool {
	if inner%kernels.PackedColumns != 0 || len(m.active) == 0 {
		return false
	}
	name := m.active[0].gate.proj.Name()
	for i := range m.active {
		x := &m.active[i]
		gate, ok := x.gate.proj.(kernels.RowProjector)
		if !ok || x.gate.proj.Name() != name || x.up.proj.Name() != name || !gate.TakesRows(&x.gate.Weight) || !gate.TakesRows(&x.up.Weight) {
			return false
		}
		if _, ok := x.down.proj.(kernels.RowProjector); !ok || x.gate.proj.Chunk(x.rows, x.gate.In())%kernels.PackedColumns != 0 {
			return false
		}
	}
	return true
}

// expertsOfRows is expertsGated where experts take their rows from one packing of all: no
// row is copied, and one loop makes all that down needs.
func (f *forward) expertsOfRows(h *buffer, inner int) {
	m := &f.mixture
	f.packInto(&m.in, m.active[0].gate.proj, h.data, f.rows, h.width)
	m.mlp.width = inner
	for i := range m.active {
		x := &m.active[i]
		x.inner.Prepare(x.down.proj, x.rows, inner)
	}
	liked := func(x *active) int { return x.gate.proj.Chunk(x.rows, h.width) }
	most := f.mostOf(inner, liked)
	before := 0
	shared := &m.active[len(m.active)-1]
	if shared.weight != nil {
		before = 1
	}
	f.chunksEach(inner, before, func(x *active) int { return min(liked(x), most) }, func(s *scratch, x *active, o0, o1 int, next *active, from int) {
		if x == nil {
			m.gateRows(s, shared, h)
			return
		}
		n, list := o1-o0, m.rows[x.first:x.first+x.rows]
		s.kernels.After, s.kernels.AfterFrom = &x.up.Weight, o0
		y, z := kernels.Grown(&s.out, x.rows*n), kernels.Grown(&s.up, x.rows*n)
		x.gate.proj.(kernels.RowProjector).ProjectRows(y, n, &m.in, list, &x.gate.Weight, o0, o1, &s.kernels)
		if s.kernels.After = nil; next != nil {
			s.kernels.After, s.kernels.AfterFrom = &next.gate.Weight, from
		}
		x.up.proj.(kernels.RowProjector).ProjectRows(z, n, &m.in, list, &x.up.Weight, o0, o1, &s.kernels)
		s.kernels.After = nil
		f.b.k.SiluMul(y, y, z)
		x.down.proj.(kernels.RowProjector).PackColumns(&x.inner, y, o0, n)
	})
}

// expertsDown adds the weighted outputs of the experts to d: each work item has some
// columns and goes through the experts in order, so that each sum has one.
func (f *forward) expertsDown(d *buffer) {
	m := &f.mixture
	chunk := d.width
	for i := range m.active {
		x := &m.active[i]
		chunk = min(chunk, x.down.proj.Chunk(x.rows, m.mlp.width))
	}
	chunk = spread(chunk, f.b.pool.workers, []int{d.width})
	f.b.pool.run((d.width+chunk-1)/chunk, func(worker, i int) {
		s := &f.b.scratch[worker]
		o0, o1 := i*chunk, min((i+1)*chunk, d.width)
		n := o1 - o0
		for i := range m.active {
			x := &m.active[i]
			y := kernels.Grown(&s.out, x.rows*n)
			switch next := o0 + chunk*f.b.pool.apart(); {
			case i+1 < len(m.active):
				s.kernels.After, s.kernels.AfterFrom = &m.active[i+1].down.Weight, o0
			case next < d.width:
				s.kernels.After, s.kernels.AfterFrom = &m.active[0].down.Weight, next
			default:
				s.kernels.After = nil
			}
			x.down.proj.Project(y, n, &x.inner, &x.down.Weight, o0, o1, &s.kernels)
			f.b.k.AddTo(d.data[o0:], d.width, m.rows[x.first:x.first+x.rows], y, n, m.weights[x.first:x.first+x.rows], x.rows)
		}
		s.kernels.After = nil
	})
}

// activeEach runs body for each expert that has rows.
func (f *forward) activeEach(width int, body func(s *scratch, x *active)) {
	m := &f.mixture
	f.worth(len(m.rows)*width, len(m.active), func(worker, i int) { body(&f.b.scratch[worker], &m.active[i]) })
}

// mostOf is how many of an expert's outputs an item has at most, so that all workers have
// some: of one row's eight experts of 768 that is fewer than each likes by itself.
func (f *forward) mostOf(width int, liked func(x *active) int) int {
	m := &f.mixture
	least, largest := width, 0
	outs := kernels.Grown(&m.outs, len(m.active))
	for i := range m.active {
		n := liked(&m.active[i])
		least, largest, outs[i] = min(least, n), max(largest, n), width
	}
	if c := spread(least, f.b.pool.workers, outs); c < least {
		return c
	}
	return largest
}

// chunksEach runs body for the columns of each expert that has rows, in chunks. It is told
// what the worker has next, as far as one can tell, and from which column on; nil: nothing.
// So many items are added behind them, which have no expert.
func (f *forward) chunksEach(width, more int, chunk func(x *active) int, body func(s *scratch, x *active, o0, o1 int, next *active, from int)) {
	m := &f.mixture
	items := 0
	for i := range m.active {
		n := chunk(&m.active[i])
		items += (width + n - 1) / n
	}
	find := func(i int) (x *active, o0, o1 int) {
		for j := range m.active {
			x := &m.active[j]
			c := chunk(x)
			n := (width + c - 1) / c
			if i < n {
				return x, i * c, min((i+1)*c, width)
			}
			i -= n
		}
		return nil, 0, 0
	}
	f.b.pool.run(items+more, func(worker, i int) {
		x, o0, o1 := find(i)
		next, from, _ := find(i + f.b.pool.apart())
		body(&f.b.scratch[worker], x, o0, o1, next, from)
	})
}

// sharedAdd adds the expert that every row has.
func (f *forward) sharedAdd(d, h *buffer, s *backend.SharedExpert) {
	m := &f.mixture
	gate := s.Weight.(*matrix)
	weight := matrix{Weight: gate.Weight, proj: gate.exact}
	m.shared.gate.sized(f.rows, 1)
	f.dispatch(h.data, f.rows, []target{{w: &weight, dst: &m.shared.gate}})
	m.shared.mlp.sized(f.rows, s.Gate.Out())
	f.gatedProject(&m.shared.mlp, h, backend.Linear{Weight: s.Gate}, backend.Linear{Weight: s.Up})
	m.gather.sized(f.rows, d.width)
	f.dispatch(m.shared.mlp.data, f.rows, []target{{w: s.Down.(*matrix), dst: &m.gather}})
	f.rowsEach(d.width, func(_, r int) {
		y := m.gather.data[r*d.width : (r+1)*d.width]
		f.b.k.Scale(y, sigmoid(m.shared.gate.data[r]))
		f.b.k.Add(d.data[r*d.width:(r+1)*d.width], y)
	})
}
