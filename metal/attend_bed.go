package metal

import (
	"math"
	"math/rand/v2"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/quant"
)

// attendCase is one span of the attention self-tests, of a rotating layout
// where window is not 0.
type attendCase struct {
	context, rows       int // indices with the span's rows, which are the last
	dim, kvHeads, group int
	slots, window, keep int
	gated               bool    // behind each query lies a gate
	spread              float64 // of the scores, roughly their standard deviation; 0: 2
}

// attendTypes are the element types of keys and values.
var attendTypes = []kvView{
	{dtype: backend.KVF32, k: view{elem: elemF32}},
	{dtype: backend.KVF16, k: view{elem: elemF16}},
	{dtype: backend.KVBF16, k: view{elem: elemBF16}},
	{dtype: backend.KVInt8, k: view{elem: elemBytes}},
}

// attendSpan is a case with its numbers, rounded to the types that they are
// stored in.
type attendSpan struct {
	attendCase
	kv           kvView // its types and its layout
	queries      elem
	q            []float32   // [rows, heads · qStride]
	keys, values [][]float32 // of each index, [kv heads · dim], as stored
	want         []float64   // attention of q, [rows, heads · dim]
}

func (c attendCase) heads() int { return c.kvHeads * c.group }
func (c attendCase) width() int { return c.heads() * c.dim }

func (c attendCase) scale() float32 { return float32(1 / math.Sqrt(float64(c.dim))) }

// newAttendSpan draws a case's numbers, and works out its attention with the
// rounding of the kernels' operands.
func newAttendSpan(r *rand.Rand, c attendCase, queries elem, kv kvView) *attendSpan {
	if c.slots == 0 {
		c.slots = c.context + 3
	}
	kv.slots, kv.window, kv.keep = c.slots, c.window, c.keep
	s := &attendSpan{attendCase: c, kv: kv, queries: queries, q: vectors.Normals(r, c.rows*c.heads()*qStride(c.dim, c.gated))}
	spread := float32(2)
	if c.spread != 0 {
		spread = float32(c.spread)
	}
	for i := range s.q {
		s.q[i] *= spread
	}
	s.q = rounded(s.q, queries)
	for range c.context {
		s.keys = append(s.keys, s.stored(vectors.Normals(r, c.kvHeads*c.dim)))
		s.values = append(s.values, s.stored(vectors.Normals(r, c.kvHeads*c.dim)))
	}
	s.want = make([]float64, c.rows*c.width())
	keys, values := s.operands(s.keys), s.operands(s.values)
	for row := range c.rows {
		for h := range c.heads() {
			at, from := row*c.width()+h*c.dim, (row*c.heads()+h)*qStride(c.dim, c.gated)
			s.reference(s.want[at:at+c.dim], s.q[from:from+c.dim], keys, values, c.context-c.rows+row, h/c.group*c.dim)
			for i := range c.dim {
				if c.gated {
					s.want[at+i] /= 1 + math.Exp(-float64(s.q[from+c.dim+i]))
				}
			}
		}
	}
	return s
}

// operands is x in the element type of the matrices.
func (s *attendSpan) operands(x [][]float32) [][]float32 {
	y := make([][]float32, len(x))
	for i := range x {
		y[i] = rounded(x[i], s.operand())
	}
	return y
}

// operand is the element type of the matrices that the case's kernel multiplies.
func (s *attendSpan) operand() elem {
	q := view{elem: s.queries}
	tuned, _ := attendTuned(q, s.kv, s.dim)
	return attendOperand(q, tuned)
}

// stored is x, one vector a KV head, as the storage gives it back.
func (s *attendSpan) stored(x []float32) []float32 {
	if s.kv.dtype != backend.KVInt8 {
		return rounded(x, s.kv.k.elem)
	}
	y := make([]float32, 0, len(x))
	for h := range s.kvHeads {
		codes, scales := int8Vector(x[h*s.dim : (h+1)*s.dim])
		for i, code := range codes {
			y = append(y, float32(int8(code))*scales[i/backend.KVGroup])
		}
	}
	return y
}

// int8Vector is the vector of one head in int8.
func int8Vector(x []float32) (codes []byte, scales []float32) {
	var q [backend.KVGroup]int8
	for from := 0; from < len(x); from += backend.KVGroup {
		group := x[from:min(from+backend.KVGroup, len(x))]
		scale := quant.Int8Scale(group)
		quant.Int8(q[:], group, scale)
		for i := range group {
			codes = append(codes, byte(q[i]))
		}
		scales = append(scales, scale)
	}
	return codes, scales
}

// reference is attention of one query in float64; a head's elements are those
// from first on.
func (s *attendSpan) reference(out []float64, q []float32, keys, values [][]float32, index, first int) {
	layout := backend.Layout{Slots: s.slots, Window: s.window, Keep: s.keep}
	seen := func(i int) bool { return i < s.keep || i >= layout.Visible(index) }
	scores, most := make([]float64, index+1), math.Inf(-1)
	for i := range scores {
		if seen(i) {
			for j, v := range keys[i][first : first+s.dim] {
				scores[i] += float64(v) * float64(q[j]) * float64(s.scale())
			}
			most = max(most, scores[i])
		}
	}
	total := 0.0
	for i, score := range scores {
		if seen(i) {
			p := math.Exp(score - most)
			total += p
			for j, v := range values[i][first : first+s.dim] {
				out[j] += p * float64(v)
			}
		}
	}
	for j := range out {
		out[j] /= total
	}
}

// store puts the case's keys and values in device memory, in pages of either order.
func (s *attendSpan) store(b *bed, slots int, ascend bool) kvView {
	layout := backend.KeysLayout(2, s.kvHeads, s.dim, s.kv.dtype, s.slots)
	layout.Window, layout.Keep = s.window, s.keep
	pages := b.pages(layout, slots, ascend)
	for i := range s.keys {
		for h := range s.kvHeads {
			from, to := h*s.dim, (h+1)*s.dim
			pages.put(pages.k, pages.kScales, h, layout.Slot(i), s.keys[i][from:to])
			pages.put(pages.v, pages.vScales, h, layout.Slot(i), s.values[i][from:to])
		}
	}
	return pages.kvView
}
