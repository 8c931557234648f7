package model_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/conformance/backendtest"
	"windrow/cpu"
	"windrow/model"
	"windrow/rope"
	"windrow/synthetic"
)

func open(t testing.TB, src checkpoint.Source, o cpu.Options) *model.Model {
	t.Helper()
	b, err := cpu.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	m, err := model.Load(b, src)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// cache for up to 600 tokens.
func cache(t testing.TB, m *model.Model, kv backend.KVType) *model.Cache {
	t.Helper()
	c, err := m.NewCache(model.CacheOptions{Capacity: 600, MaxRows: 300, DType: kv})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// batch packs the rows of several sequences; each part continues its cache and
// wants all its rows' logits.
func batch(parts ...part) *model.Batch {
	b := &model.Batch{}
	for _, p := range parts {
		b.Spans = append(b.Spans, model.Span{Cache: p.cache, First: len(b.Tokens), Rows: len(p.tokens)})
		for i, id := range p.tokens {
			b.Want = append(b.Want, model.Wanted{Row: int32(len(b.Tokens)), Logits: true, TopK: 2})
			b.Tokens = append(b.Tokens, id)
			b.Positions = append(b.Positions, int32(p.cache.Base()+i))
		}
	}
	return b
}

type part struct {
	cache  *model.Cache
	tokens []int32
}

func forward(t testing.TB, m *model.Model, b *model.Batch) []model.Result {
	t.Helper()
	r, err := m.Forward(context.Background(), b)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func commit(t testing.TB, c *model.Cache, n int) {
	t.Helper()
	if err := c.Commit(n); err != nil {
		t.Fatal(err)
	}
}

func ids(seed, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32((i*7919 + seed*104729 + 13) % 97)
	}
	return out
}

func sameLogits(t *testing.T, what string, got, want []model.Result) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d results, want %d", what, len(got), len(want))
	}
	for r := range got {
		for i, v := range got[r].Logits {
			if math.Float32bits(v) != math.Float32bits(want[r].Logits[i]) {
				t.Fatalf("%s: row %d, logit %d: %v, want %v", what, r, i, v, want[r].Logits[i])
			}
		}
	}
}

// Architectures that no golden file covers, against the naive reference:
// biases without q/k norms, odd head counts, f16 and f32 weights, linear RoPE.
func TestAgainstReference(t *testing.T) {
	base := checkpoint.Config{HiddenSize: 40, Layers: 2, Heads: 6, KVHeads: 2, HeadDim: 16, IntermediateSize: 72, VocabSize: 97,
		RMSNormEps: 1e-6, MaxPositions: 1024, MaskTokenID: -1, Rope: rope.Config{HeadDim: 16, Theta: 10000}}
	for _, c := range []struct {
		name string
		dt   backend.DType
		edit func(*checkpoint.Config)
	}{
		{"qwen2, biases, untied", backend.BF16, func(c *checkpoint.Config) { c.Architecture = "qwen2" }},
		{"qwen2, tied, f16", backend.F16, func(c *checkpoint.Config) { c.Architecture, c.TieEmbeddings = "qwen2", true }},
		{"qwen3, f32, one kv head", backend.F32, func(c *checkpoint.Config) { c.Architecture, c.KVHeads = "qwen3", 1 }},
		{"qwen3, as many kv heads as heads", backend.BF16, func(c *checkpoint.Config) { c.Architecture, c.KVHeads = "qwen3", 6 }},
		{"wedlm, linear rope", backend.BF16, func(c *checkpoint.Config) {
			c.Architecture, c.Rope.Type, c.Rope.Factor = "wedlm", rope.Linear, 3
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := base
			c.edit(&config)
			src := synthetic.RandomSource(&config, c.dt, 5)
			m := open(t, src, cpu.Options{Exact: true})
			kv := cache(t, m, backend.KVF32)
			tokens := ids(1, 80)
			want := reference(t, src, tokens, positions(80))
			var got []model.Result
			for _, n := range []int{33, 1, 46} {
				got = append(got, forward(t, m, batch(part{kv, tokens[kv.Base() : kv.Base()+n]}))...)
				commit(t, kv, n)
			}
			for r := range got {
				var diff, norm float64
				for i, v := range got[r].Logits {
					diff += (float64(v) - want[r][i]) * (float64(v) - want[r][i])
					norm += want[r][i] * want[r][i]
				}
				if rel := math.Sqrt(diff / norm); !(rel < 1e-5) {
					t.Errorf("row %d: relative norm %.3g, want at most 1e-5", r, rel)
				}
			}
		})
	}
}

func positions(n int) []int32 {
	p := make([]int32, n)
	for i := range p {
		p[i] = int32(i)
	}
	return p
}

// Several sequences in one forward give each the bits it has alone: prefill, a
// single token and a window ride together.
func TestSequencesTogether(t *testing.T) {
	for _, exact := range []bool{true, false} {
		t.Run(fmt.Sprint("exact ", exact), func(t *testing.T) {
			m := open(t, backendtest.Tiny(t), cpu.Options{Exact: exact})
			lengths := []int{70, 1, 16, 33}
			var together []part
			var want []model.Result
			for i, n := range lengths {
				alone, shared := cache(t, m, backend.KVBF16), cache(t, m, backend.KVBF16)
				prompt := ids(i, 20*i+5)
				for _, c := range []*model.Cache{alone, shared} {
					forward(t, m, batch(part{c, prompt}))
					commit(t, c, len(prompt))
				}
				tokens := ids(i+9, n)
				want = append(want, forward(t, m, batch(part{alone, tokens}))...)
				together = append(together, part{shared, tokens})
			}
			sameLogits(t, "together", forward(t, m, batch(together...)), want)
		})
	}
}

// Chunks, and what a scratch window left behind, change no bit.
func TestPrefillChunksAndScratch(t *testing.T) {
	m := open(t, backendtest.Tiny(t), cpu.Options{})
	for _, kvType := range []backend.KVType{backend.KVF32, backend.KVBF16, backend.KVInt8} {
		tokens := ids(3, 150)
		whole := cache(t, m, kvType)
		want := forward(t, m, batch(part{whole, tokens}))
		chunked := cache(t, m, kvType)
		var got []model.Result
		for _, n := range []int{64, 1, 31, 54} {
			forward(t, m, batch(part{chunked, ids(n, 40)})) // a window that nobody commits
			commit(t, chunked, 0)
			got = append(got, forward(t, m, batch(part{chunked, tokens[chunked.Base() : chunked.Base()+n]}))...)
			commit(t, chunked, n)
		}
		sameLogits(t, fmt.Sprint("kv ", kvType), got, want)
		if least := 150 * m.Config().KVBytesPerToken(kvType); whole.Bytes() < least || whole.Bytes() > 192*m.Config().KVBytesPerToken(kvType) {
			t.Errorf("kv %v: %d bytes for 150 tokens, want at least %d and at most whole pages of 64", kvType, whole.Bytes(), least)
		}
	}
}

// A cancelled forward leaves no trace.
func TestCancelledForward(t *testing.T) {
	m := open(t, backendtest.Tiny(t), cpu.Options{})
	kv := cache(t, m, backend.KVBF16)
	forward(t, m, batch(part{kv, ids(1, 30)}))
	commit(t, kv, 30)
	want := forward(t, m, batch(part{kv, ids(2, 16)}))
	commit(t, kv, 0)
	for layers := range 8 {
		ctx := &cancelAfter{Context: context.Background(), left: layers}
		if _, err := m.Forward(ctx, batch(part{kv, ids(3, 12)})); !errors.Is(err, context.Canceled) {
			t.Fatalf("cancelled after %d layers: error %v", layers, err)
		}
		if err := kv.Commit(1); err == nil {
			t.Fatal("rows of a cancelled forward could be committed")
		}
	}
	sameLogits(t, "after cancelling", forward(t, m, batch(part{kv, ids(2, 16)})), want)
}

// cancelAfter is cancelled once Err has been asked left times.
type cancelAfter struct {
	context.Context
	left int
}

func (c *cancelAfter) Err() error {
	if c.left == 0 {
		return context.Canceled
	}
	c.left--
	return nil
}

func TestBatchRefusals(t *testing.T) {
	m := open(t, backendtest.Tiny(t), cpu.Options{})
	kv := cache(t, m, backend.KVF32)
	good := func() *model.Batch { return batch(part{kv, ids(1, 4)}) }
	for name, edit := range map[string]func(*model.Batch){
		"no rows":            func(b *model.Batch) { *b = model.Batch{} },
		"positions missing":  func(b *model.Batch) { b.Positions = b.Positions[:3] },
		"token past the end": func(b *model.Batch) { b.Tokens[2] = 4096 },
		"negative token":     func(b *model.Batch) { b.Tokens[2] = -1 },
		"position past end":  func(b *model.Batch) { b.Positions[0] = 4096 },
		"spans short":        func(b *model.Batch) { b.Spans[0].Rows = 3 },
		"spans apart":        func(b *model.Batch) { b.Spans[0].First = 1 },
		"no cache":           func(b *model.Batch) { b.Spans[0].Cache = nil },
		"counting cache":     func(b *model.Batch) { b.Spans[0].Cache = model.NewCountingCache(9) },
		"cache twice":        func(b *model.Batch) { b.Spans = []model.Span{{Cache: kv, Rows: 2}, {Cache: kv, First: 2, Rows: 2}} },
		"want out of range":  func(b *model.Batch) { b.Want = []model.Wanted{{Row: 4}} },
		"want not ascending": func(b *model.Batch) { b.Want = []model.Wanted{{Row: 2}, {Row: 1}} },
		"nothing allowed":    func(b *model.Batch) { b.Want[0].Allowed = backend.NewIDSet(10) },
		"too many rows":      func(b *model.Batch) { *b = *batch(part{kv, ids(1, 301)}) },
	} {
		b := good()
		edit(b)
		if _, err := m.Forward(context.Background(), b); err == nil {
			t.Errorf("%s: want an error", name)
		}
	}
	forward(t, m, good())
	if err := kv.Commit(5); err == nil {
		t.Error("commit of 5 rows out of 4: want an error")
	}
	commit(t, kv, 4)
	if _, err := kv.Truncate(5); err == nil {
		t.Error("truncate past the base: want an error")
	}
}
