package launch

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/cuda/driver"
)

func init() {
	registerSelfTest("rotation in attention", checkAttendFresh)
}

// freshCase is a pass of spans of few rows, of one each where rows are not given.
type freshCase struct {
	attendCase
	pairs int // 0: all
	norm  bool
}

// freshCases have rows at the beginning, the end and the borders of pages, in rings
// too, and contexts of one to eighteen parts.
var freshCases = []freshCase{
	{attendCase: attendCase{dim: 128, kvHeads: 1, group: 4, bases: []int{0, 63, 64, 130}}, norm: true},
	{attendCase: attendCase{dim: 64, kvHeads: 2, group: 2, bases: []int{250, 1100, 62}}},
	{attendCase: attendCase{dim: 64, kvHeads: 1, group: 3, window: 100, keep: 5, slots: 116, bases: []int{0, 93, 300, 1000}}, norm: true},
	{attendCase: attendCase{dim: 128, kvHeads: 2, group: 8, bases: []int{575, 1023}}, norm: true},
	{attendCase: attendCase{dim: 128, kvHeads: 1, group: 16, bases: []int{320}}, pairs: 16},
	{attendCase: attendCase{dim: 256, kvHeads: 2, group: 3, gated: true, bases: []int{330, 60, 700}}, pairs: 32, norm: true},
	{attendCase: attendCase{dim: 256, kvHeads: 1, group: 16, gated: true, bases: []int{70}}, norm: true},
	{attendCase: attendCase{dim: 64, kvHeads: 1, group: 2, gated: true, bases: []int{130}}, pairs: 10, norm: true},

	{attendCase: attendCase{dim: 128, kvHeads: 2, group: 4, bases: []int{505, 0, 64, 130}, rows: []int{16, 3, 1, 7}}, norm: true},
	{attendCase: attendCase{dim: 128, kvHeads: 1, group: 5, bases: []int{1020, 127}, rows: []int{32, 2}}},
	{attendCase: attendCase{dim: 128, kvHeads: 1, group: 3, bases: []int{200}, rows: []int{11}}, norm: true},
	{attendCase: attendCase{dim: 64, kvHeads: 2, group: 1, bases: []int{90, 640}, rows: []int{4, 31}}, norm: true},
	{attendCase: attendCase{dim: 64, kvHeads: 1, group: 3, window: 100, keep: 5, slots: 116, bases: []int{0, 93, 300, 1000}, rows: []int{4, 16, 3, 1}}, norm: true},
	{attendCase: attendCase{dim: 64, kvHeads: 1, group: 2, window: 40, keep: 3, slots: 72, bases: []int{50, 700}, rows: []int{32, 29}}, norm: true},
	{attendCase: attendCase{dim: 256, kvHeads: 1, group: 6, gated: true, bases: []int{330, 60}, rows: []int{11, 5}}, pairs: 32, norm: true},
	{attendCase: attendCase{dim: 256, kvHeads: 2, group: 2, bases: []int{1090}, rows: []int{2}}, pairs: 32},
}

func checkAttendFresh(d *Device) error {
	r := rand.New(rand.NewPCG(17, 3))
	for i, c := range freshCases {
		if c.rows == nil {
			c.rows = slices.Repeat([]int{1}, len(c.bases))
		}
		if a := (Attention{QHeads: 1, KVHeads: 1, Dim: c.dim, KV: backend.KVBF16}); c.dim == 256 && (!d.AttendTakes(a) || freshKernel(a).shared > d.Info.SharedPerBlock) {
			continue // a block has too little shared memory
		}
		if err := c.check(d, r, uint64(i)); err != nil {
			return fmt.Errorf("%+v: %w", c, err)
		}
	}
	return nil
}

// forms are those that take a case.
func (c freshCase) forms() (forms []freshForm) {
	if slices.Max(c.rows) == 1 {
		for _, units := range []int{1, 4, attendMostUnits} {
			forms = append(forms, freshForm{split: attendSplit{units: units, queries: teamQueries}})
		}
	}
	if c.pairs == unitPairs(c.dim) {
		for teams := 1; teams <= mostTeams(c.dim); teams *= 2 {
			forms = append(forms, freshForm{split: attendSplit{units: 1, queries: teams * teamQueries}, unit: true})
		}
	}
	return forms
}

// pagesOfPass reads all pages of a pass.
func (b *bed) pagesOfPass(p *attendPass) (all [][]byte) {
	for _, s := range p.v.Spans {
		l := s.Storage.Layout()
		for i := range pagesOf(l) {
			all = append(all, b.read(s.Storage.(pagesOnDevice).At(i), pageBytes(l)))
		}
	}
	return all
}

// check compares AttendFresh with RotateStore, AttendDecode and the merge: to the bit,
// in results and pages, for all splits of the context.
func (c freshCase) check(d *Device, r *rand.Rand, seed uint64) error {
	b := &bed{d: d}
	defer b.free()
	defer d.freeParts()
	pass := func() *attendPass { // each time on the same keys and values, elsewhere
		return b.newAttendPass(rand.New(rand.NewPCG(seed, 5)), c.attendCase, backend.KVBF16)
	}
	p := pass()
	most := 4 * p.chunks()
	if c.pairs == 0 {
		c.pairs = c.dim / 2
	}
	for range p.v.Rows {
		p.v.Positions = append(p.v.Positions, int32(r.IntN(drawnPositions)))
	}
	h := Rotation{QHeads: p.QHeads, KVHeads: p.KVHeads, Dim: p.Dim, Gated: p.Gated, Pairs: c.pairs,
		Angles: b.angles(drawnAngles(c.pairs), p.v.Positions).Table(), Eps: 1e-6, KV: p.KV, Layers: p.Layers, NarrowOnly: true}
	if c.norm {
		h.QNorm, h.KNorm = b.floats(vectors.Normals(r, c.dim)), b.floats(vectors.Normals(r, c.dim))
	}
	h.Angles.Nearest = BlockPositions // the others are found by the list
	bucket, width, longest := p.shape.Bucket, p.QHeads*p.Dim, slices.Max(c.rows)
	drawn := func(width int) []float32 {
		return append(vectors.Normals(r, p.v.Rows*width), nanRows(bucket-p.v.Rows, width)...)
	}
	q, k, v := drawn(p.QHeads*headStride(p.Dim, p.Gated)), drawn(p.KVHeads*p.Dim), drawn(p.KVHeads*p.Dim)
	pq, pk, pv := b.floats(q), b.floats(k), b.floats(v)
	gates := pq
	if !p.Gated {
		gates = 0
	}
	for _, chunks := range []int{p.chunks(), most} {
		for _, f := range c.forms() {
			units := f.split.units
			_, err := d.roomForParts(attendRoom(bucket, p.QHeads, p.Dim, chunks, units))
			b.check(err)
			var outs [2][2]driver.Ptr
			var pages [2][][]byte
			for i := range outs {
				outs[i] = [2]driver.Ptr{b.empty(4 * bucket * width), b.empty(2 * bucket * width)}
				on := pass()
				on.v.Positions = p.v.Positions
				on.shape.Pages = max(on.shape.Pages, most)
				step := b.step(on.v, on.shape)
				if i == 0 {
					narrow := b.empty(2 * len(q))
					d.RotateStore(pq, pk, pv, narrow, h, step, p.layer, bucket)
					d.attendBy(attendSplit{units: units, queries: teamQueries}, outs[i][0], outs[i][1], narrow, gates, p.Attention, step, p.layer, bucket, longest, p.shape.Spans, chunks)
				} else {
					d.freshBy(f, outs[i][0], outs[i][1], pq, pk, pv, p.Attention, h, step, p.layer, bucket, longest, p.shape.Spans, chunks)
				}
				pages[i] = b.pagesOfPass(on)
			}
			// Rows past the last stay as they were: no numbers.
			for i, read := range []func(driver.Ptr, int) []float32{b.readFloats, b.readHalves} {
				if err := vectors.Equal(read(outs[1][i], bucket*width), read(outs[0][i], bucket*width)); err != nil {
					return fmt.Errorf("%d chunks, %+v, output %d: %w", chunks, f, i, err)
				}
			}
			if !slices.EqualFunc(pages[0], pages[1], bytes.Equal) {
				return fmt.Errorf("%d chunks, %+v: other keys or values", chunks, f)
			}
		}
	}
	for i, want := range [][]float32{q, k, v} {
		if err := vectors.Equal(b.readFloats([]driver.Ptr{pq, pk, pv}[i], len(want)), want); err != nil {
			return fmt.Errorf("input %d was to stay: %w", i, err)
		}
	}
	return nil
}
