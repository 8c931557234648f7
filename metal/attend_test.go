package metal

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"windrow/backend"
	"windrow/metal/emulator"
)

// Parts follow one another, and their number grows with the logarithm of the
// context: partSize and partStart are those of attend.h.metal.
func TestAttendParts(t *testing.T) {
	partSize := func(part int) int {
		if part < 8 {
			return 64
		}
		return 128 << ((part - 8) / 4)
	}
	partStart := func(part int) int {
		if part < 8 {
			return 64 * part
		}
		return (4 + part%4) * partSize(part)
	}
	for part := range 50 {
		start, end := partStart(part), partStart(part)+partSize(part)
		if next := partStart(part + 1); next != end {
			t.Errorf("part %d ends at slot %d, the next one starts at %d", part, end, next)
		}
		if a, b := attendParts(start+1), attendParts(end); a != part+1 || b != part+1 {
			t.Errorf("contexts of %d and %d slots have %d and %d parts, want %d", start+1, end, a, b, part+1)
		}
		if part%4 == 0 && partSize(part+3) != partSize(part) {
			t.Errorf("parts %d to %d have several sizes", part, part+3)
		}
	}
	if n := attendParts(32768); n != 32 {
		t.Errorf("32768 slots have %d parts, want 32", n)
	}
}

// The cost of a span is that of the keys and values which any of its rows sees,
// and of the pairs of rows and keys.
func TestAttendCost(t *testing.T) {
	for _, c := range []attendCase{
		{context: 40, rows: 40},
		{context: 50, rows: 7},
		{context: 50, rows: 7, slots: 40, window: 30, keep: 4},
		{context: 33, rows: 7, slots: 40, window: 30, keep: 4},
		{context: 5, rows: 3, slots: 40, window: 30, keep: 4},
		{context: 90, rows: 1, slots: 40, window: 30},
	} {
		layout := backend.Layout{Slots: c.slots, Window: c.window, Keep: c.keep}
		pairs, seen := 0, map[int]bool{}
		for index := c.context - c.rows; index < c.context; index++ {
			for i := range index + 1 {
				if i < c.keep || i >= layout.Visible(index) {
					pairs++
					seen[i] = true
				}
			}
		}
		const heads, kvHeads, dim = 6, 2, 80
		kv := kvView{k: view{elem: elemBytes}, dtype: backend.KVInt8, slots: c.slots, window: c.window, keep: c.keep}
		got := attendCost(view{elem: elemBF16}, kv, c.context-c.rows, c.rows, heads, kvHeads, dim)
		n := int64(c.rows * heads * dim * 2)
		want := cost{read: n + int64(len(seen)*kvHeads*2*(dim+2*4)), written: n, flops: int64(4 * pairs * heads * dim)}
		if got != want {
			t.Errorf("%+v: cost %+v, want %+v", c, got, want)
		}
	}
}

// Every case of the self-tests, by all element types.
func TestAttendEveryCase(t *testing.T) {
	if os.Getenv("WINDROW_SLOW") == "" {
		t.Skip("minutes on the emulator: set WINDROW_SLOW=1")
	}
	for _, queries := range []elem{elemBF16, elemF32} {
		for _, kv := range attendTypes {
			t.Run(fmt.Sprintf("%s, kv %s", queries.name(), kv.name()), func(t *testing.T) {
				t.Parallel()
				d := testDevice(t, emulator.Fast, 2)
				r := rand.New(rand.NewPCG(12, 1))
				try := func(cases [][]attendCase, check func(*bed, *attendSpan) error) {
					for _, list := range cases {
						for _, c := range list {
							s := newAttendSpan(r, c, queries, kv)
							if err := withBed(d, func(b *bed) error { return check(b, s) }); err != nil {
								t.Errorf("%+v: %v", c, err)
							}
						}
					}
				}
				try(decodeCases, checkDecode)
				try(prefillCases, checkPrefill)
			})
		}
	}
}
