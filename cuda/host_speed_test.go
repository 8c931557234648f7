package cuda

import (
	"slices"
	"testing"
	"time"

	"windrow/backend"
	"windrow/model"
	"windrow/models/tinygsm"
)

// clock is a backend that notes when recordings start and have their results.
type clock struct {
	backend.Backend
	called, started, done time.Time // Start is called and returns, Wait returns
}

type clockedPass struct {
	backend.Keeper
	c *clock
}

type clockedRecording struct {
	backend.Recording
	c *clock
}

func (c *clock) Begin(rows int) (backend.Pass, error) {
	p, err := c.Backend.Begin(rows)
	if err != nil {
		return nil, err
	}
	return clockedPass{p.(backend.Keeper), c}, nil
}

func (p clockedPass) Keep() (backend.Recording, error) {
	r, err := p.Keeper.Keep()
	if r == nil {
		return nil, err
	}
	return clockedRecording{r, p.c}, err
}

func (r clockedRecording) Start(v backend.Values) error {
	r.c.called = time.Now()
	defer func() { r.c.started = time.Now() }()
	return r.Recording.Start(v)
}

func (r clockedRecording) Wait() ([]backend.Result, error) {
	defer func() { r.c.done = time.Now() }()
	return r.Recording.Wait()
}

// rangeOf is the median of times, the least and the most.
func rangeOf(times []time.Duration) string {
	slices.Sort(times)
	return times[len(times)/2].String() + " (" + times[0].String() + " to " + times[len(times)-1].String() + ")"
}

// TestHostTimes prints what the host adds to steps on a GPU from context 512 on, each
// of whose first row is committed: what a caller sees, the graph alone, the launch call,
// and the time from results to results.
func TestHostTimes(t *testing.T) {
	if !onDevice {
		t.Skip("a benchmark: set WINDROW_CUDA_DEVICE")
	}
	if !tinygsm.Available {
		t.Skip("built without the embedded model")
	}
	tiny, err := model.NewCheckpoint(tinygsm.Files())
	if err != nil {
		t.Fatal(err)
	}
	config, _ := model.ShapeConfig("qwen3-8b")
	for name, src := range map[string]model.Source{"tiny-gsm": tiny, "qwen3-8b 4-bit": model.RandomSource(config, backend.Affine4, 1)} {
		for _, listed := range []bool{true, false} {
			b := openCUDA(t)
			c := &clock{Backend: b}
			var use backend.Backend = c
			if listed {
				use = lister{b}
			}
			m, err := model.Load(use, src)
			if err != nil {
				t.Fatal(err)
			}
			for _, rows := range []int{1, 16} {
				h := hostTimes{t: t, m: m, c: c}
				h.run(rows)
				t.Logf("%s, %d rows, listed %t: a step %s, the longest %v", name, rows, listed, rangeOf(h.whole), h.whole[len(h.whole)-3:])
				if !listed {
					t.Logf("  results to start %s, start %s, start to results %s", rangeOf(h.between), rangeOf(h.start), rangeOf(h.wait))
				}
				b.device.ctx.Enter()
				alone := replayed(t, b.device, b.graphs.last)
				var call, end []time.Duration
				for range 51 {
					start := time.Now()
					if err := b.graphs.last.Launch(b.device.stream); err != nil {
						t.Fatal(err)
					}
					call = append(call, time.Since(start))
					if err := b.device.stream.Synchronize(); err != nil {
						t.Fatal(err)
					}
					end = append(end, time.Since(start))
				}
				b.device.ctx.Leave()
				t.Logf("  graph of %d nodes alone %v (%v to %v); launch call %s, launch to end %s", b.graphs.last.Nodes(), alone[3], alone[0], alone[6], rangeOf(call), rangeOf(end))
			}
			b.Close()
		}
	}
}

// hostTimes are those of one shape of step.
type hostTimes struct {
	t                           *testing.T
	m                           *model.Model
	c                           *clock
	whole, between, start, wait []time.Duration
}

// run takes 601 steps: over the border at 1024, where graphs for longer contexts begin.
func (h *hostTimes) run(rows int) {
	c, err := h.m.NewCache(model.CacheOptions{Capacity: 2048, MaxRows: 512, DType: backend.KVBF16})
	if err != nil {
		h.t.Fatal(err)
	}
	defer c.Close()
	forward := func(rows, commit int) {
		b := &model.Batch{Tokens: make([]int32, rows), Positions: make([]int32, rows), Spans: []model.Span{{Cache: c, Rows: rows}}, Want: model.Want{TopK: 1, Except: -1}}
		for r := range rows {
			b.Positions[r] = int32(c.Base() + r)
			if rows <= invariantRows {
				b.Want.Rows = append(b.Want.Rows, int32(r))
			}
		}
		if _, err := h.m.Forward(h.t.Context(), b); err != nil {
			h.t.Fatal(err)
		}
		if err := c.Commit(commit); err != nil {
			h.t.Fatal(err)
		}
	}
	forward(512, 512)
	for range 3 {
		forward(rows, 1)
	}
	for range 601 {
		before := h.c.done
		start := time.Now()
		forward(rows, 1)
		h.whole = append(h.whole, time.Since(start))
		h.between = append(h.between, h.c.called.Sub(before))
		h.start = append(h.start, h.c.started.Sub(h.c.called))
		h.wait = append(h.wait, h.c.done.Sub(h.c.started))
	}
}
