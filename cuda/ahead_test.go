package cuda

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/cuda/emulator"
	"windrow/cuda/launch"
)

// TestAhead takes steps over the borders of context buckets: each finds its graph
// without planning, its page taken, and nothing that others use moved.
func TestAhead(t *testing.T) {
	const rows = 4
	h := startHost(t, 1, rows)
	b, c := h.y.b, h.v.Spans[0].Storage
	h.run()
	room, angles := b.device.AttendHolds(), h.f.angles[0]
	for base := 0; base < 150; base += 3 {
		h.move(base, base+150) // over the border of a block of angles
		if last := base + 150 + rows - 1; !angles.Made(last) {
			t.Errorf("no angles of position %d", last)
		}
		if n := int(c.Bytes() / c.Layout().Keys().PageBytes() * launch.PageSlots); n < base+rows {
			t.Errorf("base %d: %d slots", base, n)
		}
		if !h.step() {
			t.Errorf("base %d: a step had to be planned", base)
		}
		h.run()
	}
	if n := len(b.graphs.list); b.device.AttendHolds() != room || n != 3 {
		t.Errorf("room for attention %d and then %d bytes, %d graphs; want one of 1, 2 and 4 chunks of the context", room, b.device.AttendHolds(), n)
	}
	if angles.Made(2 * launch.BlockPositions) {
		t.Error("angles that no position needs")
	}
}

// Memory that is missing for what comes next is missed when it comes.
func TestAheadWithoutMemory(t *testing.T) {
	if emulator.OnGPU {
		t.Skip("takes all memory")
	}
	t.Setenv("WINDROW_EMULATED_MEMORY", fmt.Sprint(256<<20))
	h := startHost(t, 1, 9)
	b := h.y.b
	bare, err := b.NewStorage(h.y.layout) // with nothing reserved
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close()
	h.v.Spans[0].Storage = bare
	h.run()
	ctx := b.device.Context
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
	if err := h.f.Start(t.Context(), h.v); err == nil || !strings.Contains(err.Error(), "no memory for keys and values of sequence 0") {
		t.Errorf("a step into a page that cannot be: %v", err)
	}
	at := *base
	h.move(0, launch.NearPositions)
	if err := h.f.Start(t.Context(), h.v); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("angles of positions from %d on: cuda: out of device memory", launch.NearPositions)) {
		t.Errorf("a step to positions whose angles cannot be: %v", err)
	}
	if err := ctx.Free(hog); err != nil {
		t.Fatal(err)
	}
	h.run()
	h.move(at, at)
	h.run()
}

// A backend may be closed while a forward runs, and before its caches.
func TestCloseStarted(t *testing.T) {
	b := openCUDA(t)
	y := newToy(t, b, backend.BF16, 1, 1)
	kv := y.kv(t)
	h := &host{t: t, y: y, v: values(kv, 0, 1), f: y.list().rest(nil).compile(t)}
	if err := h.f.Start(t.Context(), h.v); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.f.Wait(); !errors.Is(err, errClosed) {
		t.Errorf("results after Close: %v", err)
	}
	if err := h.f.Start(t.Context(), h.v); !errors.Is(err, errClosed) {
		t.Errorf("a start after Close: %v", err)
	}
	kv.Close()
}
