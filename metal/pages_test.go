package metal

import (
	"errors"
	"strings"
	"testing"
	"unsafe"

	"windrow/backend"
	"windrow/metal/driver"
	"windrow/metal/emulator"
	"windrow/metal/fakeobjc"
)

// What is in a region stays at its address while it grows; what it cannot have leaves
// it as it was. It takes the memory of what was asked for, and gives it back.
func TestRegionGrowsInPlace(t *testing.T) {
	fake := fakeobjc.Start(t, fakeobjc.Options{MaxBufferLength: 10*driver.PageSize + 100})
	g, err := newGPU(driver.New(fake))
	if err != nil {
		t.Fatal(err)
	}
	m := gpuMemory{g}
	before := fake.Allocated()
	r, err := m.region()
	if err != nil {
		t.Fatal(err)
	}
	var first *byte
	for i, n := range []int{1, driver.PageSize, 3*driver.PageSize + 5, 10 * driver.PageSize} {
		v, err := r.grow(n)
		if err != nil {
			t.Fatal(err)
		}
		data := v.bytes()
		if first == nil {
			first = &data[0]
			data[0] = 77
		}
		if &data[0] != first || data[0] != 77 || len(data) != roundUp(n, driver.PageSize) {
			t.Errorf("step %d: %d bytes at %p, before at %p", i, len(data), &data[0], first)
		}
		data[len(data)-1] = 1
		if got := fake.Allocated() - before; got != len(data) {
			t.Errorf("step %d: %d bytes allocated, want %d", i, got, len(data))
		}
	}
	if _, err := r.grow(11 * driver.PageSize); err == nil || !strings.Contains(err.Error(), "a buffer takes") {
		t.Errorf("more than a buffer may have: %v", err)
	}
	if v := r.(*gpuRegion).shared; unsafe.SliceData(v.bytes()) != first {
		t.Error("a refusal has changed the region")
	}
	r.free()
	if got := fake.Allocated(); got != before {
		t.Errorf("%d bytes are left", got-before)
	}
	if err := g.close(); err != nil {
		t.Error(err)
	}
}

// Where no page can be had a forward is refused before anything has run; the
// sequences that are there go on. What one gives back serves another, in the end one
// of another layout too.
func TestNoMemoryForPages(t *testing.T) {
	emulator.Available(t)
	fake := fakeobjc.Start(t, fakeobjc.Options{Memory: 4 << 20, Compile: fakeobjc.Emulated(emulator.Plain, 0)})
	b := backendOn(t, fake)
	b.arena.least = 1
	deep := func(layers int) *forward {
		var all []int
		for i := range layers {
			all = append(all, i)
		}
		return compiled(t, b, short(t, b, all...))
	}
	f, other := deep(100), deep(550) // pages are 400 KiB and 2200 KiB
	// behind runs rows of a new sequence behind some tokens, or says why it does not.
	behind := func(f *forward, tokens, rows int) (v backend.Values, err error) {
		t.Helper()
		kv, err := b.NewStorage(backend.Layout{Layers: f.program.Stores(), DType: backend.KVBF16, Slots: 1000})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(kv.Close)
		if err := kv.Reserve(tokens); err != nil {
			return v, err
		}
		v = backend.Values{Tokens: make([]int32, rows), Positions: make([]int32, rows), Spans: []backend.Span{{Storage: kv, Base: tokens, Rows: rows}}}
		if err := f.Start(t.Context(), v); err != nil {
			return v, err
		}
		if _, err := f.Wait(); err != nil {
			t.Fatal(err)
		}
		return v, nil
	}
	lacks := (*backend.MemoryError)(nil)
	var list []backend.Values
	for {
		v, err := behind(f, 0, 1)
		if err != nil {
			if !errors.As(err, &lacks) || lacks.Span != 0 || lacks.Bytes != 400<<10 || lacks.Limit != 0 || lacks.Err == nil || !strings.HasPrefix(err.Error(), "metal: no memory for keys and values of sequence 0 of the batch: 409600 bytes: ") {
				t.Errorf("error %v", err)
			}
			break
		}
		list = append(list, v)
	}
	if n := len(list); n < 2 || n > 8 {
		t.Fatalf("%d sequences of a page in 4 MiB", n)
	}
	if err := f.Start(t.Context(), list[0]); err != nil {
		t.Errorf("a sequence that has its page: %v", err)
	} else if _, err := f.Wait(); err != nil {
		t.Error(err)
	}
	commits := fake.Count("commit")
	used, _ := b.Budget().Used()
	if _, err := behind(f, 0, 64*len(list)+65); !errors.As(err, &lacks) || lacks.Span != 0 || lacks.Bytes != int64(len(list)+2)*400<<10 {
		t.Errorf("more than all pages: %v", err)
	}
	if _, err := behind(f, 64*len(list)+65, 1); !errors.As(err, &lacks) || lacks.Span != -1 {
		t.Errorf("more than all pages, reserved: %v", err)
	}
	if n := fake.Count("commit"); n != commits {
		t.Errorf("%d commits of forwards that were refused", n-commits)
	}
	if now, _ := b.Budget().Used(); now != used {
		t.Errorf("%d bytes are taken after refusals, %d before", now, used)
	}
	list[1].Spans[0].Storage.Close()
	if _, err := behind(f, 0, 1); err != nil {
		t.Errorf("a page that was given back: %v", err)
	}
	if _, err := behind(other, 0, 1); !errors.As(err, &lacks) {
		t.Errorf("a page of another size: %v", err)
	}
	for c := range b.stored {
		c.Close()
	}
	// Seven pages have room where the five are given back first.
	if _, err := behind(f, 64*7-1, 1); err != nil {
		t.Errorf("more pages than there are, when nobody has one: %v", err)
	}
	for c := range b.stored {
		c.Close()
	}
	if _, err := behind(other, 0, 1); err != nil {
		t.Errorf("a page of another size, when nobody has one: %v", err)
	}
	some := 0
	for _, p := range b.pools {
		some += min(p.pages, 1)
	}
	if some != 1 {
		t.Errorf("%d pools have memory, want that of the last sequence alone", some)
	}
}

// The pool does not grow to more pages than the budget has, neither ahead of what is
// asked for nor for what is refused.
func TestPoolKeepsToBudget(t *testing.T) {
	b := overMemory(newHostMemory(1<<30), Options{})
	l := backend.KeysLayout(2, 1, 16, backend.KVBF16, 4000)
	b.Budget().Limit(9*l.Keys().PageBytes() + 5)
	made, err := b.NewStorage(l)
	if err != nil {
		t.Fatal(err)
	}
	c, lacks := made.(*storage), (*backend.MemoryError)(nil)
	if err := c.Reserve(20 * pageSlots); !errors.As(err, &lacks) || c.Bytes() != 0 {
		t.Errorf("twenty pages of nine: %v, %d bytes are held", err, c.Bytes())
	}
	if n := c.pool.pages; n > 9 {
		t.Errorf("%d pages for what was refused", n)
	}
	for i := range 9 {
		if err := c.Reserve(i*pageSlots + 1); err != nil {
			t.Fatal(err)
		}
	}
	if n := c.pool.pages; n != 9 {
		t.Errorf("%d pages of a budget of nine", n)
	}
	if err := c.Writable(9*pageSlots, 9*pageSlots+1); !errors.As(err, &lacks) || lacks.Limit == 0 {
		t.Errorf("a tenth page of nine: %v", err)
	}
}
