package cuda

import (
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
// caller sees one. Noise makes logits that are no numbers, which Results refuses
// when all is done.
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
	var event [2]*driver.Event
	for i := range event {
		e, err := b.device.ctx.NewEvent()
		if err != nil || s.err != nil {
			t.Fatal(err, s.err)
		}
		defer e.Close()
		event[i] = e
	}
	for _, dt := range []backend.DType{backend.Affine4, backend.Q4_K, backend.Affine8, backend.BF16} {
		y := noiseToy(b, s, dt)
		for _, rows := range []int{1, 8, 16, 32} {
			kv := y.kv(t)
			h := newHost(t, y, kv, rows)
			h.spans[0].Base = 512
			want := backend.Want{TopK: 1, Except: -1}
			for r := range rows {
				want.Rows = append(want.Rows, int32(r))
			}
			step := func() {
				p := h.record()
				p.Results(y.x, y.norm, 1e-6, y.head, want)
				p.End()
			}
			step()
			g := b.graphs.recent[0].graph
			var alone, whole []time.Duration
			for range 7 {
				event[0].Record(b.device.stream)
				for range 10 {
					if err := g.Launch(b.device.stream); err != nil {
						t.Fatal(err)
					}
				}
				event[1].Record(b.device.stream)
				if err := b.device.stream.Synchronize(); err != nil {
					t.Fatal(err)
				}
				took, err := driver.Elapsed(event[0], event[1])
				if err != nil {
					t.Fatal(err)
				}
				alone = append(alone, took/10)
				start := time.Now()
				step()
				whole = append(whole, time.Since(start))
			}
			slices.Sort(alone)
			slices.Sort(whole)
			t.Logf("%-8v %2d rows: %3d nodes %v (%v to %v), with the host %v (%v to %v)", dt, rows, g.Nodes(), alone[3], alone[0], alone[6], whole[3], whole[0], whole[6])
			kv.Close()
		}
	}
}
