package cpu

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"windrow/backend"
	"windrow/cpu/kernels"
	"windrow/cpu/kernels/kernelstest"
	"windrow/quant"
)

// benchShapes are the [out, in] of the projections of Qwen3 0.6B and 1.7B.
var benchShapes = [][2]int{
	{2048, 1024}, {1024, 2048}, {3072, 1024}, {1024, 3072},
	{2048, 2048}, {6144, 2048}, {2048, 6144}, {151936, 2048},
}

// benchMatrices are as many distinct matrices of bf16 as make up size bytes, so
// that no cache helps.
func benchMatrices(out, in, size int) []backend.Tensor {
	n := max(1, size/(2*out*in))
	data := make([]byte, 2*n*out*in)
	rng := rand.New(rand.NewPCG(3, 4))
	for i := 0; i < len(data); i += 8 {
		v := rng.Uint64()&0x807f_807f_807f_807f | 0x3c00_3c00_3c00_3c00
		for j := range 8 {
			data[i+j] = byte(v >> (8 * j))
		}
	}
	ts := make([]backend.Tensor, n)
	for i := range ts {
		ts[i] = backend.Tensor{Name: "w", DType: backend.BF16, Shape: []int{out, in}, Data: data[2*i*out*in : 2*(i+1)*out*in]}
	}
	return ts
}

// benchProject packs and multiplies as a forward does.
func benchProject(pool *pool, pr kernels.Projector, workers []scratch, pk *kernels.Packed, x []float32, rows int, w *kernels.Weight) {
	pk.Prepare(pr, rows, w.In())
	block := pr.PackRows()
	pool.run((rows+block-1)/block, func(_, i int) { pr.Pack(pk, x, i*block, min((i+1)*block, rows)) })
	chunk := pr.Chunk(rows, w.In())
	pool.run((w.Out()+chunk-1)/chunk, func(worker, i int) {
		o0, o1 := i*chunk, min((i+1)*chunk, w.Out())
		s := &workers[worker]
		pr.Project(kernels.Grown(&s.out, rows*(o1-o0)), o1-o0, pk, w, o0, o1, &s.kernels)
	})
}

// timeAll is how long f takes for all matrices.
func timeAll(ts []backend.Tensor, f func(t *backend.Tensor, w *kernels.Weight)) time.Duration {
	start := time.Now()
	for i := range ts {
		w := kernels.NewWeight(ts[i])
		f(&ts[i], &w)
	}
	return time.Since(start)
}

// BenchmarkProjectors reports GB/s of weights and GFLOP/s, each the best of
// passes over 256 MiB of distinct matrices (32 MiB for many rows), and for one
// row the share of the best plain read of the same memory, in turn with it: of
// every table that rounds activations to bf16, and of those whose f32 others share.
func BenchmarkProjectors(b *testing.B) {
	prs := map[string]kernels.Projector{}
	for _, name := range KernelTables() {
		k, _ := kernels.ByName(name)
		switch {
		case k.Fast != nil:
			prs[name] = k.Fast
		case name == "avx2" || name == "avx512" || name == "neon":
			prs[name] = k.Exact
		}
	}
	if len(prs) == 0 {
		b.Skipf("needs a table of vector instructions; this machine runs %v", KernelTables())
	}
	for name, pr := range prs {
		for _, threads := range []int{1, 2} {
			for _, rows := range []int{1, 2, 4, 8, 16, 32, 64, 512} {
				for _, shape := range benchShapes {
					out, in := shape[0], shape[1]
					if rows > 16 && out > 10000 {
						continue
					}
					b.Run(fmt.Sprintf("%s/threads=%d/rows=%d/%dx%d", name, threads, rows, out, in), func(b *testing.B) {
						ms := benchMatrices(out, in, 256<<20)
						pool := newPool(threads)
						defer pool.close()
						workers, pk := make([]scratch, threads), kernels.Packed{}
						x := kernelstest.Rows(rand.New(rand.NewPCG(5, 6)), rows*in)
						passes := 3
						if rows > 32 {
							ms = ms[:max(1, len(ms)/8)]
						}
						var times, reads []time.Duration
						for b.Loop() {
							for range passes {
								times = append(times, timeAll(ms, func(_ *backend.Tensor, w *kernels.Weight) { benchProject(pool, pr, workers, &pk, x, rows, w) }))
								if rows > 1 {
									continue
								}
								for _, p := range readPatterns {
									const part = 512 << 10
									reads = append(reads, timeAll(ms, func(t *backend.Tensor, _ *kernels.Weight) {
										pool.run(len(t.Data)/part, func(_, i int) { p.read(t.Data[i*part : (i+1)*part]) })
									}))
								}
							}
						}
						best := slices.Min(times)
						sec := best.Seconds() / float64(len(ms))
						b.ReportMetric(2*float64(out*in)/sec/1e9, "GB/s")
						b.ReportMetric(2*float64(out*in*rows)/sec/1e9, "GFLOP/s")
						if rows == 1 {
							b.ReportMetric(float64(slices.Min(reads))/float64(best), "of-read")
						}
						b.ReportMetric(0, "ns/op")
					})
				}
			}
		}
	}
}

// BenchmarkInt8Projectors reports GB/s of packed weights with their scales, for
// one row as a share of the best plain read of the same memory in turn with it,
// and GFLOP/s: each the best of passes over 256 MiB of distinct matrices (32
// MiB for many rows). The first name is the table's.
func BenchmarkInt8Projectors(b *testing.B) {
	for _, name := range KernelTables() {
		b.Run(name, func(b *testing.B) { int8Projectors(b, name) })
	}
}

func int8Projectors(b *testing.B, name string) {
	for _, c := range kernelstest.Formats {
		for _, shape := range [][2]int{{2048, 2048}, {6144, 2048}, {2048, 6144}} {
			out, in := shape[0], shape[1]
			for _, rows := range []int{1, 16, 32, 512} {
				for _, threads := range []int{1, 2} {
					b.Run(fmt.Sprintf("%v-%d/%dx%d/rows=%d/threads=%d", c.DType, c.Group, out, in, rows, threads), func(b *testing.B) {
						size := 256 << 20
						if rows > 32 {
							size = 32 << 20
						}
						ms := c.Distinct(out, in, size)
						benchInt8(b, name, ms, rows, threads)
					})
				}
			}
		}
	}
}

func benchInt8(b *testing.B, name string, ms []backend.Tensor, rows, threads int) {
	t := &ms[0]
	k, _ := kernels.ByName(name)
	if k.Quant == nil || k.Quant(t) == nil {
		b.Skip("needs a table with integer kernels: AVX2, or SDOT")
	}
	pr := k.Quant(t)
	pool := newPool(threads)
	defer pool.close()
	workers, pk := make([]scratch, threads), kernels.Packed{}
	x := kernelstest.Rows(rand.New(rand.NewPCG(5, 6)), rows*t.Shape[1])
	var times, reads []time.Duration
	for b.Loop() {
		for range 3 {
			times = append(times, timeAll(ms, func(_ *backend.Tensor, w *kernels.Weight) { benchProject(pool, pr, workers, &pk, x, rows, w) }))
			if rows > 1 {
				continue
			}
			for _, p := range readPatterns {
				const part = 128 << 10
				reads = append(reads, timeAll(ms, func(t *backend.Tensor, _ *kernels.Weight) {
					parts := func(d []byte) {
						pool.run((len(d)+part-1)/part, func(_, i int) { p.read(d[i*part : min(len(d), (i+1)*part)]) })
					}
					parts(t.Data)
					if t.DType.Affine() {
						parts(t.Scales)
						parts(t.Biases)
					}
				}))
			}
		}
	}
	best := slices.Min(times)
	sec := best.Seconds() / float64(len(ms))
	b.ReportMetric(float64(t.Bytes())/sec/1e9, "GB/s")
	b.ReportMetric(2*float64(t.Shape[0]*t.Shape[1]*rows)/sec/1e9, "GFLOP/s")
	if rows == 1 {
		b.ReportMetric(float64(slices.Min(reads))/float64(best), "of-read")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkPublishedProject times a projection of 4,096 to 4,096 in the types
// that published weights become.
func BenchmarkPublishedProject(b *testing.B) {
	const out, in = 4096, 4096
	rng := rand.New(rand.NewPCG(54, 1))
	for _, dt := range []backend.DType{backend.BF16, backend.F8_E4M3, backend.Q8_0, backend.Q4_0} {
		var w backend.Tensor
		switch dt {
		case backend.F8_E4M3:
			w = kernelstest.Float8(rng, out, in, 128, true)
		default:
			w = quant.Encode("w", dt, out, in, 0, kernelstest.Rows(rng, out*in))
		}
		for _, rows := range []int{1, 16, 512} {
			b.Run(fmt.Sprintf("%v/%d rows", dt, rows), func(b *testing.B) {
				be, err := New(Options{Threads: 2})
				if err != nil {
					b.Fatal(err)
				}
				defer be.Close()
				m, err := be.Matrix(w)
				if err != nil {
					b.Fatal(err)
				}
				x := kernelstest.Rows(rng, rows*in)
				f := &forward{b: be, rows: rows, buffers: make([]buffer, 2)}
				src := f.testBuffer(0, in)
				f.testBuffer(1, out)
				copy(src.data, x)
				for b.Loop() {
					f.project([]backend.Buffer{1}, src, []backend.Linear{{Weight: m}}, false)
				}
				b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)*1e3, "ms")
			})
		}
	}
}
