package launch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"windrow/backend"
	"windrow/backend/paging"
	"windrow/backend/vectors"
	"windrow/cuda/driver"
	"windrow/quant"
)

func init() {
	for _, t := range []backend.KVType{backend.KVF32, backend.KVBF16, backend.KVInt8} {
		registerSelfTest("exact attention "+t.String(), func(d *Device) error { return checkSimtAttend(d, t) })
	}
}

// storedSpan is a span of a self-test with the keys and values that its cache
// holds, as they read back: [index][KV head · dim].
type storedSpan struct {
	span         backend.Span
	keys, values [][]float32
}

// storeVector writes one head's vector into its tile, and what it reads as
// into x.
func storeVector(tile []byte, t backend.KVType, line, dim int, x []float32) {
	switch t {
	case backend.KVF32:
		quant.Blocks(tile[4*line*dim:4*(line+1)*dim], backend.F32, x)
	case backend.KVBF16:
		quant.Blocks(tile[2*line*dim:2*(line+1)*dim], backend.BF16, x)
		copy(x, rounded(x))
	case backend.KVInt8:
		groups := (dim + backend.KVGroup - 1) / backend.KVGroup
		for g := range groups {
			part := x[g*backend.KVGroup : min((g+1)*backend.KVGroup, dim)]
			q, scale := make([]int8, len(part)), quant.Int8Scale(part)
			quant.Int8(q, part, scale)
			for i, v := range q {
				tile[line*dim+g*backend.KVGroup+i] = byte(v)
				part[i] = float32(v) * scale
			}
			binary.LittleEndian.PutUint32(tile[PageSlots*dim+4*(line*groups+g):], math.Float32bits(scale))
		}
	}
}

// stored makes a cache that holds indices 0 to base+rows of random keys and
// values at a layer; all else in it is NaN, or -1 with a NaN scale.
func (b *bed) stored(r *rand.Rand, l backend.Layout, layer, base, first, rows int) storedSpan {
	s := storedSpan{span: backend.Span{Base: base, First: first, Rows: rows}}
	pages := make([][]byte, (l.Slots+PageSlots-1)/PageSlots)
	for i := range pages {
		pages[i] = slices.Repeat([]byte{0xff}, pageBytes(l))
	}
	k := l.Keys()
	tileBytes := pageBytes(l) / (2 * k.Layers * k.KVHeads)
	for i := range base + rows {
		for part, list := range []*[][]float32{&s.keys, &s.values} {
			x := vectors.Normals(r, k.KVHeads*k.HeadDim)
			for h := range k.KVHeads {
				tile := pages[l.Slot(i)/PageSlots][((2*layer+part)*k.KVHeads+h)*tileBytes:]
				storeVector(tile, l.DType, l.Slot(i)%PageSlots, k.HeadDim, x[h*k.HeadDim:(h+1)*k.HeadDim])
			}
			*list = append(*list, x)
		}
	}
	var list []driver.Ptr
	for _, p := range pages {
		list = append(list, b.bytes(p))
	}
	s.span.Storage = storageOn(l, list)
	return s
}

// storageOn is storage over pages that are there.
func storageOn(l backend.Layout, list []driver.Ptr) backend.Storage {
	t := paging.New(l, &pagesThere{list}, new(backend.Budget))
	if err := t.Reserve(l.Slots); err != nil {
		panic(err) // the list is as long as the layout says
	}
	return placed{t}
}

// placed is storage over pages under test: launches read it, nothing else does.
type placed struct{ *paging.Table[driver.Ptr] }

var errPlaced = errors.New("cuda: pages under test are not copied")

func (placed) Fork(_, _ int) (backend.Storage, error) { return nil, errPlaced }
func (placed) Export(int, []byte) error               { return errPlaced }
func (placed) Import(int, []byte) error               { return errPlaced }

// pagesThere are taken in order, and not given back.
type pagesThere struct{ list []driver.Ptr }

func (p *pagesThere) Take() (driver.Ptr, error) {
	at := p.list[0]
	p.list = p.list[1:]
	return at, nil
}

func (p *pagesThere) Give(driver.Ptr)            {}
func (p *pagesThere) Copy(_, _ driver.Ptr) error { return errPlaced }

// pageBytes is the size of a page of a layout.
func pageBytes(l backend.Layout) int { return int(l.Keys().PageBytes()) }

// pagesOf is how many pages a layout's slots take.
func pagesOf(l backend.Layout) int { return Ceil(l.Slots, PageSlots) }

// attendReference is attention of one query in float64.
func (s *storedSpan) attendReference(out []float64, q []float32, index, head int, scale float64) {
	l := s.span.Storage.Layout()
	d := l.Keys().HeadDim
	scores := make([]float64, index+1)
	most := math.Inf(-1)
	seen := func(i int) bool { return i < l.Keep || i >= l.Visible(index) }
	for i := range scores {
		if !seen(i) {
			continue
		}
		for j, v := range s.keys[i][head*d : (head+1)*d] {
			scores[i] += float64(v) * float64(q[j]) * scale
		}
		most = max(most, scores[i])
	}
	total := 0.0
	clear(out)
	for i, v := range scores {
		if !seen(i) {
			continue
		}
		p := math.Exp(v - most)
		total += p
		for j, v := range s.values[i][head*d : (head+1)*d] {
			out[j] += p * float64(v)
		}
	}
	for j := range out {
		out[j] /= total
	}
}

// attendCase is one pass of the attention self-tests.
type attendCase struct {
	dim, kvHeads, group int
	window, keep, slots int // of a rotating layout
	gated               bool
	bases, rows         []int
}

var simtAttendCases = []attendCase{
	{dim: 2, kvHeads: 1, group: 1, bases: []int{0}, rows: []int{3}},
	{dim: 16, kvHeads: 2, group: 5, bases: []int{30, 0}, rows: []int{3, 1}},
	{dim: 64, kvHeads: 2, group: 2, bases: []int{61, 600}, rows: []int{5, 2}},
	{dim: 80, kvHeads: 1, group: 3, bases: []int{127}, rows: []int{2}},
	{dim: 128, kvHeads: 2, group: 4, bases: []int{0, 1100, 31}, rows: []int{1, 1, 2}},
	{dim: 130, kvHeads: 1, group: 2, bases: []int{70}, rows: []int{2}},
	{dim: 256, kvHeads: 1, group: 2, bases: []int{95}, rows: []int{3}},
	{dim: 32, kvHeads: 1, group: 2, window: 100, keep: 5, slots: 110, bases: []int{0, 93, 300, 1000}, rows: []int{4, 10, 3, 1}},
	{dim: 16, kvHeads: 2, group: 1, window: 64, keep: 0, slots: 80, bases: []int{60, 700}, rows: []int{9, 4}},
}

func checkSimtAttend(d *Device, t backend.KVType) error {
	r := rand.New(rand.NewPCG(6, uint64(t)))
	for _, c := range simtAttendCases {
		if err := checkSimtAttendCase(d, r, c, t); err != nil {
			return fmt.Errorf("%+v: %w", c, err)
		}
	}
	return nil
}

func checkSimtAttendCase(d *Device, r *rand.Rand, c attendCase, t backend.KVType) error {
	const layers, layer, tolerance = 2, 1, 1e-6
	b := &bed{d: d}
	defer b.free()
	a := Attention{QHeads: c.kvHeads * c.group, KVHeads: c.kvHeads, Dim: c.dim, Scale: float32(1 / math.Sqrt(float64(c.dim))), KV: t, Layers: layers}
	width := a.QHeads * c.dim
	var spans []storedSpan
	v, shape := &StepValues{}, StepShape{Spans: len(c.bases)}
	for i, base := range c.bases {
		l := backend.KeysLayout(layers, c.kvHeads, c.dim, t, base+c.rows[i]+3)
		l.Window, l.Keep = c.window, c.keep
		if c.window > 0 {
			l.Slots = c.slots
		}
		s := b.stored(r, l, layer, base, v.Rows, c.rows[i])
		spans, v.Spans = append(spans, s), append(v.Spans, s.span)
		v.Rows += c.rows[i]
		shape.Pages += pagesOf(s.span.Storage.Layout())
	}
	shape.Bucket = RowBucket(v.Rows)
	q := vectors.Normals(r, v.Rows*width)
	for i := range q {
		q[i] *= 2
	}
	want := make([]float64, v.Rows*width)
	for _, s := range spans {
		for i := range s.span.Rows {
			row := s.span.First + i
			for h := range a.QHeads {
				at := row*width + h*c.dim
				s.attendReference(want[at:at+c.dim], q[at:at+c.dim], s.span.Base+i, h/c.group, float64(a.Scale))
			}
		}
	}
	pq, out := b.floats(append(slices.Clone(q), make([]float32, (shape.Bucket-v.Rows)*width)...)), b.empty(4*shape.Bucket*width)
	d.SIMTAttend(out, pq, a, b.step(v, shape), layer, shape.Bucket)
	got := b.readFloats(out, shape.Bucket*width)
	if err := vectors.Near(got[:v.Rows*width], want, tolerance); err != nil {
		return err
	}
	if err := vectors.Equal(got[v.Rows*width:], nans((shape.Bucket-v.Rows)*width)); err != nil {
		return fmt.Errorf("rows past the last: %w", err)
	}
	// The last span alone, and of it the last row alone.
	last := spans[len(spans)-1].span
	for _, skip := range []int{0, last.Rows - 1} {
		s := backend.Span{Storage: last.Storage, Base: last.Base + skip, Rows: last.Rows - skip}
		from := (last.First + skip) * width
		if err := aloneEquals(b, a, s, pq+driver.Ptr(4*from), layer, got[from:v.Rows*width]); err != nil {
			return fmt.Errorf("%d rows alone: %w", s.Rows, err)
		}
	}
	return nil
}

// aloneEquals compares a span that is a pass of its own with what it gave
// among others.
func aloneEquals(b *bed, a Attention, s backend.Span, q driver.Ptr, layer int, want []float32) error {
	shape := StepShape{Bucket: s.Rows, Spans: 1, Pages: pagesOf(s.Storage.Layout())}
	out := b.empty(4 * len(want))
	b.d.SIMTAttend(out, q, a, b.step(&StepValues{Rows: s.Rows, Spans: []backend.Span{s}}, shape), layer, s.Rows)
	return vectors.Equal(b.readFloats(out, len(want)), want)
}
