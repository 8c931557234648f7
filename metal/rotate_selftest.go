package metal

import (
	"encoding/binary"
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
	dim, heads, kvHeads                 int
	pairs                               int // 0: half of dim
	norm                                bool
	base, rows                          int
	capacity, slots, window, keep, wrap int // wrap: the first row whose slot lies before that of its predecessor; 0: none
}

var rotateCases = []rotateCase{
	{dim: 2, heads: 3, kvHeads: 1, rows: 1, capacity: 1, slots: 9},
	{dim: 6, heads: 2, kvHeads: 2, norm: true, base: 3, rows: 5, capacity: 8, slots: 20},
	{dim: 64, heads: 4, kvHeads: 2, norm: true, base: 43, rows: 10, capacity: 50, slots: 50, window: 40, keep: 3, wrap: 7},
	{dim: 64, heads: 1, kvHeads: 1, base: 1000, rows: 2, capacity: 50, slots: 50, window: 40, keep: 3},
	{dim: 64, heads: 1, kvHeads: 1, norm: true, base: 1, rows: 4, capacity: 16, slots: 50, window: 40, keep: 3},
	{dim: 80, heads: 3, kvHeads: 1, norm: true, base: 5, rows: 9, capacity: 14, slots: 100},
	{dim: 128, heads: 4, kvHeads: 2, norm: true, base: 2, rows: 3, capacity: 7, slots: 7},
	{dim: 130, heads: 1, kvHeads: 1, base: 4, rows: 3, capacity: 7, slots: 7},
	{dim: 64, heads: 2, kvHeads: 1, pairs: 8, norm: true, base: 2, rows: 5, capacity: 8, slots: 8},
	{dim: 200, heads: 1, kvHeads: 2, pairs: 33, norm: true, base: 1, rows: 3, capacity: 5, slots: 5},
	{dim: 66, heads: 1, kvHeads: 1, pairs: 32, rows: 2, capacity: 2, slots: 2},
	{dim: 362, heads: 1, kvHeads: 1, norm: true, base: 1, rows: 1, capacity: 2, slots: 2},
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
		q:          vectors.Normals(r, c.rows*c.heads*c.dim), k: vectors.Normals(r, c.rows*c.kvHeads*c.dim), v: vectors.Normals(r, c.rows*c.kvHeads*c.dim),
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

// rotated is head h of row's heads, normed and rotated in float64.
func (t *rotateData) rotated(x, norm []float32, row, heads, h int) []float64 {
	from := (row*heads + h) * t.dim
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
// and values. All storage of the layer is compared with what is to be in it.
func (t *rotateData) check(b *bed, queries elem, kv kvView) error {
	lines, groups := t.kvHeads*t.capacity, (t.dim+backend.KVGroup-1)/backend.KVGroup
	kv.capacity, kv.slots, kv.window, kv.keep = t.capacity, t.slots, t.window, t.keep
	kv.v = b.empty(lines*t.dim, kv.k.elem)
	kv.k = b.empty(lines*t.dim, kv.k.elem)
	if kv.dtype == backend.KVInt8 {
		kv.kScales, kv.vScales = b.empty(lines*groups, elemF32), b.empty(lines*groups, elemF32)
	}
	r := rotation{eps: rotateEps, angles: b.floats(t.angles), positions: b.words(t.positions), pairs: t.pairs, heads: t.heads, kvHeads: t.kvHeads, headDim: t.dim}
	if t.norm {
		r.qNorm, r.kNorm = b.floats(t.qNorm), b.floats(t.kNorm)
	}
	q, k, v := b.floats(t.q), b.floats(t.k), b.floats(t.v)
	dst := q // in place where that is possible
	if queries != elemF32 {
		dst = b.empty(len(t.q), queries)
	}
	b.run(func(e encoder) { rotateStore(e, dst, q, k, v, r, kv, t.base, t.rows) })

	layout := backend.KVLayout{Slots: t.slots, Window: t.window, Keep: t.keep}
	written, last := make([]bool, lines), -1
	for row := range t.rows {
		for h := range t.heads {
			at := (row*t.heads + h) * t.dim
			got := b.read(dst.at(at*dst.elem.size()), t.dim)
			if err := nearRounded(got, t.rotated(t.q, t.qNorm, row, t.heads, h), queries); err != nil {
				return fmt.Errorf("query head %d of row %d: %w", h, row, err)
			}
		}
		slot := layout.Slot(t.base + row)
		if (slot < last) != (t.wrap != 0 && row == t.wrap) {
			return fmt.Errorf("row %d goes to slot %d after %d: not what the case is for", row, slot, last)
		}
		last = slot
		for h := range t.kvHeads {
			line, at := h*t.capacity+slot, (row*t.kvHeads+h)*t.dim
			written[line] = true
			if err := checkKey(b, kv, line, groups, t.rotated(t.k, t.kNorm, row, t.kvHeads, h)); err != nil {
				return fmt.Errorf("key head %d of row %d: %w", h, row, err)
			}
			if err := checkValue(b, kv, line, groups, t.v[at:at+t.dim]); err != nil {
				return fmt.Errorf("value head %d of row %d: %w", h, row, err)
			}
		}
	}
	for line, w := range written {
		if w {
			continue
		}
		for _, part := range []view{kv.k, kv.v} {
			n := t.dim * part.elem.size()
			if err := untouched(part.bytes()[line*n : (line+1)*n]); err != nil {
				return fmt.Errorf("line %d: %w", line, err)
			}
		}
		for _, part := range []view{kv.kScales, kv.vScales} {
			if part.buffer == nil {
				continue
			}
			if err := untouched(part.bytes()[4*line*groups : 4*(line+1)*groups]); err != nil {
				return fmt.Errorf("scales of line %d: %w", line, err)
			}
		}
	}
	return nil
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

// int8Line reads a line of int8 with its scales.
func int8Line(part, scales view, line, dim, groups int) (q []int8, s []float32) {
	for _, c := range part.bytes()[line*dim : (line+1)*dim] {
		q = append(q, int8(c))
	}
	for g := range groups {
		s = append(s, math.Float32frombits(binary.LittleEndian.Uint32(scales.bytes()[4*(line*groups+g):])))
	}
	return q, s
}

// checkKey compares a stored key with float64.
func checkKey(b *bed, kv kvView, line, groups int, want []float64) error {
	dim := len(want)
	if kv.dtype != backend.KVInt8 {
		return nearRounded(b.read(kv.k.at(line*dim*kv.k.elem.size()), dim), want, kv.k.elem)
	}
	q, scales := int8Line(kv.k, kv.kScales, line, dim, groups)
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
func checkValue(b *bed, kv kvView, line, groups int, want []float32) error {
	dim := len(want)
	if kv.dtype == backend.KVF16 {
		want = slices.Clone(want)
		for i, x := range want {
			want[i] = max(min(x, 65504), -65504)
		}
	}
	if kv.dtype != backend.KVInt8 {
		return vectors.Equal(b.read(kv.v.at(line*dim*kv.v.elem.size()), dim), rounded(want, kv.v.elem))
	}
	q, scales := int8Line(kv.v, kv.vScales, line, dim, groups)
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
