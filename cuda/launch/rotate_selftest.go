package launch

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/cuda/driver"
)

func init() {
	registerSelfTest("rotate and store", checkRotateStore)
}

// rotateCase is a pass of the self-test: spans of a rotating layout where
// window is not 0.
type rotateCase struct {
	dim, qHeads, kvHeads int
	pairs                int // 0: all
	norm, gated          bool
	window, keep, slots  int
	bases, rows          []int
}

var rotateCases = []rotateCase{
	{dim: 2, qHeads: 3, kvHeads: 1, bases: []int{0}, rows: []int{1}},
	{dim: 16, qHeads: 2, kvHeads: 2, norm: true, bases: []int{62, 0}, rows: []int{4, 3}},
	{dim: 64, qHeads: 4, kvHeads: 2, norm: true, window: 40, keep: 3, slots: 50, bases: []int{0, 38, 1000}, rows: []int{7, 10, 5}},
	{dim: 80, qHeads: 3, kvHeads: 1, norm: true, bases: []int{5}, rows: []int{9}},
	{dim: 96, qHeads: 1, kvHeads: 1, bases: []int{127}, rows: []int{2}},
	{dim: 128, qHeads: 4, kvHeads: 1, norm: true, bases: []int{60, 63, 0}, rows: []int{5, 1, 2}},
	{dim: 130, qHeads: 2, kvHeads: 2, norm: true, bases: []int{64}, rows: []int{3}},
	{dim: 256, qHeads: 2, kvHeads: 1, norm: true, bases: []int{1}, rows: []int{3}},
	{dim: 256, pairs: 32, qHeads: 2, kvHeads: 1, norm: true, bases: []int{1}, rows: []int{3}},
	{dim: 128, pairs: 16, qHeads: 3, kvHeads: 1, norm: true, bases: []int{60, 0}, rows: []int{5, 1}},
	{dim: 80, pairs: 7, qHeads: 2, kvHeads: 2, norm: true, bases: []int{5}, rows: []int{9}},
	{dim: 130, pairs: 64, qHeads: 1, kvHeads: 1, bases: []int{5}, rows: []int{2}},
	{dim: 128, qHeads: 9, kvHeads: 5, norm: true, gated: true, bases: []int{60, 0}, rows: []int{6, 3}},
	{dim: 256, pairs: 32, qHeads: 6, kvHeads: 3, norm: true, gated: true, bases: []int{60}, rows: []int{7}},
}

// drawnAngles are some for each position, for self-tests.
type drawnAngles int

func (p drawnAngles) Pairs() int { return int(p) }

func (p drawnAngles) Fill(cos, sin []float32, positions []int32) {
	for r, at := range positions {
		for i := range int(p) {
			s, c := math.Sincos(float64(at)*1.7 + float64(i)*0.61)
			cos[r*int(p)+i], sin[r*int(p)+i] = float32(c), float32(s)
		}
	}
}

// drawnPositions is how many they have: some blocks, and a part of one.
const drawnPositions = 3*BlockPositions - 50

// angles makes a table with the blocks of some positions.
func (b *bed) angles(from backend.Angles, positions []int32) *Angles {
	a, err := b.d.NewAngles(from, drawnPositions, func(p driver.Ptr) { b.owned = append(b.owned, p) })
	b.check(err)
	for _, p := range positions {
		if err = a.Has(int(p)); err != nil {
			break
		}
	}
	b.check(err)
	return a
}

func checkRotateStore(d *Device) error {
	r := rand.New(rand.NewPCG(9, 1))
	for _, c := range rotateCases {
		if err := c.check(d, r); err != nil {
			return fmt.Errorf("%+v: %w", c, err)
		}
	}
	return nil
}

// rotated is RotateStore of one head in float64: pairs of its elements are rotated.
func rotated(x, norm, cos, sin []float32, pairs int, eps float64) []float64 {
	n := len(x)
	y, scale := make([]float64, n), 1.0
	if norm != nil {
		sum := 0.0
		for _, v := range x {
			sum += float64(v) * float64(v)
		}
		scale = 1 / math.Sqrt(sum/float64(n)+eps)
	}
	for i := range n {
		y[i] = float64(x[i]) * scale
		if norm != nil {
			y[i] *= float64(norm[i])
		}
	}
	for i := range pairs {
		a, b, c, s := y[i], y[i+pairs], float64(cos[i]), float64(sin[i])
		y[i], y[i+pairs] = a*c-b*s, b*c+a*s
	}
	return y
}

// check compares f32 keys and values with float64, and what is stored in the
// other types with those, rounded: to the bit.
func (c rotateCase) check(d *Device, r *rand.Rand) error {
	const layers, layer, eps, tolerance = 2, 1, 1e-6, 1e-6
	b := &bed{d: d}
	defer b.free()
	v, shape := &StepValues{}, StepShape{Spans: len(c.bases) + 1}
	for _, n := range c.rows {
		v.Rows += n
	}
	shape.Bucket = RowBucket(v.Rows)
	if c.pairs == 0 {
		c.pairs = c.dim / 2
	}
	for range v.Rows { // of the first block, and of the last one
		v.Positions = append(v.Positions, int32(r.IntN(2)*2*BlockPositions+r.IntN(drawnPositions-2*BlockPositions)))
	}
	turns := &turns{pairs: c.pairs, cos: make([]float32, v.Rows*c.pairs), sin: make([]float32, v.Rows*c.pairs)}
	drawnAngles(c.pairs).Fill(turns.cos, turns.sin, v.Positions)
	width := headStride(c.dim, c.gated)
	q, k, values := vectors.Normals(r, shape.Bucket*c.qHeads*width), vectors.Normals(r, shape.Bucket*c.kvHeads*c.dim), vectors.Normals(r, shape.Bucket*c.kvHeads*c.dim)
	clear(k[:c.dim]) // a group of zeros
	h := Rotation{QHeads: c.qHeads, KVHeads: c.kvHeads, Dim: c.dim, Gated: c.gated, Pairs: c.pairs, Angles: b.angles(drawnAngles(c.pairs), v.Positions).Table(), Eps: eps, Layers: layers}
	var qNorm, kNorm []float32
	if c.norm {
		qNorm, kNorm = vectors.Normals(r, c.dim), vectors.Normals(r, c.dim)
		h.QNorm, h.KNorm = b.floats(qNorm), b.floats(kNorm)
	}
	narrow, only := b.empty(2*len(q)), b.empty(2*len(q))
	pk, pv := b.floats(k), b.floats(values)
	defer func() { d.Tuning = Tuning{} }()

	var first, keys []float32 // of the first form, and as the f32 cache has them
	for _, t := range []backend.KVType{backend.KVF32, backend.KVBF16, backend.KVInt8} {
		h.KV = t
		for _, d.Tuning.rotateHeads = range []int{1, 2} {
			fail := func(of string, err error) error {
				return fmt.Errorf("%v, %d heads a warp: %s: %w", t, d.Tuning.rotateHeads, of, err)
			}
			var pages [][]driver.Ptr
			v.Spans, shape.Pages = nil, 0
			row := 0
			for i, n := range c.rows {
				l := backend.KeysLayout(layers, c.kvHeads, c.dim, t, c.bases[i]+n)
				l.Window, l.Keep = c.window, c.keep
				if c.window > 0 {
					l.Slots = c.slots
				}
				var list []driver.Ptr
				for range pagesOf(l) {
					list = append(list, b.empty(pageBytes(l)))
				}
				store := storageOn(l, list)
				pages = append(pages, list)
				v.Spans = append(v.Spans, backend.Span{Storage: store, Base: c.bases[i], First: row, Rows: n})
				row += n
				shape.Pages += pagesOf(l)
			}
			step := b.step(v, shape)
			pq := b.floats(q)
			h.NarrowOnly = true
			d.RotateStore(pq, pk, pv, only, h, step, layer, shape.Bucket)
			if err := vectors.Equal(b.readFloats(pq, len(q)), q); err != nil {
				return fail("queries that were to stay", err)
			}
			h.NarrowOnly = false
			d.RotateStore(pq, pk, pv, narrow, h, step, layer, shape.Bucket)
			got := b.readFloats(pq, len(q))
			if err := c.checkQueries(v, turns, got, q, qNorm, eps, tolerance); err != nil {
				return fail("queries", err)
			}
			if first == nil {
				first = got
			}
			if err := vectors.Equal(got, first); err != nil {
				return fail("queries that others have", err)
			}
			n := v.Rows * c.qHeads * width
			for _, p := range []driver.Ptr{narrow, only} {
				if err := vectors.Equal(b.readHalves(p, len(q)), append(rounded(got[:n]), nanRows(1, len(q)-n)...)); err != nil {
					return fail("queries as bf16", err)
				}
			}
			if keys == nil {
				var err error
				if keys, err = c.keysOf(b, v, turns, k, kNorm, layer, eps, tolerance); err != nil {
					return fail("keys", err)
				}
			}
			if err := c.checkPages(b, v, pages, layer, keys, values); err != nil {
				return fail("pages", err)
			}
		}
	}
	return nil
}

// turns are the angles of rows.
type turns struct {
	pairs    int
	cos, sin []float32
}

func (t *turns) rotated(x, norm []float32, row int, eps float64) []float64 {
	return rotated(x, norm, t.cos[row*t.pairs:], t.sin[row*t.pairs:], t.pairs, eps)
}

func (c rotateCase) checkQueries(v *StepValues, t *turns, got, q, norm []float32, eps, tolerance float64) error {
	n, width := v.Rows*c.qHeads, headStride(c.dim, c.gated)
	for i := range n {
		row, at, gate := i/c.qHeads, i*width, (i+1)*width-c.dim
		if err := vectors.Near(got[at:at+c.dim], t.rotated(q[at:at+c.dim], norm, row, eps), tolerance); err != nil {
			return fmt.Errorf("row %d: %w", row, err)
		}
		if c.gated {
			if err := vectors.Equal(got[gate:gate+c.dim], q[gate:gate+c.dim]); err != nil {
				return fmt.Errorf("the gate of row %d: %w", row, err)
			}
		}
	}
	return vectors.Equal(got[n*width:], q[n*width:])
}

// tileOf finds a row's line in the tile of a head: the tile's bytes are at
// that offset of a page.
func tileOf(s backend.Span, row, layer, part, head int) (page, offset, line int) {
	l := s.Storage.Layout()
	k := l.Keys()
	slot := l.Slot(s.Base + row)
	return slot / PageSlots, ((2*layer+part)*k.KVHeads + head) * (pageBytes(l) / (2 * k.Layers * k.KVHeads)), slot % PageSlots
}

// keysOf reads the keys of an f32 cache by rows, and compares them with float64.
func (c rotateCase) keysOf(b *bed, v *StepValues, t *turns, k, norm []float32, layer int, eps, tolerance float64) ([]float32, error) {
	var keys []float32
	for _, s := range v.Spans {
		for i := range s.Rows {
			for h := range c.kvHeads {
				page, offset, line := tileOf(s, i, layer, 0, h)
				x := b.readFloats(s.Storage.(pagesOnDevice).At(page)+driver.Ptr(offset+4*line*c.dim), c.dim)
				row := s.First + i
				at := (row*c.kvHeads + h) * c.dim
				if err := vectors.Near(x, t.rotated(k[at:at+c.dim], norm, row, eps), tolerance); err != nil {
					return nil, fmt.Errorf("row %d: %w", row, err)
				}
				keys = append(keys, x...)
			}
		}
	}
	return keys, nil
}

// checkPages compares whole pages with what the cache is to hold.
func (c rotateCase) checkPages(b *bed, v *StepValues, pages [][]driver.Ptr, layer int, keys, values []float32) error {
	for i, s := range v.Spans {
		l := s.Storage.Layout()
		want := make([][]byte, len(pages[i]))
		for j := range want {
			want[j] = slices.Repeat([]byte{0xff}, pageBytes(l))
		}
		for row := range s.Rows {
			for h := range c.kvHeads {
				for part, from := range [][]float32{keys, values} {
					page, offset, line := tileOf(s, row, layer, part, h)
					at := ((s.First+row)*c.kvHeads + h) * c.dim
					storeVector(want[page][offset:], l.DType, line, c.dim, slices.Clone(from[at:at+c.dim]))
				}
			}
		}
		for j, p := range pages[i] {
			if got := b.read(p, pageBytes(l)); !bytes.Equal(got, want[j]) {
				at := 0
				for got[at] == want[j][at] {
					at++
				}
				return fmt.Errorf("span %d, page %d of %d bytes, byte %d: %#x, want %#x", i, j, len(got), at, got[at], want[j][at])
			}
		}
	}
	return nil
}
