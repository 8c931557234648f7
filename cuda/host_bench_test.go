package cuda

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/cuda/driver"
	"windrow/cuda/emulator"
	"windrow/model"
	"windrow/models/tinygsm"
	"windrow/synthetic"
)

// clock is a backend that notes when forwards start and have their results.
type clock struct {
	backend.Backend
	called, started, done time.Time // Start is called and returns, Wait returns
}

type clockedForward struct {
	backend.Forward
	c *clock
}

func (c *clock) Compile(p *backend.Program) (backend.Forward, error) {
	f, err := c.Backend.Compile(p)
	if err != nil {
		return nil, err
	}
	return clockedForward{f, c}, nil
}

func (f clockedForward) Start(ctx context.Context, v backend.Values) error {
	f.c.called = time.Now()
	defer func() { f.c.started = time.Now() }()
	return f.Forward.Start(ctx, v)
}

func (f clockedForward) Wait() ([]backend.Result, error) {
	defer func() { f.c.done = time.Now() }()
	return f.Forward.Wait()
}

// BenchmarkHost measures what the host adds to steps on a GPU from context 512 on,
// each of whose first row is committed. ns/op is the median of what a caller sees
// of a step; of the metrics, "longest-ns" is the longest, "between-ns", "start-ns"
// and "wait-ns" are the medians of its parts (results to start, start, start to
// results). A round is 601 steps.
func BenchmarkHost(b *testing.B) {
	needsGPU(b)
	batches := func(b *testing.B, src checkpoint.Source) {
		hostSteps(b, src, false, []hostBatch{{1, 1}, {1, 16}, {8, 16}}, 601)
		b.Run("variant", func(b *testing.B) { hostSteps(b, src, true, []hostBatch{{8, 16}}, 601) })
	}
	b.Run("model=tiny-gsm", func(b *testing.B) {
		if !tinygsm.Available {
			b.Skip("built without the embedded model")
		}
		src, err := checkpoint.New(tinygsm.Files())
		if err != nil {
			b.Fatal(err)
		}
		batches(b, src)
	})
	b.Run("model=qwen3-8b-4bit", func(b *testing.B) {
		config, _ := synthetic.ShapeConfig("qwen3-8b")
		batches(b, synthetic.RandomSource(config, backend.Affine4, 1))
	})
}

// hostBatch is the rows of a step.
type hostBatch struct{ sequences, rows int }

func hostSteps(t testing.TB, src checkpoint.Source, variant bool, batches []hostBatch, steps int) {
	b, err := New(Options{Library: emulator.Driver(t), BatchVariant: variant})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	c := &clock{Backend: b}
	loaded, err := model.Load(c, src)
	if err != nil {
		t.Fatal(err)
	}
	for _, batch := range batches {
		newMeter(t, b.device).Run("rows", fmt.Sprintf("%dx%d", batch.sequences, batch.rows), func(m meter) {
			first := hostTimes{t: m, m: loaded, c: c}
			if first.run(batch, 1); b.graphs.last == nil {
				m.Fatal("a step made no graph")
			}
			m.Run("of", "step", func(m meter) {
				h := hostTimes{t: m, m: loaded, c: c}
				for m.Loop() {
					h.run(batch, steps)
				}
				m.Report(float64(slices.Max(h.whole)), "longest-ns")
				m.Report(median(h.whole), "ns/op")
				m.Report(median(h.between), "between-ns")
				m.Report(median(h.start), "start-ns")
				m.Report(median(h.wait), "wait-ns")
			})
			m.Run("of", "graph", func(m meter) {
				m.Replay(b.graphs.last, 10, 10)
				m.Report(float64(b.graphs.last.Nodes()), "nodes")
			})
			m.Run("of", "launch", func(m meter) { launchTimes(m, b.graphs.last) })
		})
	}
}

// launchTimes measures one launch of a graph up to its end as the host sees it,
// and the call, "call-ns".
func launchTimes(m meter, g *driver.Graph) {
	var call, end []time.Duration
	for m.Loop() {
		start := time.Now()
		m.Check(g.Launch(m.D.Stream))
		call = append(call, time.Since(start))
		m.Check(m.D.Stream.Synchronize())
		end = append(end, time.Since(start))
	}
	m.Report(median(call), "call-ns")
	m.Report(median(end), "ns/op")
}

// median is that of times in nanoseconds.
func median(times []time.Duration) float64 {
	slices.Sort(times)
	return float64(times[len(times)/2])
}

// hostTimes are those of one shape of step.
type hostTimes struct {
	t                           testing.TB
	m                           *model.Model
	c                           *clock
	whole, between, start, wait []time.Duration
}

// run takes steps: 601 go over the border at 1024, where graphs for longer contexts begin.
func (h *hostTimes) run(of hostBatch, steps int) {
	var caches []*model.Cache
	for range of.sequences {
		c, err := h.m.NewCache(model.CacheOptions{Capacity: 2048, MaxRows: 512, DType: backend.KVBF16})
		if err != nil {
			h.t.Fatal(err)
		}
		defer c.Close()
		caches = append(caches, c)
	}
	forward := func(rows, commit int, caches ...*model.Cache) {
		b := &model.Batch{Tokens: make([]int32, rows*len(caches))}
		for i, c := range caches {
			b.Spans = append(b.Spans, model.Span{Cache: c, First: i * rows, Rows: rows})
			for r := range rows {
				b.Positions = append(b.Positions, int32(c.Base()+r))
				if rows <= invariantRows {
					b.Want = append(b.Want, model.Wanted{Row: int32(i*rows + r), TopK: 1})
				}
			}
		}
		if _, err := h.m.Forward(h.t.Context(), b); err != nil {
			h.t.Fatal(err)
		}
		for _, c := range caches {
			if err := c.Commit(commit); err != nil {
				h.t.Fatal(err)
			}
		}
	}
	for _, c := range caches {
		forward(512, 512, c)
	}
	for range 3 {
		forward(of.rows, 1, caches...)
	}
	for range steps {
		before := h.c.done
		start := time.Now()
		forward(of.rows, 1, caches...)
		h.whole = append(h.whole, time.Since(start))
		h.between = append(h.between, h.c.called.Sub(before))
		h.start = append(h.start, h.c.started.Sub(h.c.called))
		h.wait = append(h.wait, h.c.done.Sub(h.c.started))
	}
}
