package backendtest

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/model"
)

// RunHead compares golden models' heads for drafts with their logits, in forwards of all
// rows, of 7 and of one: in exact arithmetic closely, in another one only where no expert
// is chosen.
func RunHead(t *testing.T, golden string, b backend.Backend, names ...string) {
	exact := b.Features().Exact
	for _, name := range names {
		src := Source(t, golden, name)
		for _, chunk := range []int{1000, 7, 1} {
			relative, equal, rows := HeadLogits(t, golden, src, b, name, chunk, nil, model.DraftHead(0))
			t.Logf("%s, %d rows a forward: %.2g, argmax %d of %d", name, chunk, relative, equal, rows)
			switch {
			case exact && (!(relative <= 5e-6) || equal != rows), !exact && src.Config().Experts == nil && !(relative <= 2e-2):
				t.Errorf("%s, %d rows a forward: relative norm %.3g, argmax equal in %d of %d rows", name, chunk, relative, equal, rows)
			}
		}
	}
}

// HeadLogits runs a model over a golden prompt and its head for drafts over what that
// gives, in forwards of chunk rows, and compares the head's logits with the golden ones.
func HeadLogits(t *testing.T, golden string, src checkpoint.Source, b backend.Backend, name string, chunk int, spoil func(b *model.DraftBatch), o ...model.Option) (relative float64, equal, rows int) {
	t.Helper()
	file := goldenFile(t, golden, name, "golden.safetensors")
	entry, ok := file.Lookup("mtp.logits")
	if !ok {
		t.Fatal("no logits of the head")
	}
	want, err := entry.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	entry, _ = file.Lookup("prompt.ids")
	ids, err := entry.Int32s()
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(b, src, o...)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	c, err := m.NewCache(model.CacheOptions{Capacity: len(ids), MaxRows: len(ids), DType: backend.KVF32})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	pairs := len(ids) - 1
	trunk := &model.Batch{Tokens: ids[:pairs], Spans: []model.Span{{Cache: c, Rows: pairs}}}
	for i := range pairs {
		trunk.Positions = append(trunk.Positions, int32(i))
		trunk.Want = append(trunk.Want, model.Wanted{Row: int32(i), Hidden: true, Bare: true})
	}
	states, err := m.Forward(t.Context(), trunk)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Commit(pairs); err != nil {
		t.Fatal(err)
	}
	var logits []float32
	for from := 0; from < pairs; from += chunk {
		n := min(chunk, pairs-from)
		d := &model.DraftBatch{Tokens: slices.Clone(ids[from+1 : from+1+n]), Spans: []model.DraftSpan{{Cache: c, At: from, Rows: n}}}
		for i := range n {
			if s := states[from+i]; s.Argmax != -1 || s.Logits != nil {
				t.Fatalf("a bare row brings %+v", s)
			}
			d.Hidden = append(d.Hidden, states[from+i].Hidden...)
			d.Want = append(d.Want, model.Wanted{Row: int32(i), Logits: true})
		}
		if spoil != nil {
			spoil(d)
		}
		results, err := m.Draft(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			logits = append(logits, r.Logits...)
		}
	}
	if len(logits) != len(want) {
		t.Fatalf("%d logits, want %d", len(logits), len(want))
	}
	width := len(want) / pairs
	var difference, norm float64
	for i, w := range want {
		difference += float64(logits[i]-w) * float64(logits[i]-w)
		norm += float64(w) * float64(w)
	}
	best := func(x []float32) int { return slices.Index(x, slices.Max(x)) }
	for r := range pairs {
		if best(logits[r*width:(r+1)*width]) == best(want[r*width:(r+1)*width]) {
			equal++
		}
	}
	return math.Sqrt(difference / norm), equal, pairs
}

// RunHeadBeside drives a hybrid with a head for drafts over that many rows. The head keeps
// its keys beside the model's, and changes nothing of the model's own: logits have the bits
// that they have without it, wherever it runs and however often, through ways back and
// forks. Its own logits do not depend on what was drafted before and dropped.
func RunHeadBeside(t *testing.T, b backend.Backend, src checkpoint.Source, rows int) {
	const most = 20 // rows of a forward, whose bits do not depend on their number
	r := rand.New(rand.NewPCG(3, 8))
	load := func(o ...model.Option) *model.Model {
		m, err := model.Load(b, src, o...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		return m
	}
	plain, m := load(), load(model.DraftHead(4))
	if plain.Drafts() || !m.Drafts() {
		t.Fatal("a head that nobody asked for, or none that was")
	}
	kv := backend.KVBF16
	if b.Features().Exact {
		kv = backend.KVF32
	}
	if a, b := plain.KVBytesPerToken(kv), m.KVBytesPerToken(kv); b <= a {
		t.Errorf("%d bytes a token with a head, %d without", b, a)
	}
	ids := make([]int32, rows)
	for i := range ids {
		ids[i] = int32(r.IntN(src.Config().VocabSize))
	}
	cache := func(m *model.Model) *model.Cache {
		c, err := m.NewCache(model.CacheOptions{Capacity: rows, MaxRows: rows, DType: kv, StepRows: 8})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	forward := func(m *model.Model, c *model.Cache, n int) []model.Result {
		t.Helper()
		at := c.Base()
		batch := &model.Batch{Tokens: ids[at : at+n], Spans: []model.Span{{Cache: c, Rows: n}}}
		for i := range n {
			batch.Positions = append(batch.Positions, int32(at+i))
			batch.Want = append(batch.Want, model.Wanted{Row: int32(i), Logits: true, Hidden: m.Drafts()})
		}
		results, err := m.Forward(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	commit := func(c *model.Cache, n int) {
		t.Helper()
		if err := c.Commit(n); err != nil {
			t.Fatal(err)
		}
	}
	all := func(m *model.Model) (c *model.Cache, results []model.Result) {
		t.Helper()
		for c = cache(m); c.Base() < rows; {
			n := min(most, rows-c.Base())
			results = append(results, forward(m, c, n)...)
			commit(c, n)
		}
		return c, results
	}
	_, want := all(plain)
	whole, told := all(m)
	states := make([][]float32, rows)
	for i, r := range told {
		states[i] = r.Hidden
	}
	// What the head says of each pair.
	var pairs func(c *model.Cache, at, n int, drafts bool) []model.Result
	pairs = func(c *model.Cache, at, n int, drafts bool) []model.Result {
		t.Helper()
		if n > most {
			return append(pairs(c, at, most, drafts), pairs(c, at+most, n-most, drafts)...)
		}
		d := &model.DraftBatch{Spans: []model.DraftSpan{{Cache: c, At: at, Rows: n}}}
		for i := range n {
			token, state := ids[(at+i+1)%rows], states[at+i]
			if drafts { // wrong ones
				token, state = ids[(at+i+7)%rows], states[(at+i+9)%rows]
			}
			d.Tokens, d.Hidden = append(d.Tokens, token), append(d.Hidden, state...)
			d.Want = append(d.Want, model.Wanted{Row: int32(i), Logits: true})
		}
		results, err := m.Draft(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		return results
	}
	said := pairs(whole, 0, rows-1, false)
	same := func(what string, got []model.Result, want []model.Result) {
		t.Helper()
		for i := range got {
			if !slices.Equal(got[i].Logits, want[i].Logits) {
				t.Fatalf("%s: row %d differs", what, i)
			}
		}
	}
	c := cache(m)
	for c.Base() < rows-1 {
		base := c.Base()
		n := min(1+r.IntN(8), rows-1-base)
		same("the model", forward(m, c, n), want[base:])
		commit(c, r.IntN(n+1))
		if from := c.Drafted(); from < c.Base() && r.IntN(3) > 0 {
			same("the head", pairs(c, from, c.Base()-from, false), said[from:])
			if err := c.KeepDrafts(c.Base()); err != nil {
				t.Fatal(err)
			}
			pairs(c, c.Base(), min(1+r.IntN(4), rows-c.Base()), true) // drafts
		}
		if c.Drafted() > c.Base() {
			t.Fatalf("the head has %d of %d tokens", c.Drafted(), c.Base())
		}
		switch r.IntN(4) {
		case 0:
			if _, err := c.Truncate(max(0, c.Base()-r.IntN(6))); err != nil {
				t.Fatal(err)
			}
		case 1:
			fork, err := c.Fork(c.Base(), rows, rows)
			if err != nil {
				t.Fatal(err)
			}
			if fork.Drafted() != min(c.Drafted(), fork.Base()) {
				t.Fatalf("the head has %d of a fork's %d, %d of what it was forked from", fork.Drafted(), fork.Base(), c.Drafted())
			}
			if n := min(4, rows-c.Base()); n > 0 {
				forward(m, c, n)               // scratch, in the pages of one of them
				pairs(c, c.Drafted(), 1, true) // and the head's
			}
			t.Cleanup(fork.Close)
			c = fork
		}
	}
	// Sequences at different places in one forward say what each says alone.
	d, places := new(model.DraftBatch), []int{}
	for _, at := range []int{3, rows / 2, rows - 5, 17} {
		c := cache(m)
		for c.Base() < at {
			n := min(most, at-c.Base())
			forward(m, c, n)
			commit(c, n)
		}
		pairs(c, 0, at, false)
		d.Spans = append(d.Spans, model.DraftSpan{Cache: c, At: at, First: len(d.Tokens), Rows: 1 + len(places)})
		for i := range 1 + len(places) {
			d.Want = append(d.Want, model.Wanted{Row: int32(len(d.Tokens)), Logits: true})
			d.Tokens, d.Hidden = append(d.Tokens, ids[at+i+1]), append(d.Hidden, states[at+i]...)
		}
		places = append(places, at)
	}
	results, err := m.Draft(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range d.Spans {
		same("the head among others", results[s.First:s.First+s.Rows], said[places[i]:])
	}
}
