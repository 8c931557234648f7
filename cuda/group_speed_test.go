package cuda

import (
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/cuda/driver"
	"windrow/model"
	"windrow/synthetic"
)

// TestGroupExchangeTimes prints how long the GPUs take to join partial sums of rows
// of 4096: gathered and added in a graph, as decode passes do, and added by NCCL, as
// prefill does.
func TestGroupExchangeTimes(t *testing.T) {
	if !onDevice {
		t.Skip("a benchmark: set WINDROW_CUDA_DEVICE")
	}
	g := openGroup(t, false)
	const width, times = 4096, 72
	for _, rows := range []int{1, 8, 16, 32, 128} {
		n := rows * width
		dst, graphs := make([]driver.Ptr, len(g.shards)), make([]*driver.Graph, len(g.shards))
		joined := func(d *device, i int) error {
			for range times {
				d.joinPartials(dst[i], n, true)
			}
			return d.take()
		}
		step := func(f func(i int, d *device) error) {
			t.Helper()
			if err := g.together(func(i int, b *Backend) error {
				b.device.ctx.Enter()
				defer b.device.ctx.Leave()
				return f(i, b.device)
			}); err != nil {
				t.Fatal(err)
			}
		}
		step(func(i int, d *device) (err error) {
			if _, err = d.preparePartials(n, true); err == nil {
				dst[i], err = d.ctx.Alloc(4 * n)
			}
			d.dry = true
			err = errors.Join(err, joined(d, i))
			d.dry = false
			return err
		})
		step(func(i int, d *device) (err error) {
			if err = d.stream.BeginCapture(); err == nil {
				err = joined(d, i)
				var ended error
				graphs[i], ended = d.stream.EndCapture()
				err = errors.Join(err, ended)
			}
			if err == nil {
				err = graphs[i].Upload(d.stream)
			}
			return err
		})
		var gathered, reduced time.Duration
		run := func(took *time.Duration, queue func(i int, d *device) error) {
			for range 10 {
				step(func(i int, d *device) error {
					start := time.Now()
					err := errors.Join(queue(i, d), d.stream.Synchronize())
					if once := time.Since(start) / times; i == 0 && (*took == 0 || once < *took) {
						*took = once
					}
					return err
				})
			}
		}
		run(&gathered, func(i int, d *device) error { return graphs[i].Launch(d.stream) })
		big := 16 * n
		step(func(i int, d *device) error {
			_, err := d.preparePartials(big, false)
			return err
		})
		run(&reduced, func(i int, d *device) error {
			for range times {
				if err := d.rank.reduce(d.stream, d.partials.data, big); err != nil {
					return err
				}
			}
			return nil
		})
		t.Logf("%4d rows: gathered and added %6.2f µs (%d nodes); %5d rows added by NCCL %8.2f µs; NCCL %s %s",
			rows, 1e6*gathered.Seconds(), graphs[0].Nodes(), 16*rows, 1e6*reduced.Seconds(), g.nccl.versionText(), os.Getenv("NCCL_PROTO"))
		step(func(i int, d *device) error {
			return errors.Join(graphs[i].Close(), d.ctx.Free(dst[i]))
		})
	}
}

// TestGroupModelTimes prints how long the forwards of a model of 8 billion random
// weights take on one GPU and on two.
func TestGroupModelTimes(t *testing.T) {
	if !onDevice {
		t.Skip("a benchmark: set WINDROW_CUDA_DEVICE")
	}
	config, _ := synthetic.ShapeConfig("qwen3-8b")
	for _, dt := range []backend.DType{backend.BF16, backend.Affine4} {
		src := synthetic.RandomSource(config, dt, 1)
		t.Run("one "+dt.String(), func(t *testing.T) {
			b := openBackend(t, false)
			defer b.Close()
			modelTimes(t, b, src)
		})
		t.Run("two "+dt.String(), func(t *testing.T) { modelTimes(t, openGroup(t, false), src) })
	}
}

// modelTimes prints the median and the spread of forwards.
func modelTimes(t *testing.T, b backend.Backend, src checkpoint.Source) {
	start := time.Now()
	m, err := model.Load(b, src)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("loaded in %.1f s", time.Since(start).Seconds())
	c, err := m.NewCache(model.CacheOptions{Capacity: 4096, MaxRows: 4096, DType: backend.KVBF16})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, rows := range []int{1, 16, 32, 512, 2048} {
		batch := &model.Batch{Tokens: make([]int32, rows), Positions: make([]int32, rows), Spans: []model.Span{{Cache: c, Rows: rows}}, Want: model.Want{Except: -1}}
		for r := range rows {
			batch.Positions[r] = int32(r)
			if rows <= invariantRows || r == rows-1 {
				batch.Want.Rows = append(batch.Want.Rows, int32(r))
			}
		}
		times := make([]float64, 0, 40)
		for range min(40, 3+2048/rows) {
			start := time.Now()
			if _, err := m.Forward(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
			times = append(times, 1e3*time.Since(start).Seconds())
		}
		slices.Sort(times[2:])
		t.Logf("%4d rows: %7.3f ms (%.3f to %.3f)", rows, times[2+(len(times)-2)/2], times[2], times[len(times)-1])
	}
}
