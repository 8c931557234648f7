package metal

import (
	"strings"
	"testing"
	"unsafe"

	"windrow/backend"
	"windrow/metal/driver"
	"windrow/metal/emulator"
	"windrow/metal/fakeobjc"
)

// Sequences take pages as they grow. Every slot of every part of every layer keeps its
// bytes, and overlaps no other, of its own sequence or another.
func TestPages(t *testing.T) {
	for _, dt := range backend.KVTypes {
		m := newHostMemory(1 << 30)
		b := overMemory(m, Options{})
		l := backend.KVLayout{Layers: 3, KVHeads: 3, HeadDim: 70, DType: dt, Slots: 700}
		size := map[backend.KVType]int{backend.KVF32: 280, backend.KVBF16: 140, backend.KVF16: 140, backend.KVInt8: 70}[dt]
		var list []*kv
		for range 3 {
			c, err := b.NewKV(l)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, c.(*kv))
		}
		// slots calls f for the bytes of each head's vectors, and their scales.
		slots := func(c *kv, f func(data []byte)) {
			for i := range l.Layers {
				y := c.layer(i, view{})
				for j, v := range []view{y.k, y.v, y.kScales, y.vScales} {
					n := size
					if j >= 2 {
						n = 8 // two groups
						if v.buffer == nil {
							continue
						}
					}
					for slot := range len(c.pages) * pageSlots {
						for h := range l.KVHeads {
							f(m.bytes(v.at(int(c.pages[slot/pageSlots])*y.page+(h*pageSlots+slot%pageSlots)*n), n))
						}
					}
				}
			}
		}
		fill := func(c *kv, seed int) {
			slots(c, func(data []byte) {
				for i := range data {
					data[i] = byte(seed)
				}
				seed += 7
			})
		}
		check := func(c *kv, seed int) {
			t.Helper()
			slots(c, func(data []byte) {
				if data[0] != byte(seed) || data[len(data)-1] != byte(seed) {
					t.Fatalf("%v: a vector is lost", dt)
				}
				seed += 7
			})
		}
		reserve := func(c *kv, to, pages int) {
			t.Helper()
			if err := c.reserve(to); err != nil {
				t.Fatal(err)
			}
			if len(c.pages) != pages || c.Bytes() != int64(pages*c.plan.page) || c.Bytes() < int64(pages*pageSlots)*l.BytesPerToken() {
				t.Errorf("%v: %d pages, %d bytes for %d slots; want %d pages", dt, len(c.pages), c.Bytes(), to, pages)
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
		held := pool.pages
		list[0].Close()
		list[0].Close()
		reserve(list[2], 700, 11)
		fill(list[2], 2)
		check(list[1], 1)
		if pool.pages != held || list[0].Bytes() != 0 {
			t.Errorf("%v: %d pages after a sequence came for one that went, %d before", dt, pool.pages, held)
		}
		if err := b.Close(); err != nil || len(m.buffers) != 0 {
			t.Errorf("%v: %d buffers after Close, error %v", dt, len(m.buffers), err)
		}
	}
	b := overMemory(newHostMemory(1<<30), Options{})
	if _, err := b.NewKV(backend.KVLayout{Layers: 1 << 10, KVHeads: 1 << 10, HeadDim: 1 << 10, DType: backend.KVF32, Slots: 1}); err == nil {
		t.Error("a page of more than 4 GiB: want an error")
	}
}

// A rotating storage has pages for its slots, not for all that went through it.
func TestPagesOfRotatingStorage(t *testing.T) {
	b := overMemory(newHostMemory(1<<30), Options{})
	c, err := b.NewKV(backend.KVLayout{Layers: 1, KVHeads: 1, HeadDim: 4, DType: backend.KVF32, Slots: 130, Window: 100, Keep: 4})
	if err != nil {
		t.Fatal(err)
	}
	for to, want := range map[int]int{64: 1, 65: 2, 129: 3, 10000: 3} {
		if err := c.(*kv).reserve(to); err != nil {
			t.Fatal(err)
		}
		if got := len(c.(*kv).pages); got < want {
			t.Errorf("%d pages for index %d, want %d", got, to-1, want)
		}
	}
	if got := len(c.(*kv).pages); got != 3 {
		t.Errorf("%d pages of 130 slots", got)
	}
}

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
	f := compiled(t, b, short(t, b))
	long := func(tokens, layers int) (backend.Values, error) {
		kv, err := b.NewKV(backend.KVLayout{Layers: layers, KVHeads: 1, HeadDim: 16, DType: backend.KVBF16, Slots: 1000})
		if err != nil {
			t.Fatal(err)
		}
		v := backend.Values{Tokens: make([]int32, 1), Positions: make([]int32, 1), Spans: []backend.Span{{KV: kv, Base: tokens - 1, Rows: 1}}}
		t.Cleanup(kv.Close)
		return v, f.Start(t.Context(), v)
	}
	wait := func() {
		t.Helper()
		if _, err := f.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	var list []backend.Values
	for { // a page is 400 KiB
		v, err := long(64, 100)
		if err != nil {
			if !strings.Contains(err.Error(), "span 0: metal: ") || !strings.Contains(err.Error(), "for keys and values of 64 more tokens") {
				t.Errorf("error %v", err)
			}
			break
		}
		wait()
		list = append(list, v)
	}
	if n := len(list); n < 2 || n > 8 {
		t.Fatalf("%d sequences of a page in 4 MiB", n)
	}
	if err := f.Start(t.Context(), list[0]); err != nil {
		t.Errorf("a sequence that has its page: %v", err)
	} else {
		wait()
	}
	commits := fake.Count("commit")
	if _, err := long(64*len(list)+65, 100); err == nil {
		t.Error("more than all pages: want an error")
	}
	if n := fake.Count("commit"); n != commits {
		t.Errorf("%d commits of a forward that was refused", n-commits)
	}
	list[1].Spans[0].KV.Close()
	if _, err := long(64, 100); err != nil {
		t.Errorf("a page that was given back: %v", err)
	} else {
		wait()
	}
	if _, err := long(64, 550); err == nil {
		t.Error("a page of another size: want an error")
	}
	for c := range b.kvs {
		c.Close()
	}
	// Seven pages have room where the five are given back first.
	if _, err := long(64*7, 100); err != nil {
		t.Errorf("more pages than there are, when nobody has one: %v", err)
	} else {
		wait()
	}
	for c := range b.kvs {
		c.Close()
	}
	if _, err := long(64, 550); err != nil {
		t.Errorf("a page of another size, when nobody has one: %v", err)
	} else {
		wait()
	}
	some := 0
	for _, p := range b.pools {
		some += min(p.pages, 1)
	}
	if some != 1 {
		t.Errorf("%d pools have memory, want that of the last sequence alone", some)
	}
}
