package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/cpu"
	"windrow/model"
	"windrow/synthetic"
)

// copied is a hybrid's cache as it leaves a device.
type copied struct {
	place  backend.Place
	pages  [][]byte
	states []byte
	next   []model.Result // of the rows that follow
}

// export copies a cache out, as of the last place that it stands at.
func export(t *testing.T, c *model.Cache) (y copied) {
	t.Helper()
	places := c.Places()
	if len(places) == 0 {
		t.Fatal("the cache has no states to copy")
	}
	y.place = places[len(places)-1]
	for i := 0; i*backend.PageTokens < c.Base(); i++ {
		page := make([]byte, c.PageBytes())
		if err := c.Export(i, page); err != nil {
			t.Fatal(err)
		}
		y.pages = append(y.pages, page)
	}
	y.states = make([]byte, c.StatesBytes(y.place))
	if err := c.ExportStates(y.place, y.states); err != nil {
		t.Fatal(err)
	}
	return y
}

// imported is a cache of what another, or one of another device, has exported; exported
// again it is the same bytes.
func (y copied) imported(t *testing.T, m *model.Model) *model.Cache {
	t.Helper()
	c, err := m.NewCache(model.CacheOptions{Capacity: 256, MaxRows: 64, DType: backend.KVBF16})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	for _, page := range y.pages {
		if err := c.Import(page); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.ImportStates(y.place, y.place.End, y.states); err != nil {
		t.Fatal(err)
	}
	again := export(t, c)
	if again.place != y.place || !bytes.Equal(again.states, y.states) {
		t.Errorf("states of %+v are others, of %+v, when they are exported again", y.place, again.place)
	}
	for i := range y.pages {
		if !bytes.Equal(again.pages[i], y.pages[i]) {
			t.Errorf("page %d is other bytes when it is exported again", i)
		}
	}
	return c
}

// TestGroupExport: what a hybrid on several GPUs has goes out and in with its bits, into
// their memory, that of one GPU and the CPU's, and back.
func TestGroupExport(t *testing.T) {
	const prompt, step, rows = 60, 7, 5
	ref, err := cpu.New(cpu.Options{Exact: true, Kernels: "go", Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer ref.Close()
	for _, c := range []struct {
		heads, kvHeads int
		tiled, exact   bool
	}{{2, 1, false, false}, {4, 4, true, true}} {
		t.Run(fmt.Sprintf("%d key heads, %d KV heads, tiled=%t, exact=%t", c.heads, c.kvHeads, c.tiled, c.exact), func(t *testing.T) {
			config := family("qwen3_5_text", c.heads, c.tiled)
			config.KVHeads, config.Layers, config.Delta.Layers = c.kvHeads, 3, []bool{true, false, true}
			src := synthetic.RandomSource(config, backend.BF16, 8)
			one := openBackend(t, c.exact)
			defer one.Close()
			var models []*model.Model
			var all []copied
			for _, b := range []backend.Backend{openGroup(t, c.exact), one, ref} {
				m, c := load(t, b, src)
				defer m.Close()
				forwardAll(t, m, c, 0, prompt)
				forwardAll(t, m, c, prompt, step)
				y := export(t, c)
				y.next = forwardAll(t, m, c, prompt+step, rows)
				models, all = append(models, m), append(all, y)
			}
			// Before the first sum over the GPUs, in layer 0, bits are those of one.
			d := config.Delta
			n := backend.StateShape{KeyHeads: d.KeyHeads, ValueHeads: d.ValueHeads, KeyDim: d.KeyDim, ValueDim: d.ValueDim, Conv: d.Conv}.Exported(all[0].place)
			if all[0].place != all[1].place || !bytes.Equal(all[0].states[:n], all[1].states[:n]) {
				t.Errorf("exported states of layer 0, of %+v, are not those of one GPU, of %+v", all[0].place, all[1].place)
			}
			for i, y := range all {
				for k, m := range models {
					next := forwardAll(t, m, y.imported(t, m), prompt+step, rows)
					if d := distance(next, y.next); !(d <= 2e-2) {
						t.Errorf("from %d to %d of several GPUs, one, and the CPU: relative norm %.3g, want at most 2e-2", i, k, d)
					}
					for r := range next {
						if i == k && !slices.Equal(next[r].Logits, y.next[r].Logits) {
							t.Errorf("row %d has other bits behind what was imported", r)
						}
					}
				}
			}
		})
	}
}

// TestGroupImport: storage takes pages and states before it is known whether heads are
// cut, and brings them along when it is. What is refused, or fails on one of the GPUs,
// leaves nothing.
func TestGroupImport(t *testing.T) {
	g := openGroup(t, false)
	l := backend.Layout{DType: backend.KVBF16, Slots: 200, LogRows: 8}
	state := backend.StateShape{KeyHeads: 2, ValueHeads: 6, KeyDim: 24, ValueDim: 40, Conv: 4}
	tiled := state
	tiled.Tiled = true
	l.Layers = []backend.LayerStore{{Kind: backend.StoreState, State: state}, {Kind: backend.StoreKeys, KVHeads: 1, HeadDim: 64}, {Kind: backend.StoreState, State: tiled}}
	r := rand.New(rand.NewPCG(8, 1))
	random := func(n int64) []byte {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		return data
	}
	p := backend.Place{From: 66, End: 70}
	pages := [][]byte{random(int64(l.Keys().ExportedPage())), random(int64(l.Keys().ExportedPage()))}
	states := random(l.ExportedStates(p))
	open := func(l backend.Layout) *groupStorage {
		t.Helper()
		s, err := g.NewStorage(l)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s.(*groupStorage)
	}
	filled := func() *groupStorage {
		t.Helper()
		s := open(l)
		for i, page := range pages {
			if err := s.Import(i, page); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	has := func(what string, s *groupStorage) {
		t.Helper()
		if list := s.Places(200); !slices.Equal(list, []backend.Place{p}) {
			t.Fatalf("%s: states of %+v, want of %+v", what, list, p)
		}
		got := make([]byte, len(states))
		if err := s.ExportStates(p, got); err != nil || !bytes.Equal(got, states) {
			t.Errorf("%s: other states, %v", what, err)
		}
		for i, page := range pages {
			got := make([]byte, len(page))
			if err := s.Export(i, got); err != nil || !bytes.Equal(got, page) {
				t.Errorf("%s: page %d is another, %v", what, i, err)
			}
		}
	}
	hasNone := func(what string, s *groupStorage) {
		t.Helper()
		if list := s.Places(200); len(list) > 0 {
			t.Errorf("%s: states of %+v", what, list)
		}
		if err := s.ExportStates(p, slices.Clone(states)); !errors.Is(err, backend.ErrNoPlace) {
			t.Errorf("%s: %v, want %v", what, err, backend.ErrNoPlace)
		}
	}
	used := func() int64 {
		n, _ := g.Budget().Used()
		return n
	}

	empty := open(l)
	hasNone("empty", empty)
	for what, err := range map[string]error{
		"too short":     empty.ImportStates(p, states[1:]),
		"another place": empty.ImportStates(backend.Place{From: 65, End: 70}, states),
		"out too short": empty.ExportStates(p, states[1:]),
	} {
		if err == nil || errors.Is(err, backend.ErrNoPlace) {
			t.Errorf("%s: %v", what, err)
		}
	}
	empty.Close()
	hasNone("closed", empty)
	if err := empty.ImportStates(p, states); err == nil {
		t.Error("an import into what is closed")
	}

	for _, split := range []bool{true, false} {
		s := filled()
		if err := s.ImportStates(p, states); err != nil {
			t.Fatal(err)
		}
		has("imported", s)
		if err := s.ImportStates(p, states); err == nil {
			t.Error("an import beside other states")
		}
		fork, err := s.Fork(70, 150)
		if err != nil {
			t.Fatal(err)
		}
		defer fork.Close()
		for _, s := range []*groupStorage{s, fork.(*groupStorage)} {
			if err := s.on(split); err != nil || s.split != split {
				t.Fatal(err)
			}
			has(fmt.Sprintf("when heads are cut: %t", split), s)
			if err := s.begin(68, 3, true); err != nil {
				t.Error(err)
			}
			s.Close()
		}
	}

	// Too little memory: of the budget, and of GPU 1, both before and after room was taken.
	s, lacks := filled(), (*backend.MemoryError)(nil)
	before := used()
	g.Budget().Limit(before + l.StateBytes()/2)
	if err := s.ImportStates(p, states); !errors.As(err, &lacks) || used() != before {
		t.Errorf("beyond the budget: %v, %d bytes are taken, before %d", err, used(), before)
	}
	if err := s.Reserve(200); !errors.As(err, &lacks) || used() != before {
		t.Errorf("beyond the budget: %v, %d bytes are taken, before %d", err, used(), before)
	}
	hasNone("beyond the budget", s)
	g.Budget().Limit(0)
	device := g.shards[1].device
	for _, reserve := range []bool{false, true} {
		if reserve {
			if err := s.Reserve(100); err != nil {
				t.Fatal(err)
			}
			before = used()
		}
		g.shards[1].device = nil
		err := s.ImportStates(p, states)
		g.shards[1].device = device
		if err == nil || !strings.Contains(err.Error(), "GPU 1: ") || errors.As(err, &lacks) == reserve || used() != before {
			t.Errorf("fails on GPU 1, reserved %t: %v, %d bytes are taken, before %d", reserve, err, used(), before)
		}
		hasNone("failed on GPU 1", s)
	}
	if err := s.ImportStates(p, states); err != nil {
		t.Fatal(err)
	}
	has("after errors", s)
	s.Close()

	// Without keys pages are empty, but counted.
	l.Layers, pages = l.Layers[:1], [][]byte{{}, {}}
	states = random(l.ExportedStates(p))
	for _, split := range []bool{true, false} {
		s := filled()
		if err := s.ImportStates(p, states); err != nil {
			t.Fatal(err)
		}
		if err := s.on(split); err != nil {
			t.Fatal(err)
		}
		has("without keys", s)
		if err := s.begin(70, 1, true); err != nil {
			t.Error(err)
		}
		s.Close()
	}
	if n := used(); n != 0 {
		t.Errorf("%d bytes are taken when all is closed", n)
	}
}
