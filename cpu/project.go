package cpu

import "windrow/backend"

// Indices into a worker's scratch floats.
const (
	scratchProject = iota // a projector's own
	scratchOut            // a chunk of outputs [rows, chunk]
	scratchUp             // the up half of a gated chunk
	scratchKeys           // attention: a tile of keys, values
	scratchQueries        // attention: queries, accumulators
	scratchScores         // attention: scores and running maxima
	scratchQuant          // a panel of widened weights
)

// packFor lays out x for the projector; the packed form is kept until the
// next call.
func (p *pass) packFor(proj projector, x []float32, rows, in int) *packed {
	pk := &p.b.packed
	f, h := proj.packSize(rows, in)
	if cap(pk.f32) < f {
		pk.f32 = make([]float32, f)
	}
	if cap(pk.b16) < h {
		pk.b16 = make([]uint16, h)
	}
	pk.rows, pk.in, pk.f32, pk.b16 = rows, in, pk.f32[:f], pk.b16[:h]
	block := proj.packRows()
	if n := (rows + block - 1) / block; n > 1 && rows*in >= 16384 {
		p.b.pool.run(n, func(_, i int) { proj.pack(pk, x, i*block, min((i+1)*block, rows)) })
	} else {
		proj.pack(pk, x, 0, rows)
	}
	return pk
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
func (p *pass) dispatch(x []float32, rows int, targets []target) {
	for len(targets) > 0 {
		n := 1
		for n < len(targets) && targets[n].w.proj.name() == targets[0].w.proj.name() && targets[n].w.in == targets[0].w.in {
			n++
		}
		p.dispatchSame(x, rows, targets[:n])
		targets = targets[n:]
	}
}

func (p *pass) dispatchSame(x []float32, rows int, targets []target) {
	proj, in := targets[0].w.proj, targets[0].w.in
	if p.accelerates(proj) {
		p.dispatchBLAS(x, targets)
		return
	}
	pk := p.packFor(proj, x, rows, in)
	chunk := proj.chunk(rows, in)
	items := 0
	for _, t := range targets {
		items += (t.w.out + chunk - 1) / chunk
	}
	p.b.pool.run(items, func(worker, i int) {
		for _, t := range targets {
			n := (t.w.out + chunk - 1) / chunk
			if i >= n {
				i -= n
				continue
			}
			p.chunkInto(t, pk, worker, i*chunk, min((i+1)*chunk, t.w.out))
			return
		}
	})
}

// chunkInto computes outputs [o0, o1) of one target.
func (p *pass) chunkInto(t target, pk *packed, worker, o0, o1 int) {
	s := &p.b.scratch[worker]
	width := t.dst.width
	if !t.add {
		t.w.proj.project(t.dst.data[o0:], width, pk, t.w, o0, o1, s)
		if t.bias != nil {
			for r := range pk.rows {
				p.b.k.add(t.dst.data[r*width+o0:r*width+o1], t.bias[o0:o1])
			}
		}
		return
	}
	n := o1 - o0
	y := s.floats(scratchOut, pk.rows*n)
	t.w.proj.project(y, n, pk, t.w, o0, o1, s)
	for r := range pk.rows {
		row := y[r*n : (r+1)*n]
		if t.bias != nil {
			p.b.k.add(row, t.bias[o0:o1])
		}
		p.b.k.add(t.dst.data[r*width+o0:r*width+o1], row)
	}
}

// bias returns the bias of a projection, nil where it has none.
func bias(l backend.Linear) vector {
	v, _ := l.Bias.(vector)
	return v
}

func (p *pass) checkLinear(op string, dst *buffer, x *buffer, l backend.Linear) bool {
	w, ok := l.Weight.(*matrix)
	if !ok || w.in != x.width || w.out != dst.width {
		p.fail("%s: weight does not take width %d to %d", op, x.width, dst.width)
		return false
	}
	if b := bias(l); b != nil && len(b) != w.out {
		p.fail("%s %s: bias of %d, want %d", op, w.label, len(b), w.out)
		return false
	}
	return true
}

// Project multiplies x by each weight.
func (p *pass) Project(dst []backend.Buffer, x backend.Buffer, w []backend.Linear) {
	xb := x.(*buffer)
	targets := make([]target, len(w))
	for i, l := range w {
		d := dst[i].(*buffer)
		if !p.checkLinear("project", d, xb, l) {
			return
		}
		targets[i] = target{w: l.Weight.(*matrix), dst: d, bias: bias(l)}
	}
	p.dispatch(xb.data, p.rows, targets)
}

// ProjectAdd multiplies into the residual.
func (p *pass) ProjectAdd(dst, x backend.Buffer, w backend.Linear) {
	d, xb := dst.(*buffer), x.(*buffer)
	if !p.checkLinear("project", d, xb, w) {
		return
	}
	p.dispatch(xb.data, p.rows, []target{{w: w.Weight.(*matrix), dst: d, bias: bias(w), add: true}})
}

// GatedProject multiplies by gate and up, and joins the two while they are in
// cache.
func (p *pass) GatedProject(dst, x backend.Buffer, gate, up backend.Linear) {
	d, xb := dst.(*buffer), x.(*buffer)
	if !p.checkLinear("gate", d, xb, gate) || !p.checkLinear("up", d, xb, up) {
		return
	}
	g, u := gate.Weight.(*matrix), up.Weight.(*matrix)
	if g.proj.name() != u.proj.name() || gate.Bias != nil || up.Bias != nil {
		p.gatedApart(d, xb, gate, up)
		return
	}
	if p.accelerates(g.proj) {
		p.gatedBLAS(d, xb, g, u)
		return
	}
	pk := p.packFor(g.proj, xb.data, p.rows, g.in)
	chunk := g.proj.chunk(p.rows, g.in)
	p.b.pool.run((g.out+chunk-1)/chunk, func(worker, i int) {
		o0, o1 := i*chunk, min((i+1)*chunk, g.out)
		n := o1 - o0
		s := &p.b.scratch[worker]
		y := s.floats(scratchOut, p.rows*n)
		z := s.floats(scratchUp, p.rows*n)
		g.proj.project(y, n, pk, g, o0, o1, s)
		u.proj.project(z, n, pk, u, o0, o1, s)
		for r := range p.rows {
			p.b.k.siluMul(d.data[r*d.width+o0:r*d.width+o1], y[r*n:(r+1)*n], z[r*n:(r+1)*n])
		}
	})
}

// gatedApart is GatedProject where gate and up have biases or run in different
// arithmetics.
func (p *pass) gatedApart(d, x *buffer, gate, up backend.Linear) {
	g, u := p.Buffer(d.width), p.Buffer(d.width)
	p.Project([]backend.Buffer{g, u}, x, []backend.Linear{gate, up})
	gd, ud := g.(*buffer), u.(*buffer)
	p.rowsEach(d.width, func(_, r int) {
		a, b := r*d.width, (r+1)*d.width
		p.b.k.siluMul(d.data[a:b], gd.data[a:b], ud.data[a:b])
	})
}
