package backendtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"windrow/backend"
)

// told are the bits of a forward's results.
func (s *small) told(t *testing.T, f backend.Forward, kv backend.Storage, base, rows int) []backend.Result {
	t.Helper()
	return run(t, f, s.values(kv, base, rows, each(0, rows, backend.Wanted{TopK: 2, Logits: true})...))
}

// storageTypes runs a test with each type of keys and values.
func storageTypes(t *testing.T, b backend.Backend, test func(t *testing.T, m *small)) {
	for _, kvType := range kvTypes(b) {
		t.Run(kvType.String(), func(t *testing.T) {
			if testing.Short() && kvType != backend.KVBF16 {
				t.Skip("other keys and values than bf16: leave -short out")
			}
			m := newSmall(t, b, backend.NoBars)
			m.layout.DType = kvType
			test(t, m)
		})
	}
}

// testFork: a fork goes on as what it was forked from would have, to the bit, and
// neither sees what the other writes, also into a page that they share.
func testFork(t *testing.T, b backend.Backend) {
	storageTypes(t, b, func(t *testing.T, m *small) {
		f := m.list().compile()
		defer f.Close()
		const held = 150
		alone := func(n int) []backend.Result {
			kv := m.storage(t)
			defer kv.Close()
			if n > 0 {
				m.told(t, f, kv, 0, n)
			}
			return m.told(t, f, kv, n, 20)
		}
		parent := m.storage(t)
		m.told(t, f, parent, 0, held)
		before, _ := b.Budget().Used()
		for _, n := range []int{0, 1, 63, 64, 65, 128, held} {
			what := fmt.Sprintf("fork at %d", n)
			want := alone(n)
			child, err := parent.Fork(n, 400)
			if err != nil {
				t.Fatal(err)
			}
			// A fork outlives its parent, and may be forked.
			grandchild, err := child.Fork(n, 300)
			if err != nil {
				t.Fatal(err)
			}
			sameResults(t, what, m.told(t, f, child, n, 20), want)
			sameResults(t, what+", beside it", m.told(t, f, grandchild, n, 20), want)
			child.Close()
			sameResults(t, what+", its fork", m.told(t, f, grandchild, n, 20), want)
			// Back into what is shared: the others keep it.
			if n > 10 {
				m.told(t, f, grandchild, 5, 3)
			}
			grandchild.Close()
		}
		sameResults(t, "the parent", m.told(t, f, parent, held, 20), alone(held))
		parent.Close()
		if after, _ := b.Budget().Used(); after > before {
			t.Errorf("%d bytes are taken, %d before the forks", after, before)
		}
		for _, bad := range [][2]int{{-1, 400}, {500, 600}, {10, 9}} {
			if c, err := m.storage(t).Fork(bad[0], bad[1]); err == nil {
				c.Close()
				t.Errorf("a fork of %d tokens with %d slots: want an error", bad[0], bad[1])
			}
		}
		if c, err := parent.Fork(0, 10); err == nil {
			c.Close()
			t.Error("a fork of closed storage: want an error")
		}
	})
	l := backend.KeysLayout(1, 1, 32, backend.KVF32, 40)
	l.Window, l.Keep = 20, 2
	turning, err := b.NewStorage(l)
	if err != nil {
		t.Fatal(err)
	}
	defer turning.Close()
	if c, err := turning.Fork(0, 40); err == nil {
		c.Close()
		t.Error("a fork of rotating storage: want an error")
	}
	for _, c := range []struct{ n, base, want int }{{7, 15, 7}, {20, 20, 20}, {30, 30, 30}, {25, 30, 2}, {1, 30, 1}} {
		if got := turning.Reach(c.n, c.base); got != c.want {
			t.Errorf("back to %d of %d reaches %d, want %d", c.n, c.base, got, c.want)
		}
	}
}

// testExport: a sequence of imported pages goes on as the one that they were exported
// from, to the bit, and exports the same bytes; also where pages were put into its memory.
func testExport(t *testing.T, b backend.Backend) {
	storageTypes(t, b, func(t *testing.T, m *small) {
		f := m.list().compile()
		defer f.Close()
		const pages = 2
		from, to, placed := m.storage(t), m.storage(t), m.storage(t)
		m.told(t, f, from, 0, pages*backend.PageTokens)
		want := m.told(t, f, from, pages*backend.PageTokens, 20)
		page, again := make([]byte, m.layout.Keys().ExportedPage()), make([]byte, m.layout.Keys().ExportedPage())
		for i := range pages {
			if err := from.Export(i, page); err != nil {
				t.Fatal(err)
			}
			if bytes.Count(page, []byte{0}) > len(page)/2 {
				t.Fatalf("page %d is mostly zeros", i)
			}
			if err := to.Import(i, page); err != nil {
				t.Fatal(err)
			}
			into := page
			if s, ok := placed.(backend.RoomStorage); ok {
				room, err := s.Room(i)
				if err != nil || len(room) != len(page) {
					t.Fatalf("room for page %d: %d bytes, %v", i, len(room), err)
				}
				copy(room, page)
				s.Filled(room)
				into = room
			}
			if err := placed.Import(i, into); err != nil {
				t.Fatal(err)
			}
			for _, s := range []backend.Storage{to, placed} {
				if err := s.Export(i, again); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(page, again) {
					t.Errorf("page %d is other bytes when it is exported again", i)
				}
			}
		}
		if s, ok := placed.(backend.RoomStorage); ok {
			for _, i := range []int{-1, pages + 1, 100} {
				if _, err := s.Room(i); err == nil {
					t.Errorf("room for page %d behind %d: want an error", i, pages)
				}
			}
		}
		sameResults(t, "put into its memory", m.told(t, f, placed, pages*backend.PageTokens, 20), want)
		sameResults(t, "imported", m.told(t, f, to, pages*backend.PageTokens, 20), want)
		sameResults(t, "exported", m.told(t, f, from, pages*backend.PageTokens, 20), want)
		for name, err := range map[string]error{
			"a page that was never written": to.Export(5, page),
			"page -1":                       to.Export(-1, page),
			"too short":                     to.Export(0, page[1:]),
			"past the end":                  to.Import(100, page),
			"too long":                      to.Import(3, append(page, 0)),
		} {
			if err == nil {
				t.Errorf("%s: want an error", name)
			}
		}
	})
}

// RunStorage runs the short parts of the suite about storage, and what a forward asks of it.
func RunStorage(t *testing.T, b backend.Backend) {
	t.Run("export", func(t *testing.T) { testExport(t, b) })
	t.Run("budget", func(t *testing.T) { testBudget(t, b) })
	t.Run("values", func(t *testing.T) { testValues(t, b) })
}

// testBudget: what is refused takes nothing, the error says whose it was, and all of it
// comes back.
func testBudget(t *testing.T, b backend.Backend) {
	m := newSmall(t, b, backend.NoBars)
	f := m.list().compile()
	defer f.Close()
	start, _ := b.Budget().Used()
	if start != 0 {
		t.Fatalf("%d bytes are taken before anything was stored", start)
	}
	page := m.layout.Keys().PageBytes()
	b.Budget().Limit(3*page + page/2)
	defer b.Budget().Limit(0)
	one, two := m.storage(t), m.storage(t)
	if err := one.Reserve(2 * backend.PageTokens); err != nil {
		t.Fatal(err)
	}
	lacks := (*backend.MemoryError)(nil)
	if err := two.Reserve(2 * backend.PageTokens); !errors.As(err, &lacks) || lacks.Span != -1 {
		t.Errorf("a fourth page of three and a half: %v", err)
	}
	if used, _ := b.Budget().Used(); used != 2*page || one.Bytes() != 2*page || two.Bytes() != 0 {
		t.Errorf("%d bytes are taken, storages have %d and %d, want two pages of %d", used, one.Bytes(), two.Bytes(), page)
	}
	// The second sequence of a forward lacks a page.
	v := m.values(one, 0, 2*backend.PageTokens)
	w := m.values(two, 0, backend.PageTokens+1, backend.Wanted{Row: 3 * backend.PageTokens})
	v.Tokens, v.Positions, v.Want = append(v.Tokens, w.Tokens...), append(v.Positions, w.Positions...), w.Want
	v.Spans = append(v.Spans, backend.Span{Storage: two, First: 2 * backend.PageTokens, Rows: backend.PageTokens + 1})
	if err := f.Start(context.Background(), v); !errors.As(err, &lacks) || lacks.Span != 1 {
		t.Errorf("the second sequence lacks a page: %v", err)
	}
	one.Close()
	if err := f.Start(context.Background(), m.values(two, 0, backend.PageTokens+1)); err != nil {
		t.Errorf("with room: %v", err)
	} else if _, err := f.Wait(); err != nil {
		t.Error(err)
	}
	shared, err := two.Fork(backend.PageTokens, 100)
	if err != nil {
		t.Fatal(err)
	}
	if used, limit := b.Budget().Used(); used != 2*page || limit != 3*page+page/2 {
		t.Errorf("%d of %d bytes are taken with a shared page, want %d", used, limit, 2*page)
	}
	two.Close()
	if used, _ := b.Budget().Used(); used != page {
		t.Errorf("%d bytes are taken, want the page that the fork has", used)
	}
	shared.Close()
	if used, _ := b.Budget().Used(); used != 0 {
		t.Errorf("%d bytes are taken when all is closed", used)
	}
	if _, err := b.NewStorage(backend.Layout{Layers: []backend.LayerStore{{Kind: backend.StoreState, State: backend.StateShape{KeyHeads: 1, ValueHeads: 1, KeyDim: 4, ValueDim: 4, Conv: 2}}}, Slots: 10, LogRows: 2}); err != nil {
		if lacks := (*backend.UnsupportedError)(nil); !errors.As(err, &lacks) {
			t.Errorf("a state: %v", err)
		}
	}
}
