package model_test

import (
	"errors"
	"slices"
	"testing"

	"windrow/backend"
	"windrow/conformance/backendtest"
	"windrow/cpu"
	"windrow/model"
)

// Conversations that share a beginning: a fork, and one that is put together from
// exported pages, go on as the sequence itself does, to the bit.
func TestSharedBeginnings(t *testing.T) {
	m := open(t, backendtest.Tiny(t), cpu.Options{})
	for _, kvType := range []backend.KVType{backend.KVF32, backend.KVBF16, backend.KVInt8} {
		const shared = 2*backend.PageTokens + 17
		first := cache(t, m, kvType)
		forward(t, m, batch(part{first, ids(1, shared)}))
		commit(t, first, shared)
		next := ids(2, 30)

		fork, err := first.Fork(shared, 500, 300)
		if err != nil {
			t.Fatal(err)
		}
		loaded, placed := cache(t, m, kvType), cache(t, m, kvType)
		page := make([]byte, first.PageBytes())
		for i := range 2 {
			if err := first.Export(i, page); err != nil {
				t.Fatal(err)
			}
			if err := loaded.Import(page); err != nil {
				t.Fatal(err)
			}
			room, err := placed.Room(1)
			if err != nil || len(room) != 1 {
				t.Fatalf("room for a page: %d, %v", len(room), err)
			}
			copy(room[0], page)
			placed.Filled(room[0])
			if err := placed.Import(room[0]); err != nil {
				t.Fatal(err)
			}
		}
		rest := ids(1, shared)[2*backend.PageTokens:]
		for _, c := range []*model.Cache{loaded, placed} {
			forward(t, m, batch(part{c, rest}))
			commit(t, c, len(rest))
			if room, err := c.Room(1); room != nil || err != nil {
				t.Errorf("room behind half a page: %d, %v", len(room), err)
			}
		}

		alone := cache(t, m, kvType)
		forward(t, m, batch(part{alone, ids(1, shared)}))
		commit(t, alone, shared)
		want := forward(t, m, batch(part{alone, next}))
		for name, c := range map[string]*model.Cache{"fork": fork, "loaded": loaded, "placed": placed, "first": first} {
			if c.Base() != shared {
				t.Fatalf("%v, %s: %d tokens, want %d", kvType, name, c.Base(), shared)
			}
			sameLogits(t, kvType.String()+", "+name, forward(t, m, batch(part{c, next})), want)
		}
		// All at once, and back to where they were one.
		commit(t, fork, 30)
		if n, err := fork.Truncate(shared); err != nil || n != shared {
			t.Fatalf("back to %d: %v", n, err)
		}
		got := forward(t, m, batch(part{fork, next}, part{loaded, next}, part{first, next}))
		sameLogits(t, kvType.String()+", together", got, slices.Concat(want, want, want))
		fork.Close()
	}
}

// A cache refuses what it cannot hold, and says whose memory was lacking.
func TestCacheRefusals(t *testing.T) {
	m := open(t, backendtest.Tiny(t), cpu.Options{})
	c := cache(t, m, backend.KVBF16)
	forward(t, m, batch(part{c, ids(1, 70)}))
	commit(t, c, 70)
	page := make([]byte, c.PageBytes())
	for name, err := range map[string]error{
		"a page that is not full":    c.Export(1, page),
		"behind half a page":         c.Import(page),
		"more than fits":             c.Reserve(901),
		"fewer than none":            c.Reserve(-1),
		"a fork past the end":        second(c.Fork(71, 100, 5)),
		"a fork that does not fit":   second(c.Fork(70, 60, 5)),
		"a page of another's length": func() error { _, err := c.Truncate(64); return errors.Join(err, c.Import(page[1:])) }(),
	} {
		if err == nil {
			t.Errorf("%s: want an error", name)
		}
	}

	// There is room for what fits, and none that the budget lacks.
	empty := cache(t, m, backend.KVBF16)
	if room, err := empty.Room(1000); err != nil || len(room) != empty.Capacity()/backend.PageTokens {
		t.Errorf("room for %d pages of %d tokens, %v", len(room), empty.Capacity(), err)
	}
	empty.Close()

	budget := m.Backend().Budget()
	used, _ := budget.Used()
	budget.Limit(used + int64(c.PageBytes()))
	defer budget.Limit(0)
	lacks := (*backend.MemoryError)(nil)
	other := cache(t, m, backend.KVBF16)
	if err := other.Reserve(65); !errors.As(err, &lacks) {
		t.Errorf("65 tokens in a page: %v", err)
	}
	if _, err := other.Room(2); !errors.As(err, &lacks) {
		t.Errorf("room for two pages in one: %v", err)
	}
	other.Close()
	other = cache(t, m, backend.KVBF16)
	_, err := m.Forward(t.Context(), batch(part{c, ids(2, 3)}, part{other, ids(1, 65)}))
	if !errors.As(err, &lacks) || lacks.Span != 1 {
		t.Errorf("the second sequence lacks a page: %v", err)
	}
	forward(t, m, batch(part{c, ids(2, 3)}, part{other, ids(1, 64)})) // it fits in one
}

// second is a call's error.
func second(_ *model.Cache, err error) error { return err }
