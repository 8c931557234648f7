package cpu

import "windrow/cpu/kernels"

// blasPanelFloats bounds a panel of widened weights. Two of them, 8 MiB, lie in
// the 12 MiB of L2 that a cluster of an M1 has, by Apple's figures, and a panel
// times 512 rows is a billion multiply-adds or half of that, so that calls and
// dispatches do not count. Not measured on hardware.
const blasPanelFloats = 1 << 20

// widenRows is how many weight rows a work item widens.
const widenRows = 16

// blasPanel is one call of the BLAS: outputs [o, o+n) of a weight, into y.
type blasPanel struct {
	w     *matrix
	o, n  int
	y     []float32
	ldy   int
	after func(row int) // what is left to do with a row of y; nil: nothing
}

// accelerates reports whether the BLAS multiplies with weights of that projector
// in this pass: those that meet activations in f32. Nothing but the rows of the
// pass may count here, as Features says.
func (f *forward) accelerates(proj kernels.Projector) bool {
	b := f.b
	if b.blas.product == nil || f.rows <= b.blas.rows {
		return false
	}
	return b.k.IsExact(proj)
}

// dispatchBLAS is dispatchSame by the BLAS.
func (f *forward) dispatchBLAS(x []float32, targets []target) {
	var panels []blasPanel
	for _, t := range targets {
		outs := blasOuts(t.w)
		var sums []float32
		if t.add {
			sums = f.blasOut(0, outs)
		}
		for o := 0; o < t.w.Out(); o += outs {
			q := blasPanel{w: t.w, o: o, n: min(outs, t.w.Out()-o)}
			end := o + q.n
			switch {
			case t.add:
				q.y, q.ldy = sums, q.n
				q.after = func(r int) {
					row := sums[r*q.n : (r+1)*q.n]
					if t.bias != nil {
						f.b.k.Add(row, t.bias[o:end])
					}
					f.b.k.Add(t.dst.data[r*t.dst.width+o:r*t.dst.width+end], row)
				}
			case t.bias != nil:
				q.after = func(r int) {
					f.b.k.Add(t.dst.data[r*t.dst.width+o:r*t.dst.width+end], t.bias[o:end])
				}
				fallthrough
			default:
				q.y, q.ldy = t.dst.data[o:], t.dst.width
			}
			panels = append(panels, q)
		}
	}
	f.multiplyPanels(x, panels)
}

// gatedBLAS is GatedProject by the BLAS: panels of gate and up alternate, so
// that the two are joined while they are in cache.
func (f *forward) gatedBLAS(d, x *buffer, gate, up *matrix) {
	outs := blasOuts(gate)
	y, z := f.blasOut(0, outs), f.blasOut(1, outs)
	var panels []blasPanel
	for o := 0; o < gate.Out(); o += outs {
		n := min(outs, gate.Out()-o)
		panels = append(panels,
			blasPanel{w: gate, o: o, n: n, y: y, ldy: n},
			blasPanel{w: up, o: o, n: n, y: z, ldy: n, after: func(r int) {
				f.b.k.SiluMul(d.data[r*d.width+o:r*d.width+o+n], y[r*n:(r+1)*n], z[r*n:(r+1)*n])
			}})
	}
	f.multiplyPanels(x.data, panels)
}

// blasOuts is how many outputs of w a panel has.
func blasOuts(w *matrix) int {
	return min(max(blasPanelFloats/w.In()&^15, 16), w.Out())
}

// blasOut is panel i of outputs, of the pass's rows.
func (f *forward) blasOut(i, outs int) []float32 {
	return kernels.Grown(&f.b.blas.out[i], f.rows*outs)
}

// multiplyPanels multiplies x [rows, in] by each panel in turn. One call of the
// BLAS is under way at a time, since it has threads and a matrix unit of its
// own; meanwhile the other workers widen the next panel.
func (f *forward) multiplyPanels(x []float32, panels []blasPanel) {
	b, in := f.b, panels[0].w.In()
	var wide [2][]float32
	for i, q := range panels {
		if q.w.Floats(q.o, q.n) == nil {
			wide[i%2] = kernels.Grown(&b.blas.wide[i%2], max(q.n*in, len(wide[i%2])))
		}
	}
	items := func(i int) int {
		if i >= len(panels) || panels[i].w.Floats(panels[i].o, panels[i].n) != nil {
			return 0
		}
		return (panels[i].n + widenRows - 1) / widenRows
	}
	widen := func(i, item int) {
		q := panels[i]
		for r := item * widenRows; r < min((item+1)*widenRows, q.n); r++ {
			b.k.WidenRow(wide[i%2][r*in:(r+1)*in], &q.w.Weight, q.o+r)
		}
	}
	b.pool.run(items(0), func(_, item int) { widen(0, item) })
	for i, q := range panels {
		weights := q.w.Floats(q.o, q.n)
		if weights == nil {
			weights = wide[i%2][:q.n*in]
		}
		b.pool.run(1+items(i+1), func(_, item int) {
			if item > 0 {
				widen(i+1, item-1)
				return
			}
			b.blas.product(f.rows, q.n, in, x, in, weights, in, q.y, q.ldy)
		})
		if q.after != nil {
			f.rowsEach(q.n, func(_, r int) { q.after(r) })
		}
	}
}
