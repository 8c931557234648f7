package metal

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/quant"
)

func init() {
	registerSelfTest("rotate and store", checkRotateStore)
}

// rotateCase is a span: of a rotating layout where window is not 0.
type rotateCase struct {
	dim, heads, kvHeads       int
	pairs                     int // 0: half of dim
	norm, gated               bool
	base, rows                int
	slots, window, keep, wrap int // wrap: the first row whose slot lies before that of its predecessor; 0: none
}

var rotateCases = []rotateCase{
	{dim: 2, heads: 3, kvHeads: 1, rows: 1, slots: 9},
	{dim: 6, heads: 2, kvHeads: 2, norm: true, base: 3, rows: 5, slots: 20},
	{dim: 64, heads: 4, kvHeads: 2, norm: true, base: 43, rows: 10, slots: 50, window: 40, keep: 3, wrap: 7},
	{dim: 64, heads: 1, kvHeads: 1, base: 1000, rows: 2, slots: 50, window: 40, keep: 3},
	{dim: 64, heads: 1, kvHeads: 1, norm: true, base: 1, rows: 4, slots: 50, window: 40, keep: 3},
	{dim: 80, heads: 3, kvHeads: 1, norm: true, base: 5, rows: 9, slots: 100},
	{dim: 6, heads: 2, kvHeads: 2, norm: true, base: 60, rows: 9, slots: 200},
	{dim: 66, heads: 1, kvHeads: 2, base: 140, rows: 14, slots: 150, window: 130, keep: 3, wrap: 10},
	{dim: 128, heads: 4, kvHeads: 2, norm: true, base: 2, rows: 3, slots: 7},
	{dim: 130, heads: 1, kvHeads: 1, base: 4, rows: 3, slots: 7},
	{dim: 64, heads: 2, kvHeads: 1, pairs: 8, norm: true, base: 2, rows: 5, slots: 8},
	{dim: 200, heads: 1, kvHeads: 2, pairs: 33, norm: true, base: 1, rows: 3, slots: 5},
	{dim: 66, heads: 1, kvHeads: 1, pairs: 32, rows: 2, slots: 2},
	{dim: 64, heads: 3, kvHeads: 1, pairs: 8, norm: true, gated: true, base: 1, rows: 3, slots: 5},
	{dim: 6, heads: 2, kvHeads: 2, gated: true, rows: 2, slots: 5},
	{dim: 362, heads: 1, kvHeads: 1, norm: true, base: 1, rows: 1, slots: 2},
}

func checkRotateStore(d *device) error {
	r := rand.New(rand.NewPCG(9, 1))
	for _, c := range rotateCases {
		t := c.data(r)
		for i, kv := range rotateTypes {
			if err := withBed(d, func(b *bed) error { return t.check(b, []elem{elemF32, elemBF16}[i%2], kv) }); err != nil {
				return fmt.Errorf("%+v, kv %v: %w", c, kv.name(), err)
			}
		}
	}
	return nil
}

// rotateTypes are the element types of keys and values, each with both
// element types of rotated queries, by turns.
var rotateTypes = []kvView{
	{dtype: backend.KVF32, k: view{elem: elemF32}}, {dtype: backend.KVF32, k: view{elem: elemF32}},
	{dtype: backend.KVF16, k: view{elem: elemF16}}, {dtype: backend.KVF16, k: view{elem: elemF16}},
	{dtype: backend.KVBF16, k: view{elem: elemBF16}}, {dtype: backend.KVBF16, k: view{elem: elemBF16}},
	{dtype: backend.KVInt8, k: view{elem: elemBytes}}, {dtype: backend.KVInt8, k: view{elem: elemBytes}},
}

// rotateData is a case with its numbers.
type rotateData struct {
	rotateCase
	q, k, v, qNorm, kNorm []float32
	positions             []uint32  // of each row
	angles                []float32 // [positions, 2·pairs]; of those that no row has NaN
}

const rotateEps = 1e-6

func (c rotateCase) data(r *rand.Rand) rotateData {
	t := rotateData{
		rotateCase: c,
		q:          vectors.Normals(r, c.rows*c.heads*qStride(c.dim, c.gated)), k: vectors.Normals(r, c.rows*c.kvHeads*c.dim), v: vectors.Normals(r, c.rows*c.kvHeads*c.dim),
	}
	clear(t.k[:c.dim]) // groups of zeros
	t.v[0] = -2e5      // more than f16 holds
	clear(t.v[len(t.v)-c.dim:])
	if c.pairs == 0 {
		t.pairs = c.dim / 2
	}
	places := r.Perm(2 * c.rows)
	t.angles = make([]float32, len(places)*2*t.pairs)
	for i := range t.angles {
		t.angles[i] = float32(math.NaN())
	}
	for row := range c.rows {
		t.positions = append(t.positions, uint32(places[row]))
		for i := range t.pairs {
			sin, cos := math.Sincos(3 * r.NormFloat64())
			at := places[row]*2*t.pairs + i
			t.angles[at], t.angles[at+t.pairs] = float32(cos), float32(sin)
		}
	}
	if c.norm {
		t.qNorm, t.kNorm = vectors.Normals(r, c.dim), vectors.Normals(r, c.dim)
	}
	return t
}

// rotated is head h of row's heads, which lie stride apart, normed and rotated in float64.
func (t *rotateData) rotated(x, norm []float32, row, heads, h, stride int) []float64 {
	from := (row*heads + h) * stride
	y := make([]float64, t.dim)
	if norm != nil {
		y = normed(x[from:from+t.dim], norm, rotateEps)
	} else {
		for i := range y {
			y[i] = float64(x[from+i])
		}
	}
	angles := t.angles[int(t.positions[row])*2*t.pairs:]
	for i := range t.pairs {
		a, b, c, s := y[i], y[i+t.pairs], float64(angles[i]), float64(angles[i+t.pairs])
		y[i], y[i+t.pairs] = a*c-b*s, b*c+a*s
	}
	return y
}

// check runs the case in one element type of rotated queries and one of keys
// and values. All storage is compared with what is to be in it.
func (t *rotateData) check(b *bed, queries elem, kv kvView) error {
	layout := backend.KeysLayout(2, t.kvHeads, t.dim, kv.dtype, t.slots)
	layout.Window, layout.Keep = t.window, t.keep
	pages := b.pages(layout, min(t.base+t.rows, t.slots), false)
	r := rotation{
		eps: rotateEps, angles: b.floats(t.angles), positions: b.words(t.positions),
		pairs: t.pairs, heads: t.heads, kvHeads: t.kvHeads, headDim: t.dim, gated: t.gated,
	}
	if t.norm {
		r.qNorm, r.kNorm = b.floats(t.qNorm), b.floats(t.kNorm)
	}
	q, k, v := b.floats(t.q), b.floats(t.k), b.floats(t.v)
	dst := q // in place where that is possible
	if queries != elemF32 {
		dst = b.empty(len(t.q), queries)
	}
	b.run(func(e encoder) { rotateStore(e, dst, q, k, v, r, pages.kvView, t.base, t.rows) })

	last, stride := -1, qStride(t.dim, t.gated)
	for row := range t.rows {
		for h := range t.heads {
			at := (row*t.heads + h) * stride
			got := b.read(dst.at(at*dst.elem.size()), stride)
			if err := nearRounded(got[:t.dim], t.rotated(t.q, t.qNorm, row, t.heads, h, stride), queries); err != nil {
				return fmt.Errorf("query head %d of row %d: %w", h, row, err)
			}
			if err := vectors.Equal(got[t.dim:], rounded(t.q[at+t.dim:at+stride], queries)); err != nil {
				return fmt.Errorf("gate of query head %d of row %d: %w", h, row, err)
			}
		}
		slot := layout.Slot(t.base + row)
		if (slot < last) != (t.wrap != 0 && row == t.wrap) {
			return fmt.Errorf("row %d goes to slot %d after %d: not what the case is for", row, slot, last)
		}
		last = slot
		for h := range t.kvHeads {
			at := (row*t.kvHeads + h) * t.dim
			if err := checkKey(pages, h, slot, t.rotated(t.k, t.kNorm, row, t.kvHeads, h, t.dim)); err != nil {
				return fmt.Errorf("key head %d of row %d: %w", h, row, err)
			}
			if err := checkValue(pages, h, slot, t.v[at:at+t.dim]); err != nil {
				return fmt.Errorf("value head %d of row %d: %w", h, row, err)
			}
		}
	}
	return pages.others()
}

// nearRounded compares a vector, rounded to an element type, with float64.
func nearRounded(got []float32, want []float64, e elem) error {
	largest := 0.0
	for _, w := range want {
		largest = max(largest, math.Abs(w))
	}
	for i, w := range want {
		// 2^-25 is half of the smallest f16. Where a·cos and b·sin cancel, the error is
		// that of the terms.
		if d := math.Abs(float64(got[i]) - w); !(d <= roundoff(e)*math.Abs(w)+normTolerance*largest+1.0/(1<<25)) {
			return fmt.Errorf("element %d is %v, want %v", i, got[i], w)
		}
	}
	return nil
}

// checkKey compares a stored key with float64.
func checkKey(p *bedPages, head, slot int, want []float64) error {
	dim := len(want)
	if p.dtype != backend.KVInt8 {
		return nearRounded(p.floats(p.k, head, slot), want, p.k.elem)
	}
	q, scales := p.int8(p.k, p.kScales, head, slot)
	for g, s := range scales {
		part := want[g*backend.KVGroup : min((g+1)*backend.KVGroup, dim)]
		largest := 0.0
		for _, w := range part {
			largest = max(largest, math.Abs(w))
		}
		if d := math.Abs(float64(s) - largest/127); !(d <= 2*normTolerance*largest/127) {
			return fmt.Errorf("scale %d is %v, want %v", g, s, largest/127)
		}
		for i, w := range part {
			at := g*backend.KVGroup + i
			if d := math.Abs(float64(q[at])*float64(s) - w); !(d <= 0.5005*float64(s)) {
				return fmt.Errorf("element %d is %d · %v, want %v", at, q[at], s, w)
			}
		}
	}
	return nil
}

// checkValue compares a stored value with package quant, bit for bit.
func checkValue(p *bedPages, head, slot int, want []float32) error {
	dim := len(want)
	if p.dtype == backend.KVF16 {
		want = slices.Clone(want)
		for i, x := range want {
			want[i] = max(min(x, 65504), -65504)
		}
	}
	if p.dtype != backend.KVInt8 {
		return vectors.Equal(p.floats(p.v, head, slot), rounded(want, p.v.elem))
	}
	q, scales := p.int8(p.v, p.vScales, head, slot)
	for g, s := range scales {
		from, to := g*backend.KVGroup, min((g+1)*backend.KVGroup, dim)
		scale, numbers := quant.Int8Scale(want[from:to]), make([]int8, to-from)
		quant.Int8(numbers, want[from:to], scale)
		if s != scale || !slices.Equal(q[from:to], numbers) {
			return fmt.Errorf("group %d is %v · %v, want %v · %v", g, q[from:to], s, numbers, scale)
		}
	}
	return nil
}
