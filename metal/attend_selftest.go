package metal

import (
	"fmt"
	"math/rand/v2"

	"windrow/backend/vectors"
)

func init() {
	for i, queries := range []elem{elemBF16, elemF32} {
		for j, kv := range attendTypes {
			types, number := fmt.Sprintf("%s, kv %s", queries.name(), kv.name()), i*len(attendTypes)+j
			registerSelfTest("decode attention "+types, func(d *device) error {
				return checkAttend(d, decodeCases, number, queries, kv, checkDecode)
			})
			registerSelfTest("prefill attention "+types, func(d *device) error {
				return checkAttend(d, prefillCases, number, queries, kv, checkPrefill)
			})
		}
	}
}

// decodeCases have contexts around the borders of parts, 1 to 33 rows, 1 to 12
// blocks of query vectors, scores up to 100 either way; by the kernels of heads
// of 64, of 128 and of 256, and by that of any.
var decodeCases = [][]attendCase{
	{
		{context: 1, rows: 1, dim: 64, kvHeads: 1, group: 1},
		{context: 200, rows: 32, dim: 64, kvHeads: 1, group: 3},
		{context: 65, rows: 16, dim: 64, kvHeads: 2, group: 2},
		{context: 1300, rows: 3, dim: 64, kvHeads: 1, group: 2},
		{context: 130, rows: 16, dim: 64, kvHeads: 1, group: 1, slots: 300, window: 100, keep: 5},
		{context: 310, rows: 16, dim: 64, kvHeads: 2, group: 2, slots: 116, window: 100, keep: 5},
		{context: 70, rows: 33, dim: 64, kvHeads: 1, group: 1},
	},
	{
		{context: 63, rows: 2, dim: 128, kvHeads: 2, group: 3},
		{context: 200, rows: 16, dim: 128, kvHeads: 1, group: 2, spread: 32},
		{context: 64, rows: 7, dim: 80, kvHeads: 1, group: 8},
		{context: 75, rows: 7, dim: 128, kvHeads: 1, group: 1, slots: 47, window: 40},
	},
	{
		{context: 65, rows: 16, dim: 6, kvHeads: 2, group: 2, gated: true},
		{context: 70, rows: 3, dim: 260, kvHeads: 1, group: 2},
	},
	{
		{context: 70, rows: 3, dim: 256, kvHeads: 1, group: 8, gated: true},
		{context: 70, rows: 3, dim: 132, kvHeads: 1, group: 2},
	},
}

var prefillCases = [][]attendCase{
	{
		{context: 64, rows: 63, dim: 64, kvHeads: 1, group: 3},
		{context: 1, rows: 1, dim: 64, kvHeads: 1, group: 1},
		{context: 100, rows: 100, dim: 64, kvHeads: 2, group: 1},
		{context: 330, rows: 100, dim: 64, kvHeads: 1, group: 2, slots: 200, window: 100, keep: 5},
	},
	{
		{context: 200, rows: 100, dim: 128, kvHeads: 1, group: 1, spread: 32},
		{context: 65, rows: 33, dim: 80, kvHeads: 2, group: 2},
	},
	{
		{context: 63, rows: 33, dim: 6, kvHeads: 1, group: 8},
		{context: 70, rows: 33, dim: 132, kvHeads: 1, group: 1, gated: true},
	},
	{
		{context: 66, rows: 35, dim: 256, kvHeads: 1, group: 2, gated: true},
	},
}

// checkAttend runs two cases of the first list, and one of each other, the next
// ones for the next element types: every kernel is run and every case, but not
// every case by all element types.
func checkAttend(d *device, cases [][]attendCase, number int, queries elem, kv kvView, check func(*bed, *attendSpan) error) error {
	r := rand.New(rand.NewPCG(11, uint64(number)))
	number += number / len(attendTypes)
	var some []attendCase
	for i, list := range cases {
		some = append(some, list[number%len(list)])
		if i == 0 {
			some = append(some, list[(number+len(list)/2)%len(list)])
		}
	}
	for _, c := range some {
		s := newAttendSpan(r, c, queries, kv)
		if err := withBed(d, func(b *bed) error { return check(b, s) }); err != nil {
			return fmt.Errorf("%+v: %w", c, err)
		}
	}
	return nil
}

// tolerance is by relative norm of a head's vector. Operands are exact, so in
// bf16 what remains is the rounding of the probabilities and of the result; in
// f32 a score of 100 is known to 2^-17 at worst, and so is the weight that comes
// of it.
func (s *attendSpan) tolerance() float64 {
	t := 2e-5
	if s.spread != 0 {
		t = 1e-4
	}
	if s.operand() == elemBF16 {
		t += roundoff(elemBF16)
	}
	if s.queries == elemBF16 {
		t += roundoff(elemBF16)
	}
	return t
}

// run gives the attention of n rows from row skip on, as a span of their own,
// and checks that nothing after dst is written.
func (s *attendSpan) run(b *bed, q view, kv kvView, skip, n int, decode bool) (got []float32, err error) {
	base, row := s.context-s.rows+skip, s.width()*s.queries.size()
	stride := s.heads() * qStride(s.dim, s.gated) * s.queries.size()
	dst, scratch := b.empty((n+1)*s.width(), s.queries), view{}
	if decode {
		scratch = b.empty(attendScratch(n, s.heads(), s.dim, base+n)/4, elemF32)
	}
	b.run(func(e encoder) {
		attend(e, dst, q.at(skip*stride), kv, scratch, base, n, s.heads(), s.kvHeads, s.dim, s.scale(), s.gated, decode)
	})
	return b.read(dst, n*s.width()), untouched(dst.at(n * row).bytes()[:row])
}

// near compares the rows of the whole span with the reference.
func (s *attendSpan) near(got []float32) error {
	for i := 0; i < len(got); i += s.dim {
		if err := vectors.Near(got[i:i+s.dim], s.want[i:i+s.dim], s.tolerance()); err != nil {
			return fmt.Errorf("row %d, head %d: %w", i/s.width(), i%s.width()/s.dim, err)
		}
	}
	return nil
}

// held is how many slots hold something.
func (s *attendSpan) held() int { return min(s.context, s.slots) }

func checkPrefill(b *bed, s *attendSpan) error {
	got, err := s.run(b, b.values(s.q, s.queries), s.store(b, s.held(), false), 0, s.rows, false)
	if err != nil {
		return err
	}
	return s.near(got)
}

// checkDecode also compares rows in spans of other numbers of blocks, in other pages,
// with the bits that they had.
func checkDecode(b *bed, s *attendSpan) error {
	q := b.values(s.q, s.queries)
	got, err := s.run(b, q, s.store(b, s.held(), false), 0, s.rows, true)
	if err != nil {
		return err
	}
	if err := s.near(got); err != nil {
		return err
	}
	roomy := s.store(b, s.slots, true)
	for _, n := range []int{1, 2, 7, 16} {
		skip := n * (s.rows - n) / 16 // from the first rows to the last
		if n > s.rows {
			break
		}
		alone, err := s.run(b, q, roomy, skip, n, true)
		if err == nil {
			err = vectors.Equal(alone, got[skip*s.width():(skip+n)*s.width()])
		}
		if err != nil {
			return fmt.Errorf("rows %d to %d alone: %w", skip, skip+n-1, err)
		}
	}
	return nil
}
