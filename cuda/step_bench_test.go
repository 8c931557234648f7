package cuda

import (
	"fmt"
	"testing"

	"windrow/backend"
)

// toyShape is the shape of a model in weights of noise.
type toyShape struct {
	hidden, heads, kvHeads, dim, inner, vocabulary, layers int
	noise                                                  int // bytes of the weights
}

// shape8B is the 8B model's.
var shape8B = toyShape{4096, 32, 8, 128, 12288, 151936, layers8B, 8 << 30}

// tinyShape is that of [TestBenchmarks].
var tinyShape = toyShape{256, 2, 1, 128, 512, 300, 1, 1 << 20}

// slab is what the weights are cut from.
func (s toyShape) slab(m meter) *slab {
	return newSlab(m, s.noise, []projectShape{{"head", []int{s.vocabulary}, s.hidden, false}, {"down", []int{s.hidden}, s.inner, false}})
}

// noiseToy makes a model of weights of noise.
func noiseToy(b *Backend, s *slab, size toyShape, dt backend.DType) *toy {
	matrix := func(dt backend.DType, out, in int) *matrix {
		m, _ := s.weight(weightType{dt, 64}, out, in)
		m.tensorCoreShape = !dt.Quantized()
		return m
	}
	linear := func(out, in int) backend.Linear { return backend.Linear{Weight: matrix(dt, out, in)} }
	norm := &vector{n: size.hidden, data: s.x}
	queries, keys := size.heads*size.dim, size.kvHeads*size.dim
	y := &toy{
		b: b, hidden: size.hidden, queries: queries, keys: keys, inner: size.inner,
		layout: backend.KVLayout{Layers: size.layers, KVHeads: size.kvHeads, HeadDim: size.dim, DType: backend.KVBF16, Slots: 1 << 10},
		embed:  matrix(backend.BF16, size.vocabulary, size.hidden), head: matrix(backend.BF16, size.vocabulary, size.hidden), norm: norm,
	}
	for range size.layers {
		y.layers = append(y.layers, toyLayer{
			input: norm, post: norm,
			qkv: [3]backend.Linear{linear(queries, size.hidden), linear(keys, size.hidden), linear(keys, size.hidden)},
			o:   linear(size.hidden, queries), gate: linear(size.inner, size.hidden), up: linear(size.inner, size.hidden), down: linear(size.hidden, size.inner),
		})
	}
	return y
}

// backendMeter opens a backend for a benchmark or its test, and holds its device.
func backendMeter(t testing.TB, o Options) (*Backend, meter) {
	t.Helper()
	o.Library = testLibrary(t)
	b, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	b.device.ctx.Enter()
	t.Cleanup(func() {
		b.device.ctx.Leave()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b, newMeter(t, b.device)
}

// BenchmarkStep measures whole steps of the 8B model at context 512, results of
// all rows: "of=graph" is the device's time of the graph alone, ten behind each
// other, "of=step" what a caller sees. The noise of some types has results that
// are not finite: operations are then listed in each step, and the metric "kept" is 0.
func BenchmarkStep(b *testing.B) {
	needsGPU(b)
	steps(b, shape8B, []backend.DType{backend.Affine4, backend.Q4_K, backend.Affine8, backend.BF16}, []int{1, 8, 16, 32}, 512)
}

func steps(t testing.TB, size toyShape, types []backend.DType, rowCounts []int, base int) {
	b, m := backendMeter(t, Options{})
	s := size.slab(m)
	for _, dt := range types {
		y := noiseToy(b, s, size, dt)
		m.run("type", dt.String(), func(m meter) {
			for _, rows := range rowCounts {
				m.run("rows", fmt.Sprint(rows), func(m meter) { step(m, y, rows, base) })
			}
		})
	}
}

func step(m meter, y *toy, rows, base int) {
	kv := y.kv(m)
	defer kv.Close()
	spans, kept := []backend.Span{{KV: kv, Base: base, Rows: rows}}, 0.0
	run := func() error { return batchStep(m, y, spans, rows, "nothing").err }
	if h, err := tryHost(m, y, kv, rows); err == nil {
		h.v.Spans, kept = spans, 1
		run = func() error {
			if err := h.kept.Start(h.v); err != nil {
				return err
			}
			_, err := h.kept.Wait()
			return err
		}
	}
	stepTimes(m, y, run, func(m meter) { m.report(kept, "kept") })
}

// stepTimes measures the graph of a step, and the step. A result that is not
// finite, as noise has it, is no error here.
func stepTimes(m meter, y *toy, run func() error, also func(m meter)) {
	run()
	g := y.b.graphs.last
	if g == nil {
		m.Fatal("a step made no graph")
	}
	m.run("of", "graph", func(m meter) {
		m.replay(g, 10, 10)
		m.report(float64(g.Nodes()), "nodes")
		also(m)
	})
	m.run("of", "step", func(m meter) {
		for m.loop() {
			run()
		}
		also(m)
	})
}

// batchParts are those that BenchmarkBatchStep leaves out of a step's layers, or
// of the step.
var batchParts = []string{"nothing", "attention", "rotation", "norms", "q k v", "o", "gate up", "down", "head"}

// BenchmarkBatchStep measures a step of eight sequences of 16 rows at context
// 512, as BenchmarkStep does, whole and with parts left out.
func BenchmarkBatchStep(b *testing.B) {
	needsGPU(b)
	for _, variant := range []bool{false, true} {
		b.Run(fmt.Sprintf("variant=%v", variant), func(b *testing.B) {
			batchSteps(b, shape8B, variant, 8, 512, batchParts)
		})
	}
}

func batchSteps(t testing.TB, size toyShape, variant bool, sequences, base int, parts []string) {
	const rows = 16
	b, m := backendMeter(t, Options{BatchVariant: variant})
	s := size.slab(m)
	for _, dt := range []backend.DType{backend.Affine4, backend.BF16} {
		y := noiseToy(b, s, size, dt)
		m.run("type", dt.String(), func(m meter) {
			var spans []backend.Span
			for i := range sequences {
				kv := y.kv(m)
				defer kv.Close()
				spans = append(spans, backend.Span{KV: kv, First: i * rows, Rows: rows, Base: base})
			}
			y.angles(sequences*rows, 0)
			for _, without := range parts {
				if without != "nothing" && (!variant || dt != backend.Affine4) {
					continue
				}
				m.run("without", without, func(m meter) {
					stepTimes(m, y, func() error { return batchStep(m, y, spans, sequences*rows, without).err }, func(meter) {})
				})
			}
		})
	}
}

// batchStep runs one step, without some part.
func batchStep(t testing.TB, y *toy, spans []backend.Span, rows int, without string) *pass {
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
