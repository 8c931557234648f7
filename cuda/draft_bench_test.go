package cuda

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/cuda/emulator"
	"windrow/model"
	"windrow/synthetic"
)

// BenchmarkDraft measures a head for drafts beside its model, in weights of noise: steps of
// one row and of two, a prompt without and with the states of all its rows, and the head's
// forwards of one row and of that prompt; and the same of 8 and 32 sequences together. Times
// are those of the host, results included.
func BenchmarkDraft(b *testing.B) {
	needsGPU(b)
	for _, name := range []string{"qwen3.5-4b", "qwen3.5-27b", "qwen3.5-35b-a3b"} {
		b.Run(name, func(b *testing.B) {
			c, _ := synthetic.ShapeConfig(name)
			for what, ms := range drafted(b, c, 512, 21) {
				b.ReportMetric(ms, what)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// drafted are medians of so many times, in ms.
func drafted(t testing.TB, c *checkpoint.Config, prompt, times int) map[string]float64 {
	config := *c
	config.MTPLayers = 1
	b, err := New(Options{Library: emulator.Driver(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	m, err := model.Load(b, synthetic.RandomSource(&config, backend.Affine4, 1), model.DraftHead(4))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	cache, err := m.NewCache(model.CacheOptions{Capacity: prompt + 8, MaxRows: prompt, DType: backend.KVBF16})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	run := func(rows int, hidden bool) func() {
		return func() {
			x := &model.Batch{Spans: []model.Span{{Cache: cache, Rows: rows}}}
			for i := range rows {
				x.Tokens, x.Positions = append(x.Tokens, int32(7*i%config.VocabSize)), append(x.Positions, int32(cache.Base()+i))
				if last := i == rows-1; last || hidden {
					x.Want = append(x.Want, model.Wanted{Row: int32(i), Hidden: hidden, Bare: !last && rows > 2})
				}
			}
			if _, err := m.Forward(t.Context(), x); err != nil {
				t.Fatal(err)
			}
		}
	}
	// draft is a forward of the head: rows of each of some sequences.
	draft := func(at, rows int, caches ...*model.Cache) func() {
		all := rows * len(caches)
		x := &model.DraftBatch{Tokens: make([]int32, all), Hidden: make([]float32, all*config.HiddenSize)}
		for i, c := range caches {
			x.Spans = append(x.Spans, model.DraftSpan{Cache: c, At: at, First: i * rows, Rows: rows})
			x.Want = append(x.Want, model.Wanted{Row: int32((i+1)*rows - 1), Hidden: true})
		}
		for i := range x.Hidden {
			x.Hidden[i] = float32(i%7) - 3
		}
		return func() {
			if _, err := m.Draft(t.Context(), x); err != nil {
				t.Fatal(err)
			}
		}
	}
	y := map[string]float64{}
	measure := func(what string, f func()) {
		list := make([]float64, times)
		for range 3 {
			f()
		}
		for i := range list {
			start := time.Now()
			f()
			list[i] = time.Since(start).Seconds() * 1e3
		}
		slices.Sort(list)
		y[what+"-ms"] = list[len(list)/2]
	}
	measure("prompt", run(prompt, false))
	measure("prompt-told", run(prompt, true))
	if err := cache.Commit(prompt); err != nil {
		t.Fatal(err)
	}
	measure("draft-prompt", draft(0, prompt, cache))
	measure("step", run(1, false))
	measure("step-told", run(1, true))
	measure("two-rows", run(2, true))
	measure("draft", draft(prompt, 1, cache))
	var others []*model.Cache
	for range 32 {
		c, err := cache.Fork(prompt, prompt+8, 8)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		others = append(others, c)
	}
	measure("draft-8", draft(prompt, 1, others[:8]...))
	measure("draft-32", draft(prompt, 1, others...))
	// What 8 and 32 sequences check with two rows each.
	for _, n := range []int{8, 32} {
		measure(fmt.Sprintf("two-rows-%d", n), func() {
			x := new(model.Batch)
			for i, c := range others[:n] {
				x.Spans = append(x.Spans, model.Span{Cache: c, First: 2 * i, Rows: 2})
				for r := range 2 {
					x.Tokens, x.Positions = append(x.Tokens, int32((7*i+r)%config.VocabSize)), append(x.Positions, int32(prompt+r))
					x.Want = append(x.Want, model.Wanted{Row: int32(2*i + r), Hidden: true})
				}
			}
			if _, err := m.Forward(t.Context(), x); err != nil {
				t.Fatal(err)
			}
		})
	}
	return y
}
