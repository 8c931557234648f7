package cuda

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/backend"
	"windrow/cuda/driver"
	"windrow/cuda/emulator"
	"windrow/cuda/launch"
	"windrow/cuda/measure"
)

// toyShape is the shape of a model in weights of noise.
type toyShape struct {
	hidden, heads, kvHeads, dim, inner, vocabulary, layers int
	noise                                                  int // bytes of the weights
}

// shape8B is the 8B model's.
var shape8B = toyShape{4096, 32, 8, 128, 12288, 151936, 36, 8 << 30}

// tinyShape is that of [TestBenchmarks].
var tinyShape = toyShape{256, 2, 1, 128, 512, 300, 1, 1 << 20}

// noise is what the weights of a model are cut from, and its norms.
type noise struct {
	m meter
	*measure.Slab
	norm driver.Ptr // f32
}

func (s toyShape) slab(m meter) *noise {
	r := rand.New(rand.NewPCG(1, 1))
	data := measure.Noise(r, s.noise)
	y := &noise{m: m, Slab: m.Slab(s.noise, data)}
	measure.NormalsBF16(data, r, 1)
	y.norm = m.Filled(4*s.hidden, data)
	return y
}

// noiseToy makes a model of weights of noise.
func noiseToy(b *Backend, s *noise, size toyShape, dt backend.DType) *toy {
	matrix := func(dt backend.DType, out, in int) *matrix {
		w := launch.Weight{DType: dt, Out: out, In: in, Group: 64, TensorCoreShape: !dt.Quantized()}
		if p, ok := launch.PackedShape(dt, 64, out, in); ok {
			p.Data, w.Packed = s.Cut(p.Bytes), p
		} else {
			w.Raw = s.Cut(2 * out * in)
		}
		return &matrix{b: b, weight: w}
	}
	linear := func(out, in int) backend.Linear { return backend.Linear{Weight: matrix(dt, out, in)} }
	norm := &vector{b: b, n: size.hidden, data: s.norm}
	queries, keys := size.heads*size.dim, size.kvHeads*size.dim
	y := &toy{
		b: b, rotation: toyRotation(s.m, b, size.dim), hidden: size.hidden, queries: queries, keys: keys, inner: size.inner,
		layout: backend.KeysLayout(size.layers, size.kvHeads, size.dim, backend.KVBF16, 1<<10),
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
	o.Library = emulator.Driver(t)
	b, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	b.device.Context.Enter()
	t.Cleanup(func() {
		b.device.Context.Leave()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b, newMeter(t, b.device)
}

// BenchmarkStep measures whole steps of the 8B model at context 512, results of
// all rows: "of=graph" is the device's time of the graph alone, ten behind each
// other, "of=step" what a caller sees. The noise of some types has results that
// are not finite.
func BenchmarkStep(b *testing.B) {
	needsGPU(b)
	steps(b, shape8B, []backend.DType{backend.Affine4, backend.Q4_K, backend.Affine8, backend.BF16}, []int{1, 8, 16, 32}, 512)
}

func steps(t testing.TB, size toyShape, types []backend.DType, rowCounts []int, base int) {
	b, m := backendMeter(t, Options{})
	s := size.slab(m)
	for _, dt := range types {
		y := noiseToy(b, s, size, dt)
		m.Run("type", dt.String(), func(m meter) {
			for _, rows := range rowCounts {
				m.Run("rows", fmt.Sprint(rows), func(m meter) { step(m, y, rows, base) })
			}
		})
	}
}

func step(m meter, y *toy, rows, base int) {
	kv := y.kv(m)
	defer kv.Close()
	stepTimes(m, y, values(kv, base, rows), "nothing")
}

// stepTimes measures the graph of a step without some part, and the step. A result
// that is not finite, as noise has it, is no error here.
func stepTimes(m meter, y *toy, v backend.Values, without string) {
	p := y.list().rest(nil)
	f := p.compile(m)
	defer f.Close()
	f.ops = slices.DeleteFunc(f.ops, func(o op) bool { return p.partOf(&o) == without })
	run(f, v)
	g := y.b.graphs.last
	if g == nil || len(y.b.graphs.list) == 0 {
		m.Fatal("a step made no graph")
	}
	m.Run("of", "graph", func(m meter) {
		m.Replay(g, 10, 10)
		m.Report(float64(g.Nodes()), "nodes")
	})
	m.Run("of", "step", func(m meter) {
		for m.Loop() {
			run(f, v)
		}
	})
}

// partOf is which of batchParts an operation is.
func (p *listing) partOf(o *op) string {
	switch o.kind {
	case opRMSNorm:
		return "norms"
	case opProject:
		return "q k v"
	case opRotate:
		return "rotation"
	case opAttend:
		return "attention"
	case opGated:
		return "gate up"
	case opProjectAdd:
		if o.src[0] == p.attn {
			return "o"
		}
		return "down"
	}
	return ""
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
		m.Run("type", dt.String(), func(m meter) {
			v := values(nil, base, sequences*rows)
			v.Spans = nil
			for i := range sequences {
				kv := y.kv(m)
				defer kv.Close()
				v.Spans = append(v.Spans, backend.Span{Storage: kv, First: i * rows, Rows: rows, Base: base})
			}
			for _, without := range parts {
				if without != "nothing" && (!variant || dt != backend.Affine4) {
					continue
				}
				m.Run("without", without, func(m meter) {
					if v.Want = bestOf(sequences * rows); without == "head" {
						v.Want = nil
					}
					stepTimes(m, y, v, without)
				})
			}
		})
	}
}

// bestOf wants the best candidate of each of so many rows.
func bestOf(rows int) (want []backend.Wanted) {
	for r := range rows {
		want = append(want, backend.Wanted{Row: int32(r), TopK: 1})
	}
	return want
}
