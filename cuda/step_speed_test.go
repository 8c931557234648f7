package cuda

import (
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"windrow/backend"
	"windrow/cuda/driver"
)

// noiseToy has the 8B model's shape, in weights of noise.
func noiseToy(b *Backend, s *projectTimes, dt backend.DType) *toy {
	const hidden, heads, kvHeads, dim, inner, vocabulary, layers = 4096, 32, 8, 128, 12288, 151936, 36
	matrix := func(dt backend.DType, out, in int) *matrix {
		m, _ := s.weight(dt, 64, out, in)
		m.tensorCoreShape = !dt.Quantized()
		return m
	}
	linear := func(out, in int) backend.Linear { return backend.Linear{Weight: matrix(dt, out, in)} }
	norm := &vector{n: hidden, data: s.x}
	y := &toy{
		b: b, hidden: hidden, queries: heads * dim, keys: kvHeads * dim, inner: inner,
		layout: backend.KVLayout{Layers: layers, KVHeads: kvHeads, HeadDim: dim, DType: backend.KVBF16, Slots: 1 << 10},
		embed:  matrix(backend.BF16, vocabulary, hidden), head: matrix(backend.BF16, vocabulary, hidden), norm: norm,
	}
	for range layers {
		y.layers = append(y.layers, toyLayer{
			input: norm, post: norm,
			qkv: [3]backend.Linear{linear(heads*dim, hidden), linear(kvHeads*dim, hidden), linear(kvHeads*dim, hidden)},
			o:   linear(hidden, heads*dim), gate: linear(inner, hidden), up: linear(inner, hidden), down: linear(hidden, inner),
		})
	}
	return y
}

// TestStepTimes prints what whole steps of the 8B model take on a GPU at context
// 512, results of all rows: of the graph alone, ten behind each other, and as a
// caller sees one (whose operations are listed each time, where the noise has
// results that are not finite).
func TestStepTimes(t *testing.T) {
	if !onDevice {
		t.Skip("a benchmark: set WINDROW_CUDA_DEVICE")
	}
	b := openCUDA(t)
	defer b.Close()
	b.device.ctx.Enter()
	defer b.device.ctx.Leave()
	s := &projectTimes{d: b.device, w: os.Stdout, shapes: benchShapes, noise: 8 << 30}
	defer s.close()
	s.open()
	for _, dt := range []backend.DType{backend.Affine4, backend.Q4_K, backend.Affine8, backend.BF16} {
		y := noiseToy(b, s, dt)
		for _, rows := range []int{1, 8, 16, 32} {
			kv := y.kv(t)
			spans := []backend.Span{{KV: kv, Base: 512, Rows: rows}}
			step, how := func() { batchStep(t, y, spans, rows, "nothing") }, "listed"
			if h, err := tryHost(t, y, kv, rows); err == nil {
				h.v.Spans = spans
				step, how = func() { h.kept.Start(h.v); h.kept.Wait() }, "kept"
			}
			step()
			g := b.graphs.last
			var whole []time.Duration
			for range 7 {
				start := time.Now()
				step()
				whole = append(whole, time.Since(start))
			}
			slices.Sort(whole)
			alone := replayed(t, b.device, g)
			t.Logf("%-8v %2d rows, %s: %3d nodes %v (%v to %v), with the host %v (%v to %v)", dt, rows, how, g.Nodes(), alone[3], alone[0], alone[6], whole[3], whole[0], whole[6])
			kv.Close()
		}
	}
}

// batchParts are those that TestBatchStepTimes leaves out of a step's layers, or
// of the step.
var batchParts = []string{"nothing", "attention", "rotation", "norms", "q k v", "o", "gate up", "down", "head"}

// TestBatchStepTimes prints what a step of eight sequences of 16 rows takes on a
// GPU at context 512, as TestStepTimes does, whole and with parts left out.
func TestBatchStepTimes(t *testing.T) {
	if !onDevice {
		t.Skip("a benchmark: set WINDROW_CUDA_DEVICE")
	}
	const sequences, rows = 8, 16
	for _, variant := range []bool{false, true} {
		b, err := New(Options{BatchVariant: variant})
		if err != nil {
			t.Fatal(err)
		}
		b.device.ctx.Enter()
		s := &projectTimes{d: b.device, w: os.Stdout, shapes: benchShapes, noise: 8 << 30}
		s.open()
		for _, dt := range []backend.DType{backend.Affine4, backend.BF16} {
			y := noiseToy(b, s, dt)
			var spans []backend.Span
			for i := range sequences {
				spans = append(spans, backend.Span{KV: y.kv(t), First: i * rows, Rows: rows, Base: 512})
			}
			y.angles(sequences*rows, 0)
			for _, without := range batchParts {
				if without != "nothing" && (!variant || dt != backend.Affine4) {
					continue
				}
				step := func() error { return batchStep(t, y, spans, sequences*rows, without).err }
				err := step()
				g := b.graphs.last
				alone := replayed(t, b.device, g)
				var whole []time.Duration
				for range 20 {
					start := time.Now()
					step()
					whole = append(whole, time.Since(start))
				}
				slices.Sort(whole)
				t.Logf("%v, variant %v, without %s: %d nodes, %v (least %v), with the host %v (least %v) %v", dt, variant, without, g.Nodes(), alone[3], alone[0], whole[10], whole[0], err)
			}
			for _, span := range spans {
				span.KV.Close()
			}
		}
		s.close()
		b.device.ctx.Leave()
		b.Close()
	}
}

// batchStep runs one step, without some part.
func batchStep(t *testing.T, y *toy, spans []backend.Span, rows int, without string) *pass {
	first, err := y.b.Begin(rows)
	if err != nil {
		t.Fatal(err)
	}
	p := first.(*pass)
	y.begin(p)
	y.without = without
	y.record(p, make([]int32, rows), spans, nil)
	if without != "head" {
		p.Results(y.x, y.norm, 1e-6, y.head, bestOf(rows))
	}
	p.End()
	return p
}

// bestOf wants the best candidate of each of so many rows.
func bestOf(rows int) backend.Want {
	want := backend.Want{TopK: 1, Except: -1}
	for r := range rows {
		want.Rows = append(want.Rows, int32(r))
	}
	return want
}

// replayed is seven times of a graph, each of ten behind each other, the least first.
func replayed(t *testing.T, d *device, g *driver.Graph) []time.Duration {
	times := elapsed(t, d, 7, func() error {
		for range 10 {
			if err := g.Launch(d.stream); err != nil {
				return err
			}
		}
		return nil
	})
	for i := range times {
		times[i] /= 10
	}
	return times
}

// elapsed is the device's times of what run enqueues, the least first.
func elapsed(t *testing.T, d *device, runs int, run func() error) []time.Duration {
	var event [2]*driver.Event
	for i := range event {
		e, err := d.ctx.NewEvent()
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		event[i] = e
	}
	var times []time.Duration
	for range runs {
		if err := errors.Join(event[0].Record(d.stream), run(), event[1].Record(d.stream), d.stream.Synchronize()); err != nil {
			t.Fatal(err)
		}
		took, err := driver.Elapsed(event[0], event[1])
		if err != nil {
			t.Fatal(err)
		}
		times = append(times, took)
	}
	slices.Sort(times)
	return times
}
