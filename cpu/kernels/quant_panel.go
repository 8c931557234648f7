package kernels

import (
	"unsafe"

	"windrow/backend"
	"windrow/quant"
)

// panelProjector multiplies quantised weights with activations in f32: it
// widens a panel of rows, bit for bit as quant.Row does, and gives them to the
// table's exact arithmetic as f32 weights. So it is exact where that is, and
// batch invariant as that is; it packs as that does, and shares its name, so
// that projections of both kinds share a dispatch.
type panelProjector struct {
	Projector
	// row widens row o of t.
	row func(dst []float32, t *backend.Tensor, o int)
}

// panelBytes bounds a widened panel: with many rows it stays in an L2 cache of
// 1 MiB beside the activations, with few in half of 64 KiB.
const panelBytes, panelBytesFew = 512 << 10, 32 << 10

// newPanelProjector is the exact arithmetic of k for quantised weights.
func newPanelProjector(k *Table) Projector {
	if _, ok := k.Exact.(genericProjector); ok {
		return genericProjector{} // widens row by row itself
	}
	p := panelProjector{Projector: k.Exact, row: k.QuantRow}
	if p.row == nil {
		p.row = quant.Row
	}
	return p
}

func (p panelProjector) Project(y []float32, ldy int, pk *Packed, w *Weight, o0, o1 int, s *Scratch) {
	limit := panelBytes
	if pk.Rows <= 6 {
		limit = panelBytesFew
	}
	outs := min(max(limit/4/w.in&^3, 4), 64, o1-o0)
	wide := Grown(&s.quant, outs*w.in)
	s.panel = Weight{dt: backend.F32, in: w.in}
	for o := o0; o < o1; o += outs {
		n := min(outs, o1-o)
		for i := range n {
			p.row(wide[i*w.in:(i+1)*w.in], &w.tensor, o+i)
		}
		s.panel.out = n
		s.panel.data = unsafe.Slice((*byte)(unsafe.Pointer(&wide[0])), 4*n*w.in)
		p.Projector.Project(y[o-o0:], ldy, pk, &s.panel, 0, n, s)
	}
}
