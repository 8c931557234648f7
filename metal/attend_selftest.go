package metal

import (
	"fmt"
	"math/rand/v2"
)

func init() {
	for _, queries := range []elem{elemBF16, elemF32} {
		for _, kv := range attendTypes {
			types := fmt.Sprintf("%s, kv %s", queries.name(), kv.name())
			registerSelfTest("decode attention "+types, func(d *device) error {
				return checkAttend(d, decodeCases, queries, kv, checkDecode)
			})
			registerSelfTest("prefill attention "+types, func(d *device) error {
				return checkAttend(d, prefillCases, queries, kv, checkPrefill)
			})
		}
	}
}

// decodeCases have contexts around the borders of parts, 1 to 33 rows, 1 to 12
// blocks of query vectors, scores up to 100 either way.
var decodeCases = []attendCase{
	{context: 1, rows: 1, dim: 64, kvHeads: 1, group: 1},
	{context: 63, rows: 2, dim: 128, kvHeads: 2, group: 3},
	{context: 64, rows: 7, dim: 80, kvHeads: 1, group: 8},
	{context: 65, rows: 16, dim: 6, kvHeads: 2, group: 2},
	{context: 65, rows: 16, dim: 64, kvHeads: 2, group: 2},
	{context: 200, rows: 32, dim: 64, kvHeads: 1, group: 3},
	{context: 200, rows: 16, dim: 128, kvHeads: 1, group: 2, spread: 32},
	{context: 70, rows: 33, dim: 64, kvHeads: 1, group: 1},
	{context: 1300, rows: 3, dim: 64, kvHeads: 1, group: 2},
	{context: 70, rows: 3, dim: 260, kvHeads: 1, group: 1},
	{context: 130, rows: 16, dim: 64, kvHeads: 1, group: 1, slots: 300, window: 100, keep: 5},
	{context: 310, rows: 16, dim: 64, kvHeads: 2, group: 2, slots: 116, window: 100, keep: 5},
	{context: 75, rows: 7, dim: 128, kvHeads: 1, group: 1, slots: 47, window: 40},
}

var prefillCases = []attendCase{
	{context: 1, rows: 1, dim: 64, kvHeads: 1, group: 1},
	{context: 65, rows: 33, dim: 80, kvHeads: 2, group: 2},
	{context: 64, rows: 63, dim: 64, kvHeads: 1, group: 3},
	{context: 100, rows: 100, dim: 64, kvHeads: 2, group: 1},
	{context: 200, rows: 100, dim: 128, kvHeads: 1, group: 2, spread: 32},
	{context: 63, rows: 33, dim: 6, kvHeads: 1, group: 8},
	{context: 70, rows: 40, dim: 260, kvHeads: 1, group: 1},
	{context: 330, rows: 100, dim: 64, kvHeads: 1, group: 2, slots: 200, window: 100, keep: 5},
}

func checkAttend(d *device, cases []attendCase, queries elem, kv kvView, check func(*bed, *attendSpan) error) error {
	r := rand.New(rand.NewPCG(11, uint64(kv.k.elem)))
	for _, c := range cases {
		s := newAttendSpan(r, c, queries, kv)
		if err := withBed(d, func(b *bed) error { return check(b, s) }); err != nil {
			return fmt.Errorf("%+v: %w", c, err)
		}
	}
	return nil
}

// tolerance is by relative norm of a head's vector. Operands are exact, so in
// bf16 what remains is the rounding of the probabilities and of the result, up to
// 2^-9 each of every term; in f32 a score of 100 is known to 2^-17 at worst, and
// so is the weight that comes of it.
func (s *attendSpan) tolerance() float64 {
	t := 2e-5
	if s.spread != 0 {
		t = 1e-4
	}
	if s.operand() == elemBF16 {
		t += 2.5e-3
	}
	if s.queries == elemBF16 {
		t += 2e-3
	}
	return t
}

// run gives the attention of n rows from row skip on, as a span of their own,
// and holds what lies after dst against being written.
func (s *attendSpan) run(b *bed, q view, kv kvView, skip, n int, decode bool) (got []float32, err error) {
	base, row := s.context-s.rows+skip, s.width()*s.queries.size()
	dst, scratch := b.empty((n+1)*s.width(), s.queries), view{}
	if decode {
		scratch = b.empty(attendScratch(n, s.heads(), s.dim, base+n)/4, elemF32)
	}
	b.run(func(e encoder) {
		attend(e, dst, q.at(skip*row), kv, scratch, base, n, s.heads(), s.kvHeads, s.dim, s.scale(), decode)
	})
	return b.read(dst, n*s.width()), untouched(dst.at(n * row).bytes()[:row])
}

// near holds the rows of the whole span against the reference.
func (s *attendSpan) near(got []float32) error {
	for i := 0; i < len(got); i += s.dim {
		if err := near(got[i:i+s.dim], s.want[i:i+s.dim], s.tolerance()); err != nil {
			return fmt.Errorf("row %d, head %d: %w", i/s.width(), i%s.width()/s.dim, err)
		}
	}
	return nil
}

// capacity is what a storage that grows may have for the case's indices.
func (s *attendSpan) capacity() int { return min(s.context, s.slots) }

func checkPrefill(b *bed, s *attendSpan) error {
	got, err := s.run(b, b.values(s.q, s.queries), s.store(b, s.capacity()), 0, s.rows, false)
	if err != nil {
		return err
	}
	return s.near(got)
}

// checkDecode also holds rows in spans of every number of blocks, and in
// storage of another capacity, against the bits that they had.
func checkDecode(b *bed, s *attendSpan) error {
	q, kv := b.values(s.q, s.queries), s.store(b, s.capacity())
	got, err := s.run(b, q, kv, 0, s.rows, true)
	if err != nil {
		return err
	}
	if err := s.near(got); err != nil {
		return err
	}
	for i, n := range []int{1, 2, 7, 16} {
		for _, skip := range []int{0, (s.rows - n) / 2, s.rows - n}[min(i, 2):] {
			if n >= s.rows {
				continue
			}
			alone, err := s.run(b, q, kv, skip, n, true)
			if err == nil {
				err = equal(alone, got[skip*s.width():(skip+n)*s.width()])
			}
			if err != nil {
				return fmt.Errorf("rows %d to %d alone: %w", skip, skip+n-1, err)
			}
		}
	}
	roomy, err := s.run(b, q, s.store(b, s.slots), 0, s.rows, true)
	if err == nil {
		err = equal(roomy, got)
	}
	if err != nil {
		return fmt.Errorf("capacity %d instead of %d: %w", s.slots, s.capacity(), err)
	}
	return nil
}
