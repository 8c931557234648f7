package launch

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/cuda/driver"
)

func init() {
	for _, t := range []backend.KVType{backend.KVBF16, backend.KVInt8} {
		registerSelfTest("decode attention "+t.String(), func(d *Device) error { return checkAttendDecode(d, t, decodeCases) })
	}
	registerSelfTest("decode attention by wgmma", checkDecodeHopper)
}

// decodeCases have contexts at the borders of pages, of blocks of 4 and 16 of
// them, 1 to 32 rows, and up to 160 query vectors a KV head.
var decodeCases = []attendCase{
	{dim: 128, kvHeads: 1, group: 4, bases: []int{0, 63, 64, 130}, rows: []int{1, 1, 3, 4}},
	{dim: 64, kvHeads: 2, group: 2, bases: []int{250, 1100}, rows: []int{8, 2}},
	{dim: 64, kvHeads: 1, group: 5, bases: []int{240}, rows: []int{32}},
	{dim: 128, kvHeads: 1, group: 1, bases: []int{1020, 5}, rows: []int{5, 2}},
	{dim: 64, kvHeads: 1, group: 3, window: 100, keep: 5, slots: 116, bases: []int{0, 93, 300, 1000}, rows: []int{4, 16, 3, 1}},
	{dim: 128, kvHeads: 1, group: 2, window: 256, keep: 0, slots: 288, bases: []int{250, 700}, rows: []int{17, 2}},
	{dim: 128, kvHeads: 1, group: 2, bases: []int{1100, 130, 0, 500}, rows: []int{16, 9, 3, 1}},
	{dim: 128, kvHeads: 1, group: 4, bases: []int{700, 300}, rows: []int{16, 2}},
	{dim: 256, kvHeads: 2, group: 3, gated: true, bases: []int{330, 60, 700}, rows: []int{3, 1, 7}},
	{dim: 256, kvHeads: 1, group: 16, gated: true, bases: []int{70}, rows: []int{4}},
	{dim: 64, kvHeads: 1, group: 2, gated: true, bases: []int{130}, rows: []int{2}},
}

// decodeHopperCases have up to three tiles of 64 query vectors, some not full, contexts
// of up to 20 units, which end in a group of units of either warpgroup, and rings.
var decodeHopperCases = []attendCase{
	{dim: 128, kvHeads: 2, group: 4, bases: []int{512, 0, 77, 250}, rows: []int{16, 1, 32, 7}},
	{dim: 128, kvHeads: 1, group: 7, bases: []int{1210, 64}, rows: []int{24, 9}},
	{dim: 128, kvHeads: 1, group: 8, window: 700, keep: 4, slots: 760, bases: []int{0, 690, 3000}, rows: []int{9, 16, 5}},
}

// checkDecodeHopper does nothing on devices that attend_decode_hopper.cu is not for.
func checkDecodeHopper(d *Device) error {
	a := Attention{KV: backend.KVBF16, Dim: 128}
	if !d.hopperDecodes(a) {
		return d.flash.decode.refused
	}
	return checkAttendDecode(d, a.KV, decodeHopperCases)
}

func checkAttendDecode(d *Device, t backend.KVType, cases []attendCase) error {
	r := rand.New(rand.NewPCG(7, uint64(t)))
	for _, c := range cases {
		if c.dim == 256 && !d.AttendTakes(Attention{QHeads: 1, KVHeads: 1, Dim: 256, KV: t}) {
			continue // a block has too little shared memory
		}
		if err := checkDecodeCase(d, r, c, t); err != nil {
			return fmt.Errorf("%+v: %w", c, err)
		}
	}
	return nil
}

// attendPass is a pass of random queries over stored keys and values.
type attendPass struct {
	Attention
	layer int
	v     *StepValues
	shape StepShape
	spans []storedSpan
	q     []float32 // [rows, heads · dim], whole bf16 numbers; gated: queries and gates, [rows, heads, 2, dim]
	want  []float64 // attention of q
}

// newAttendPass makes a case's pass, with queries that are bf16 numbers.
func (b *bed) newAttendPass(r *rand.Rand, c attendCase, t backend.KVType) *attendPass {
	p := &attendPass{
		Attention: Attention{QHeads: c.kvHeads * c.group, KVHeads: c.kvHeads, Dim: c.dim, Scale: float32(1 / math.Sqrt(float64(c.dim))), KV: t, Layers: 2, Gated: c.gated},
		layer:     1, v: &StepValues{}, shape: StepShape{Spans: PowerOfTwo(len(c.bases))},
	}
	for i, base := range c.bases {
		l := backend.KeysLayout(p.Layers, c.kvHeads, c.dim, t, base+c.rows[i]+3)
		l.Window, l.Keep = c.window, c.keep
		if c.window > 0 {
			l.Slots = c.slots
		}
		s := b.stored(r, l, p.layer, base, p.v.Rows, c.rows[i])
		p.spans, p.v.Spans = append(p.spans, s), append(p.v.Spans, s.span)
		p.v.Rows += c.rows[i]
		p.shape.Pages += pagesOf(s.span.Storage.Layout())
	}
	p.shape.Bucket = RowBucket(p.v.Rows)
	width, stride := p.QHeads*p.Dim, headStride(p.Dim, p.Gated)
	p.q = vectors.Normals(r, p.v.Rows*p.QHeads*stride)
	for i := range p.q {
		p.q[i] *= 2
	}
	p.q = rounded(p.q)
	p.want = make([]float64, p.v.Rows*width)
	for _, s := range p.spans {
		for i := range s.span.Rows {
			for h := range p.QHeads {
				at := (s.span.First+i)*width + h*p.Dim
				q := p.q[at/p.Dim*stride:][:stride]
				s.attendReference(p.want[at:at+p.Dim], q[:p.Dim], s.span.Base+i, h/p.group(), float64(p.Scale))
				for j, g := range q[p.Dim:] {
					p.want[at+j] /= 1 + math.Exp(-float64(g))
				}
			}
		}
	}
	return p
}

// gates uploads queries with gates, in f32; 0 without gates.
func (p *attendPass) gates(b *bed, q []float32) driver.Ptr {
	if !p.Gated {
		return 0
	}
	return b.floats(q)
}

// chunks is what the planner makes of the longest context.
func (p *attendPass) chunks() int {
	slots := 1
	for _, s := range p.v.Spans {
		slots = max(slots, min(s.Base+s.Rows, s.Storage.Layout().Slots))
	}
	return PowerOfTwo((slots + ChunkSlots - 1) / ChunkSlots)
}

// nanRows are rows that a kernel must not write, or must not read.
func nanRows(rows, width int) []float32 {
	return slices.Repeat([]float32{float32(math.NaN())}, rows*width)
}

// checkDecodeCase: queries, keys and values are exact; the probabilities are
// rounded to bf16, which costs up to 2^-9 of each term of a sum. With int8 they
// are rounded after the values' scales are in, so that the weights by which the
// sum is divided do not share the error.
func checkDecodeCase(d *Device, r *rand.Rand, c attendCase, t backend.KVType) error {
	tolerance := 2.5e-3
	if t == backend.KVInt8 {
		tolerance = 4e-3
	}
	b := &bed{d: d}
	defer b.free()
	defer d.freeParts()
	p := b.newAttendPass(r, c, t)
	width, wide := p.QHeads*p.Dim, p.QHeads*headStride(p.Dim, p.Gated)

	decode := func(v *StepValues, q []float32, bucket, chunks int, split attendSplit) ([]float32, error) {
		shape := p.shape
		shape.Bucket = bucket
		longest := 0
		for _, span := range v.Spans {
			longest = max(longest, span.Rows)
		}
		_, err := d.roomForParts(attendRoom(bucket, p.QHeads, p.Dim, chunks, split.units))
		b.check(err)
		out, out16 := b.empty(4*bucket*width), b.empty(2*bucket*width)
		q = append(slices.Clone(q), nanRows(bucket-v.Rows, wide)...)
		d.attendBy(split, out, out16, b.halves(q), p.gates(b, q), p.Attention, b.step(v, shape), p.layer, bucket, longest, shape.Spans, chunks)
		got := b.readFloats(out, bucket*width)
		n := v.Rows * width
		if err := vectors.Equal(got[n:], nanRows(bucket-v.Rows, width)); err != nil {
			return nil, fmt.Errorf("rows past the last: %w", err)
		}
		if err := vectors.Equal(b.readHalves(out16, n), rounded(got[:n])); err != nil {
			return nil, fmt.Errorf("as bf16: %w", err)
		}
		return got[:n], nil
	}

	got, err := decode(p.v, p.q, p.shape.Bucket, p.chunks(), attendSplit{units: 1, queries: 64})
	if err != nil {
		return err
	}
	for i := 0; i < len(got); i += p.Dim {
		if err := vectors.Near(got[i:i+p.Dim], p.want[i:i+p.Dim], tolerance); err != nil {
			return fmt.Errorf("row %d, head %d: %w", i/width, i%width/p.Dim, err)
		}
	}
	// Other splits of the context, and other buckets.
	type way struct {
		bucket, chunks int
		split          attendSplit
	}
	ways := []way{
		{p.shape.Bucket, p.chunks(), attendSplit{units: 4, queries: 32}},
		{p.shape.Bucket, p.chunks(), attendSplit{units: 16, queries: 64}},
		{p.shape.Bucket, 4 * p.chunks(), attendSplit{units: 4, queries: 64}},
		{p.shape.Bucket + 8, 16 * p.chunks(), attendSplit{units: 16, queries: 16}},
	}
	if d.hopperDecodes(p.Attention) {
		ways = append(ways, way{p.shape.Bucket, p.chunks(), attendSplit{16, 64, true}}, way{p.shape.Bucket + 8, 4 * p.chunks(), attendSplit{4, 64, true}})
	}
	for _, o := range ways {
		other, err := decode(p.v, p.q, o.bucket, o.chunks, o.split)
		if err == nil {
			err = vectors.Equal(other, got)
		}
		if err != nil {
			return fmt.Errorf("%+v: %w", o, err)
		}
	}
	// The first and the last row of each span alone.
	for _, s := range p.v.Spans {
		for _, skip := range []int{0, s.Rows - 1} {
			alone := &StepValues{Rows: 1, Spans: []backend.Span{{Storage: s.Storage, Base: s.Base + skip, Rows: 1}}}
			from := (s.First + skip) * width
			one, err := decode(alone, p.q[(s.First+skip)*wide:][:wide], 8, p.chunks(), attendSplit{units: 4, queries: 64})
			if err == nil {
				err = vectors.Equal(one, got[from:from+width])
			}
			if err != nil {
				return fmt.Errorf("row %d alone: %w", skip, err)
			}
		}
	}
	return nil
}
