package cuda

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/cuda/driver"
	"windrow/cuda/launch"
	"windrow/model"
	"windrow/synthetic"
)

// BenchmarkGroupExchange measures how long the GPUs take to join partial sums of rows
// of 4096, 72 times one behind the other: gathered and added in a graph, as decode
// passes do, and added by NCCL, as prefill does. ns/op is the median over the rounds
// of the first GPU's time of one, as the host sees it.
func BenchmarkGroupExchange(b *testing.B) {
	needsGPU(b)
	g := openGroup(b, false)
	for _, rows := range []int{1, 8, 16, 32, 128} {
		exchanges(b, g, rows, 4096, 72)
	}
}

func exchanges(t testing.TB, g *Group, rows, width, times int) {
	t.Helper()
	n := rows * width
	dst, graphs := make([]driver.Ptr, len(g.shards)), make([]*driver.Graph, len(g.shards))
	joined := func(d *launch.Device, i int) error {
		for range times {
			d.JoinPartials(dst[i], n, true)
		}
		return d.Take()
	}
	step := func(f func(i int, d *launch.Device) error) {
		t.Helper()
		if err := g.together(func(i int, b *Backend) error {
			b.device.Context.Enter()
			defer b.device.Context.Leave()
			return f(i, b.device)
		}); err != nil {
			t.Fatal(err)
		}
	}
	step(func(i int, d *launch.Device) (err error) {
		if _, err = d.PreparePartials(n, true); err == nil {
			dst[i], err = d.Context.Alloc(4 * n)
		}
		loaded := d.Rehearse(func() { err = errors.Join(err, joined(d, i)) })
		return errors.Join(err, loaded)
	})
	step(func(i int, d *launch.Device) (err error) {
		if err = d.Stream.BeginCapture(); err == nil {
			err = joined(d, i)
			var ended error
			graphs[i], ended = d.Stream.EndCapture()
			err = errors.Join(err, ended)
		}
		if err == nil {
			err = graphs[i].Upload(d.Stream)
		}
		return err
	})
	measure := func(by string, rows int, queue func(i int, d *launch.Device) error) {
		newMeter(t, g.shards[0].device).Run("by", fmt.Sprintf("%s/rows=%d", by, rows), func(m meter) {
			var took []time.Duration
			for m.Loop() {
				m.Check(g.together(func(i int, b *Backend) error {
					b.device.Context.Enter()
					defer b.device.Context.Leave()
					start := time.Now()
					err := errors.Join(queue(i, b.device), b.device.Stream.Synchronize())
					if i == 0 {
						took = append(took, time.Since(start)/time.Duration(times))
					}
					return err
				}))
			}
			m.Report(median(took), "ns/op")
		})
	}
	measure("gather", rows, func(i int, d *launch.Device) error { return graphs[i].Launch(d.Stream) })
	big := 16 * n
	step(func(i int, d *launch.Device) error {
		_, err := d.PreparePartials(big, false)
		return err
	})
	measure("nccl", 16*rows, func(i int, d *launch.Device) error {
		for range times {
			if err := d.ReducePartials(big); err != nil {
				return err
			}
		}
		return nil
	})
	step(func(i int, d *launch.Device) error {
		return errors.Join(graphs[i].Close(), d.Context.Free(dst[i]))
	})
}

// BenchmarkGroupModel measures forwards of a model of 8 billion random weights, as
// a caller sees them, on one GPU and on two.
func BenchmarkGroupModel(b *testing.B) {
	needsGPU(b)
	config, _ := synthetic.ShapeConfig("qwen3-8b")
	for _, dt := range []backend.DType{backend.BF16, backend.Affine4} {
		src := synthetic.RandomSource(config, dt, 1)
		b.Run("gpus=1/type="+dt.String(), func(b *testing.B) {
			one := openBackend(b, false)
			defer one.Close()
			modelTimes(b, one, src)
		})
		b.Run("gpus=2/type="+dt.String(), func(b *testing.B) { modelTimes(b, openGroup(b, false), src) })
	}
}

// modelTimes measures forwards of a model from an empty context on.
func modelTimes(b *testing.B, use backend.Backend, src checkpoint.Source) {
	m, err := model.Load(use, src)
	if err != nil {
		b.Fatal(err)
	}
	c, err := m.NewCache(model.CacheOptions{Capacity: 4096, MaxRows: 4096, DType: backend.KVBF16})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	for _, rows := range []int{1, 16, 32, 512, 2048} {
		batch := &model.Batch{Tokens: make([]int32, rows), Positions: make([]int32, rows), Spans: []model.Span{{Cache: c, Rows: rows}}}
		for r := range rows {
			batch.Positions[r] = int32(r)
			if rows <= invariantRows || r == rows-1 {
				batch.Want = append(batch.Want, model.Wanted{Row: int32(r)})
			}
		}
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			forward := func() {
				if _, err := m.Forward(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
			}
			forward() // kernels are loaded
			forward() // and graphs are made
			for b.Loop() {
				forward()
			}
		})
	}
}
