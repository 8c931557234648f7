package metal

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"windrow/backend"
	"windrow/metal/emulator"
	"windrow/metal/fakeobjc"
)

// held is how many pages a storage has.
func held(c *storage) (n int) {
	for c.Has(n) {
		n++
	}
	return n
}

// Sequences take pages as they grow. Every slot of every part of every layer keeps its
// bytes, and overlaps no other, of its own sequence or another. A page in exported form
// has them in the order that backend.Keys.ExportedPage says.
func TestPages(t *testing.T) {
	for _, dt := range backend.KVTypes {
		m := newHostMemory(1 << 30)
		b := overMemory(m, Options{})
		// As odd as they come: 210 bytes of the heads of one slot.
		l := backend.KeysLayout(3, 3, 70, dt, 700)
		keys := l.Keys()
		size, scales := keys.RowBytes(), 0
		if dt == backend.KVInt8 {
			size, scales = 70, 8 // two groups
		}
		var list []*storage
		for range 3 {
			c, err := b.NewStorage(l)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, c.(*storage))
		}
		if got := list[0].plan.page; got != int(keys.PageBytes()) {
			t.Errorf("%v: pages of %d bytes, the budget counts %d", dt, got, keys.PageBytes())
		}
		// slots calls f for the bytes of each head's vectors, and their scales.
		slots := func(c *storage, f func(data []byte)) {
			for i := range keys.Layers {
				y := c.layer(i, view{})
				for j, v := range []view{y.k, y.v, y.kScales, y.vScales} {
					n := size
					if j >= 2 {
						n = scales
						if v.buffer == nil {
							continue
						}
					}
					for slot := range held(c) * pageSlots {
						for h := range keys.KVHeads {
							f(m.bytes(v.at(int(c.At(slot/pageSlots))*y.page+(h*pageSlots+slot%pageSlots)*n), n))
						}
					}
				}
			}
		}
		fill := func(c *storage, seed int) {
			slots(c, func(data []byte) {
				for i := range data {
					data[i] = byte(seed)
				}
				seed += 7
			})
		}
		check := func(c *storage, seed int) {
			t.Helper()
			slots(c, func(data []byte) {
				if data[0] != byte(seed) || data[len(data)-1] != byte(seed) {
					t.Fatalf("%v: a vector is lost", dt)
				}
				seed += 7
			})
		}
		reserve := func(c *storage, to, pages int) {
			t.Helper()
			if err := c.Reserve(to); err != nil {
				t.Fatal(err)
			}
			if held(c) != pages || len(c.table(to)) > pages || c.Bytes() != int64(pages)*keys.PageBytes() {
				t.Errorf("%v: %d pages, %d bytes for %d slots; want %d pages", dt, held(c), c.Bytes(), to, pages)
			}
		}
		for _, step := range []struct{ to, pages int }{{1, 1}, {64, 1}, {65, 2}, {300, 5}, {10, 5}, {701, 11}, {5000, 11}} {
			for i, c := range list[:2] {
				reserve(c, step.to, step.pages)
				fill(c, i)
			}
			for i, c := range list[:2] {
				check(c, i)
			}
		}
		pool := list[0].pool
		if pool.pages < 22 || pool.pages > 27 || len(m.buffers) != 1 {
			t.Errorf("%v: %d pages of which 22 are in use, %d buffers", dt, pool.pages, len(m.buffers))
		}
		most := pool.pages
		list[0].Close()
		list[0].Close()
		if len(b.stored) != 2 {
			t.Errorf("%v: %d open storages of 2", dt, len(b.stored))
		}
		reserve(list[2], 700, 11)
		fill(list[2], 2)
		check(list[1], 1)
		if pool.pages != most || list[0].Bytes() != 0 {
			t.Errorf("%v: %d pages after a sequence came for one that went, %d before", dt, pool.pages, most)
		}

		// A value by place, written through the views that kernels have.
		value := func(layer, part, head, slot int) byte { return byte(1 + layer + 3*part + 7*head + 11*slot) }
		var want []byte
		for i := range keys.Layers {
			y := list[1].layer(i, view{})
			for h := range keys.KVHeads {
				for part, at := range [][2]view{{y.k, y.kScales}, {y.v, y.vScales}} {
					for slot := range pageSlots {
						x := value(i, part, h, slot)
						for j, n := range []int{size, scales} {
							if n > 0 {
								place := at[j].at(int(list[1].At(3))*y.page + (h*pageSlots+slot)*n)
								copy(m.bytes(place, n), bytes.Repeat([]byte{x + byte(100*j)}, n))
								want = append(want, m.bytes(place, n)...)
							}
						}
					}
				}
			}
		}
		got := make([]byte, keys.ExportedPage())
		if err := list[1].Export(3, got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%v: an exported page has other bytes, error %v", dt, err)
		}
		fresh, err := b.NewStorage(l)
		if err != nil {
			t.Fatal(err)
		}
		clear(got)
		if err := fresh.Import(0, want); err != nil {
			t.Fatal(err)
		}
		if err := fresh.Export(0, got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%v: an imported page has other bytes, error %v", dt, err)
		}
		check(list[2], 2)
		if err := b.Close(); err != nil || len(m.buffers) != 0 {
			t.Errorf("%v: %d buffers after Close, error %v", dt, len(m.buffers), err)
		}
	}
	b := overMemory(newHostMemory(1<<30), Options{})
	if _, err := b.NewStorage(backend.KeysLayout(1<<10, 1<<10, 1<<10, backend.KVF32, 1)); err == nil {
		t.Error("a page of more than 4 GiB: want an error")
	}
}

// A rotating storage has pages for its slots, not for all that went through it.
func TestPagesOfRotatingStorage(t *testing.T) {
	b := overMemory(newHostMemory(1<<30), Options{})
	l := backend.KeysLayout(1, 1, 4, backend.KVF32, 130)
	l.Window, l.Keep = 100, 4
	made, err := b.NewStorage(l)
	if err != nil {
		t.Fatal(err)
	}
	c := made.(*storage)
	for from := 0; from < 1000; from += 30 {
		if err := c.Writable(from, from+30); err != nil {
			t.Fatal(err)
		}
		want := min((from+30+63)/64, 3)
		if got := held(c); got != want || len(c.table(from+30)) != want {
			t.Errorf("%d pages before index %d, %d in the table, want %d", got, from+30, len(c.table(from+30)), want)
		}
	}
	if err := c.Reserve(10000); err != nil || held(c) != 3 {
		t.Errorf("%d pages of 130 slots, error %v", held(c), err)
	}
}

// Storage of layers that keep nothing takes nothing; states are there once they are
// reserved, and freed at the end.
func TestStorageWithoutKeys(t *testing.T) {
	m := newHostMemory(1 << 30)
	b := overMemory(m, Options{})
	c, err := b.NewStorage(backend.Layout{Layers: make([]backend.LayerStore, 3), Slots: 100})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Reserve(100); err != nil || c.Bytes() != 0 {
		t.Errorf("%d bytes for nothing, error %v", c.Bytes(), err)
	}
	if err := c.Export(1, nil); err != nil {
		t.Error(err)
	}
	y, err := c.Fork(70, 100)
	if err != nil {
		t.Fatal(err)
	}
	if used, _ := b.Budget().Used(); used != 0 || y.Bytes() != 0 {
		t.Errorf("%d bytes are taken for nothing", used)
	}
	state := backend.Layout{Layers: []backend.LayerStore{{Kind: backend.StoreState, State: backend.StateShape{KeyHeads: 1, ValueHeads: 1, KeyDim: 4, ValueDim: 4, Conv: 2}}}, Slots: 10, LogRows: 2}
	z, err := b.NewStorage(state)
	if err != nil {
		t.Fatal(err)
	}
	before := len(m.buffers)
	if err := z.Reserve(3); err != nil || z.Bytes() != 2*state.StateBytes() {
		t.Errorf("%d bytes for a state and what a prompt writes, want 2 of %d; error %v", z.Bytes(), state.StateBytes(), err)
	}
	if used, _ := b.Budget().Used(); used != z.Bytes() || len(m.buffers) < before+2 {
		t.Errorf("%d bytes in %d buffers, %d before", used, len(m.buffers), before)
	}
	b.Budget().Limit(2 * state.StateBytes())
	y.Close()
	y, err = b.NewStorage(state)
	if err != nil {
		t.Fatal(err)
	}
	lacks := (*backend.MemoryError)(nil)
	if err := y.Reserve(1); !errors.As(err, &lacks) || y.Bytes() != 0 {
		t.Errorf("a sequence too many takes %d bytes: %v", y.Bytes(), err)
	}
	if err := b.Close(); err != nil || len(m.buffers) != 0 {
		t.Errorf("%d buffers are left, error %v", len(m.buffers), err)
	}
}

// Where a backend only counts, storage counts too.
func TestDryStorage(t *testing.T) {
	d := NewDry(false)
	defer d.Close()
	l := backend.KeysLayout(2, 2, 64, backend.KVInt8, 200)
	c, err := d.NewStorage(l)
	if err != nil {
		t.Fatal(err)
	}
	page := make([]byte, l.Keys().ExportedPage())
	if err := c.Import(0, page); err != nil {
		t.Fatal(err)
	}
	if err := c.Export(0, page); err != nil {
		t.Fatal(err)
	}
	y, err := c.Fork(40, 100)
	if err != nil {
		t.Fatal(err)
	}
	if used, _ := d.Budget().Used(); used != 2*l.Keys().PageBytes() || y.Bytes() != l.Keys().PageBytes() {
		t.Errorf("%d bytes are taken of two pages of %d", used, l.Keys().PageBytes())
	}
}

// Layers that keep nothing, between those with keys, take no room: neither results nor
// stored bytes depend on them.
func TestLayersWithoutKeys(t *testing.T) {
	emulator.Available(t)
	b := emulatedWith(t, fakeobjc.Options{})
	var results, pages []string
	for _, layers := range [][]int{{0, 1}, {2, 5}} {
		f := compiled(t, b, short(t, b, layers...))
		l := backend.Layout{Layers: f.program.Stores(), DType: backend.KVBF16, Slots: 200}
		c, err := b.NewStorage(l)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		v := shortValues(t, b, pageSlots, 0)
		v.Spans[0].Storage = c
		if err := f.Start(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		r, err := f.Wait()
		if err != nil {
			t.Fatal(err)
		}
		page := make([]byte, l.Keys().ExportedPage())
		if err := c.Export(0, page); err != nil {
			t.Fatal(err)
		}
		if half := len(page) / 2; bytes.Equal(page[:half], page[half:]) {
			t.Error("both layers have stored the same")
		}
		results, pages = append(results, fmt.Sprint(r)), append(pages, string(page))
	}
	if results[0] != results[1] || pages[0] != pages[1] {
		t.Error("layers without keys change what those with keys compute or store")
	}
}

// States that no buffer takes are refused, and leave no trace; where a backend only
// counts, copies count too.
func TestStatesCopiedWithoutDevice(t *testing.T) {
	l := backend.Layout{Layers: []backend.LayerStore{{Kind: backend.StoreState, State: backend.StateShape{KeyHeads: 1, ValueHeads: 2, KeyDim: 4, ValueDim: 3, Conv: 2}}}, Slots: 10, LogRows: 2}
	p := backend.Place{From: 3, End: 5}
	in, out := make([]byte, l.ExportedStates(p)), make([]byte, l.ExportedStates(p))
	for i := range in {
		in[i] = byte(1 + i*7%250)
	}
	m := newHostMemory(int(l.StateBytes()) - 1)
	for host, b := range map[bool]*Backend{true: overMemory(m, Options{}), false: NewDry(false).Backend} {
		made, err := b.NewStorage(l)
		if err != nil {
			t.Fatal(err)
		}
		c := made.(*storage)
		if lacks := (*backend.MemoryError)(nil); host {
			if err := c.ImportStates(p, in); !errors.As(err, &lacks) || c.Bytes() != 0 || len(m.buffers) != 0 || len(c.Places(9)) != 0 {
				t.Errorf("states larger than a buffer take %d bytes, error %v", c.Bytes(), err)
			}
			m.most++
		}
		if err := c.ImportStates(p, in); err != nil {
			t.Fatal(err)
		}
		if used, _ := b.Budget().Used(); used != l.StateBytes() || len(c.Places(9)) != 1 {
			t.Errorf("%d bytes are taken of states of %d", used, l.StateBytes())
		}
		if err := c.ExportStates(p, out); err != nil || host && !bytes.Equal(in, out) {
			t.Errorf("states are other bytes, error %v", err)
		}
		if err := b.Close(); err != nil || len(m.buffers) != 0 {
			t.Errorf("%d buffers are left, error %v", len(m.buffers), err)
		}
		if err := c.ExportStates(p, out); !errors.Is(err, backend.ErrNoPlace) {
			t.Errorf("states of a closed backend: %v", err)
		}
	}
}
