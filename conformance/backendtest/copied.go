package backendtest

import (
	"math/rand/v2"
	"testing"

	"windrow/backend"
	"windrow/model"
)

// Copied exports a cache of a hybrid and imports it into a fresh one, as of some index that
// one of its places goes back to; nil: it has no states to go back to. What is there of a
// last page is all that leaves the cache.
func Copied(t *testing.T, r *rand.Rand, c *model.Cache, fresh func() *model.Cache) *model.Cache {
	t.Helper()
	places := c.Places()
	if len(places) == 0 {
		return nil
	}
	p := places[r.IntN(len(places))]
	end := max(1, p.From+r.IntN(p.End-p.From+1))
	if got := c.Reach(end); got != end {
		t.Fatalf("states of %+v: %d is not reached, but %d", p, end, got)
	}
	y := fresh()
	page := make([]byte, c.PageBytes())
	for i := 0; i*backend.PageTokens < end; i++ {
		for k := range page {
			page[k] = 0xff
		}
		if err := c.Export(i, page); err != nil {
			t.Fatal(err)
		}
		if err := y.Import(page); err != nil || y.Base() != 0 {
			t.Fatal(err, y.Base())
		}
	}
	states := make([]byte, c.StatesBytes(p))
	if err := c.ExportStates(p, states); err != nil {
		t.Fatal(err)
	}
	if err := y.ImportStates(p, end, states); err != nil || y.Base() != end {
		t.Fatal(err, y.Base())
	}
	if got := y.Places(); len(got) != 1 || got[0] != (backend.Place{From: p.From, End: end}) {
		t.Fatalf("states of %+v imported as %+v", p, got)
	}
	return y
}
