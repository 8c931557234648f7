package model_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/conformance/backendtest"
	"windrow/cpu"
	"windrow/model"
	"windrow/quant"
)

const goldenFolder = "testdata/golden"

// headLogits runs a model over a golden prompt and its head for drafts over what that
// gives, in forwards of chunk rows, and compares the head's logits with the golden ones.
func headLogits(t *testing.T, src checkpoint.Source, b backend.Backend, name string, chunk int, spoil func(b *model.DraftBatch), o ...model.Option) (relative float64, equal, rows int) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(goldenFolder, name, "golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	golden, err := checkpoint.ReadSafetensors(data)
	if err != nil {
		t.Fatal(err)
	}
	entry, ok := golden.Lookup("mtp.logits")
	if !ok {
		t.Fatal("no logits of the head")
	}
	want, err := entry.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	entry, _ = golden.Lookup("prompt.ids")
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

func exactCPU(t *testing.T) *cpu.Backend {
	t.Helper()
	b, err := cpu.New(cpu.Options{Exact: true, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// TestDraftHeadGolden: the head's logits are those of a reference, in forwards of any
// number of rows.
func TestDraftHeadGolden(t *testing.T) {
	for _, name := range []string{"tiny-gsm-next", "qwen3-5-drafts", "qwen3-5-moe-tiny"} {
		for _, chunk := range []int{1000, 7, 1} {
			relative, equal, rows := headLogits(t, backendtest.Source(t, goldenFolder, name), exactCPU(t), name, chunk, nil, model.DraftHead(0))
			t.Logf("%s, %d rows a forward: %.2g, argmax %d of %d", name, chunk, relative, equal, rows)
			if !(relative <= 5e-6) || equal != rows {
				t.Errorf("%s, %d rows a forward: relative norm %.3g, argmax equal in %d of %d rows", name, chunk, relative, equal, rows)
			}
		}
	}
}

// TestDraftHeadFaults plants wrong readings of a head: each shows in the golden logits.
func TestDraftHeadFaults(t *testing.T) {
	const name, hidden = "qwen3-5-drafts", 64
	src := backendtest.Source(t, goldenFolder, name)
	final, ok := src.Tensor("model.norm.weight")
	if !ok {
		final, ok = src.Tensor("model.language_model.norm.weight")
	}
	if !ok || src.Config().HiddenSize != hidden {
		t.Fatal("another model than this test is for")
	}
	weights, err := quant.Vector(final)
	if err != nil {
		t.Fatal(err)
	}
	rows := func(b *model.DraftBatch, change func(r int, state []float32)) {
		for r := range b.Tokens {
			change(r, b.Hidden[r*hidden:(r+1)*hidden])
		}
	}
	for _, f := range []struct {
		name   string
		tensor func(name string, rows [][]float32)
		batch  func(b *model.DraftBatch)
	}{
		{name: "nothing"},
		{name: "the halves of fc swapped", tensor: func(name string, rows [][]float32) {
			if strings.HasSuffix(name, "mtp.fc.weight") {
				for _, r := range rows {
					for i := range hidden {
						r[i], r[hidden+i] = r[hidden+i], r[i]
					}
				}
			}
		}},
		{name: "norms before fc as w, not 1 + w", tensor: func(name string, rows [][]float32) {
			if strings.Contains(name, "mtp.pre_fc_norm") {
				for _, r := range rows {
					r[0]--
				}
			}
		}},
		{name: "the last norm without weights", tensor: func(name string, rows [][]float32) {
			if name == "mtp.norm.weight" {
				for _, r := range rows {
					r[0] = 0
				}
			}
		}},
		{name: "the state before the final norm", batch: func(b *model.DraftBatch) {
			rows(b, func(_ int, state []float32) {
				for i := range state {
					state[i] /= weights[i]
				}
			})
		}},
		{name: "the state of the position before", batch: func(b *model.DraftBatch) {
			was := slices.Clone(b.Hidden)
			copy(b.Hidden[hidden:], was)
		}},
		{name: "the token at the position, not the one behind it", batch: func(b *model.DraftBatch) {
			copy(b.Tokens[1:], slices.Clone(b.Tokens))
		}},
		{name: "no states", batch: func(b *model.DraftBatch) { clear(b.Hidden) }},
	} {
		relative, equal, n := headLogits(t, &spoiled{src, f.tensor}, exactCPU(t), name, 1000, f.batch, model.DraftHead(0))
		t.Logf("%s: %.2g, argmax %d of %d", f.name, relative, equal, n)
		if shown := relative > 5e-6; shown != (f.name != "nothing") {
			t.Errorf("%s: relative norm %.3g", f.name, relative)
		}
	}
}

// spoiled is a source whose tensors are changed on their way.
type spoiled struct {
	checkpoint.Source
	change func(name string, rows [][]float32)
}

func (s *spoiled) Tensor(name string) (backend.Tensor, bool) {
	t, ok := s.Source.Tensor(name)
	if !ok || s.change == nil || !strings.HasPrefix(name, "mtp.") || len(t.Shape) > 2 {
		return t, ok
	}
	flat := t
	flat.Shape = []int{t.Elements()}
	values, err := quant.Vector(flat)
	if err != nil {
		return t, ok
	}
	width := len(values) / t.Shape[0]
	var rows [][]float32
	for r := range t.Shape[0] {
		rows = append(rows, values[r*width:(r+1)*width])
	}
	s.change(name, rows)
	t.DType, t.Data = backend.F32, make([]byte, 4*len(values))
	quant.Blocks(t.Data, backend.F32, values)
	return t, ok
}

// TestDraftHeadBeside: the head keeps its keys beside the model's, and changes nothing of
// the model's own: logits have the bits that they have without it, wherever it runs and
// however often, through ways back and forks. Its own logits do not depend on what was
// drafted before and dropped.
func TestDraftHeadBeside(t *testing.T) {
	const name, rows = "qwen3-5-moe-tiny", 120
	r := rand.New(rand.NewPCG(3, 8))
	src := backendtest.Source(t, goldenFolder, name)
	b := exactCPU(t)
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
	if a, b := plain.KVBytesPerToken(backend.KVF32), m.KVBytesPerToken(backend.KVF32); b <= a {
		t.Errorf("%d bytes a token with a head, %d without", b, a)
	}
	ids := make([]int32, rows)
	for i := range ids {
		ids[i] = int32(r.IntN(src.Config().VocabSize))
	}
	cache := func(m *model.Model) *model.Cache {
		c, err := m.NewCache(model.CacheOptions{Capacity: rows, MaxRows: rows, DType: backend.KVF32, StepRows: 8})
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
	want := forward(plain, cache(plain), rows)
	states := make([][]float32, rows)
	for i, r := range forward(m, cache(m), rows) {
		states[i] = r.Hidden
	}
	// What the head says of each pair, in one forward.
	pairs := func(c *model.Cache, at, n int, drafts bool) []model.Result {
		t.Helper()
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
	whole := cache(m)
	forward(m, whole, rows)
	if err := whole.Commit(rows); err != nil {
		t.Fatal(err)
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
		if err := c.Commit(r.IntN(n + 1)); err != nil {
			t.Fatal(err)
		}
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
	// What cannot be: one line, and nothing is run.
	for what, bad := range map[string]*model.DraftBatch{
		"no rows":              {},
		"no states":            {Tokens: ids[:1], Spans: []model.DraftSpan{{Cache: c, Rows: 1}}},
		"a token":              {Tokens: []int32{-1}, Hidden: states[0], Spans: []model.DraftSpan{{Cache: c, Rows: 1}}},
		"a position":           {Tokens: ids[:1], Hidden: states[0], Spans: []model.DraftSpan{{Cache: c, At: 9999, Rows: 1}}},
		"no cache":             {Tokens: ids[:1], Hidden: states[0], Spans: []model.DraftSpan{{Rows: 1}}},
		"rows without a span":  {Tokens: ids[:1], Hidden: states[0]},
		"a span of other rows": {Tokens: ids[:1], Hidden: states[0], Spans: []model.DraftSpan{{Cache: c, First: 1, Rows: 1}}},
	} {
		if _, err := m.Draft(t.Context(), bad); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v", what, err)
		}
	}
	if _, err := plain.Draft(t.Context(), &model.DraftBatch{}); !errors.Is(err, model.ErrNoDraftHead) {
		t.Errorf("without a head: %v", err)
	}
	if err := c.KeepDrafts(c.Base() + 1); err == nil {
		t.Error("the head has more than is permanent")
	}
}

// hideless is a backend whose results bring no hidden states.
type hideless struct{ backend.Backend }

func (h hideless) Features() backend.Features {
	f := h.Backend.Features()
	f.HiddenRows = false
	return f
}

// TestDraftHeadRefused: a backend that brings no hidden states loads the model without
// its head, or refuses in one line.
func TestDraftHeadRefused(t *testing.T) {
	b := hideless{exactCPU(t)}
	src := backendtest.Source(t, goldenFolder, "qwen3-5-drafts")
	var lacks *backend.UnsupportedError
	if _, err := model.Load(b, src, model.DraftHead(0)); !errors.As(err, &lacks) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
	m, err := model.Load(b, src)
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
}
