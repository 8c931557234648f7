package cuda

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"windrow/backend"
)

// TestAhead takes steps over the borders of context buckets: each finds its graph
// without planning, its page taken, and nothing that others use moved.
func TestAhead(t *testing.T) {
	const rows = 4
	h := startHost(t, 1, rows)
	b, c := h.y.b, h.v.Spans[0].KV
	h.run()
	room, clears := b.device.attendBytes, b.graphs.clears
	for base := 0; base < 150; base += 3 {
		h.v.Spans[0].Base = base
		if n := len(c.(*kv).pages) * pageSlots; n < base+rows {
			t.Errorf("base %d: %d slots", base, n)
		}
		if !h.step() {
			t.Errorf("base %d: a step had to be planned", base)
		}
		h.run()
	}
	if b.device.attendBytes != room || b.graphs.clears != clears {
		t.Errorf("room for attention %d and then %d bytes; graphs dropped %d times", room, b.device.attendBytes, b.graphs.clears-clears)
	}
}

// Memory that is missing for what comes next is missed when it comes.
func TestAheadWithoutMemory(t *testing.T) {
	if onDevice {
		t.Skip("takes all memory")
	}
	t.Setenv("WINDROW_EMULATED_MEMORY", fmt.Sprint(256<<20))
	h := startHost(t, 1, 9)
	b := h.y.b
	h.run()
	ctx := b.device.ctx
	ctx.Enter()
	defer ctx.Leave()
	clear(b.freePages)
	free, _, err := ctx.MemInfo()
	if err != nil {
		t.Fatal(err)
	}
	hog, err := ctx.Alloc(int(free) - 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	base := &h.v.Spans[0].Base
	for *base < 54 {
		*base += 9
		h.run()
	}
	*base += 9
	if err := h.kept.Start(h.v); err == nil || !strings.Contains(err.Error(), "no memory for 64 more tokens") {
		t.Errorf("a step into a page that cannot be: %v", err)
	}
	if err := ctx.Free(hog); err != nil {
		t.Fatal(err)
	}
	h.run()
}

// A backend may be closed while a forward runs, and before its caches.
func TestCloseStarted(t *testing.T) {
	b := openCUDA(t)
	y := newToy(t, b, backend.BF16, 1, 1)
	kv := y.kv(t)
	h := newHost(t, y, kv, 1)
	if err := h.kept.Start(h.v); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.kept.Wait(); !errors.Is(err, errClosed) {
		t.Errorf("results after Close: %v", err)
	}
	if err := h.kept.Start(h.v); !errors.Is(err, errClosed) {
		t.Errorf("a start after Close: %v", err)
	}
	kv.Close()
}
