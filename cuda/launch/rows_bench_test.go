package launch

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/cuda/driver"
)

// speed is the memory of benchmarks of kernels that tensor cores have no part in.
type speed struct {
	meter
	b *bed
	// scale divides sizes where the device is emulated: the figures mean
	// nothing there, but the launches are made.
	scale int
}

func newSpeed(m meter, scale int) *speed {
	s := &speed{m, &bed{d: m.D}, scale}
	m.Cleanup(s.b.free)
	return s
}

// spread is how much memory launches rotate over, so that L2 does not hold it.
const spread = 256 << 20

// launches measures body in graphs of 20, and reports the bytes each moves.
func (s *speed) launches(key, value string, bytes int, body func(i int)) {
	s.Helper()
	n := 20
	if s.scale > 1 {
		n = 2
	}
	s.Run(key, value, func(m meter) { m.Moved(bytes, graph(m, n, body)) })
}

// copies reserves memory of that many bytes several times over, and returns
// the address of copy i.
func (s *speed) copies(bytes int) func(i int) driver.Ptr {
	n := max(1, spread/bytes/s.scale/s.scale)
	p, err := s.D.Context.Alloc(n * bytes)
	s.Check(err)
	s.b.owned = append(s.b.owned, p)
	s.Check(s.D.Stream.Zero(p, n*bytes))
	return func(i int) driver.Ptr { return p + driver.Ptr(i%n*bytes) }
}

// BenchmarkRows measures the kernels of rows.cu at the 8B model's widths.
func BenchmarkRows(b *testing.B) { newSpeed(benchDevice(b), 1).rows() }

// BenchmarkExactProjections measures simt.cu.
func BenchmarkExactProjections(b *testing.B) { newSpeed(benchDevice(b), 1).projections() }

// BenchmarkExactAttention measures simt_attend.cu.
func BenchmarkExactAttention(b *testing.B) { newSpeed(benchDevice(b), 1).attention() }

// BenchmarkResults measures results.cu over a vocabulary of 151,936.
func BenchmarkResults(b *testing.B) { newSpeed(benchDevice(b), 1).results() }

func (s *speed) rows() {
	width, inner := 4096/s.scale, 12288/s.scale
	weight := s.copies(4 * width)(0)
	for _, rows := range []int{1, 16, 8192 / s.scale} {
		x, y := s.copies(4*rows*inner), s.copies(2*rows*inner)
		s.launches("op", fmt.Sprintf("rms-norm-%dx%d", rows, width), 6*rows*width, func(i int) {
			s.D.RMSNorm(0, y(i), x(i), weight, width, rows, 1e-6)
		})
		s.launches("op", fmt.Sprintf("to-bf16-%dx%d", rows, width), 6*rows*width, func(i int) { s.D.ToBF16(y(i), x(i), rows*width) })
		s.launches("op", fmt.Sprintf("gated-act-%dx%d", rows, inner), 6*rows*inner, func(i int) {
			s.D.GatedAct(0, y(i), x(i), x(i)+driver.Ptr(2*rows*inner), true, rows*inner)
		})
	}
}

func (s *speed) projections() {
	for _, dt := range []backend.DType{backend.F32, backend.F16, backend.BF16, backend.Affine4, backend.Affine8, backend.Q8_0, backend.Q4_0, backend.Q4_K, backend.Q6_K} {
		shapes := [][2]int{{4096, 4096}}
		if dt == backend.F16 || dt == backend.Affine4 {
			shapes = [][2]int{{1024, 4096}, {4096, 4096}, {12288, 4096}, {4096, 12288}}
		}
		for _, shape := range shapes {
			out, in := shape[0]/s.scale, max(shape[1]/s.scale, 256)
			w := &Weight{DType: dt, Out: out, In: in}
			bytes := out * dt.RowBytes(in)
			raw := s.copies(bytes)
			if dt.Affine() {
				w.Group = 64
				w.Scales, w.Biases = s.copies(2*out*in/64)(0), s.copies(2*out*in/64)(0)
				bytes += 4 * out * in / 64
			}
			for _, rows := range []int{1, 8, 16, 128} {
				x, y := s.copies(4*rows*in)(0), s.copies(4*rows*out)(0)
				s.launches("type", fmt.Sprintf("%v/out=%d/in=%d/rows=%d", dt, out, in, rows), bytes, func(i int) {
					m := *w
					m.Raw = raw(i)
					s.D.SIMTProject(y, x, &m, 0, false, rows)
				})
			}
			s.b.free()
		}
	}
}

func (s *speed) attention() {
	const layers = 4
	for _, t := range []backend.KVType{backend.KVF32, backend.KVBF16, backend.KVInt8} {
		for _, context := range []int{512, 4096} {
			for _, rows := range []int{1, 16} {
				l := backend.KeysLayout(layers, 8, 128, t, context/s.scale+rows)
				a := Attention{QHeads: 32, KVHeads: 8, Dim: 128, Scale: 0.1, KV: t, Layers: layers}
				page := s.copies(pageBytes(l))
				var list []driver.Ptr
				for i := range pagesOf(l) {
					list = append(list, page(i))
				}
				v := &StepValues{Rows: rows, Spans: []backend.Span{{Storage: storageOn(l, list), Base: l.Slots - rows, Rows: rows}}}
				step := s.b.step(v, StepShape{Bucket: rows, Spans: 1, Pages: len(list)})
				q, out := s.copies(4*rows*4096)(0), s.copies(4*rows*4096)(0)
				s.launches("kv", fmt.Sprintf("%v/context=%d/rows=%d", t, l.Slots, rows), pageBytes(l)/layers*l.Slots/PageSlots, func(i int) {
					s.D.SIMTAttend(out, q, a, step, i%layers, rows)
				})
				s.b.free()
			}
		}
	}
}

func (s *speed) results() {
	vocab := 151936 / s.scale
	for _, rows := range []int{1, 16, 32} {
		// Logits as a model's: normal, so that the search for candidates has
		// its usual work.
		one := vectors.Normals(rand.New(rand.NewPCG(1, 1)), vocab)
		var all []float32
		for range rows {
			all = append(all, one...)
		}
		logits := s.b.floats(all)
		for _, top := range []int{1, 20, 64} {
			partials, size := StatsBytes(vocab, rows, top)
			out, scratch := s.b.empty(size), s.b.empty(partials)
			step := s.b.step(&StepValues{Want: make([]int32, rows), Top: top, Except: -1}, StepShape{Bucket: rows})
			s.launches("rows", fmt.Sprintf("%d/vocab=%d/best=%d", rows, vocab, top), 4*rows*vocab, func(i int) {
				s.D.RowStats(out, logits, vocab, rows, top, step, scratch)
			})
		}
	}
}
