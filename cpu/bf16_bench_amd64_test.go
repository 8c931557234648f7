package cpu

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// benchShapes are the [out, in] of the projections of Qwen3 0.6B and 1.7B.
var benchShapes = [][2]int{
	{2048, 1024}, {1024, 2048}, {3072, 1024}, {1024, 3072},
	{2048, 2048}, {6144, 2048}, {2048, 6144}, {151936, 2048},
}

// benchMatrices are as many distinct matrices as make up size bytes, so that
// no cache helps.
func benchMatrices(out, in, size int) []*matrix {
	n := max(1, size/(2*out*in))
	data := make([]byte, 2*n*out*in)
	rng := rand.New(rand.NewPCG(3, 4))
	for i := 0; i < len(data); i += 8 {
		v := rng.Uint64()&0x807f_807f_807f_807f | 0x3c00_3c00_3c00_3c00
		for j := range 8 {
			data[i+j] = byte(v >> (8 * j))
		}
	}
	ms := make([]*matrix, n)
	for i := range ms {
		ms[i] = &matrix{dt: 3, out: out, in: in, data: data[2*i*out*in : 2*(i+1)*out*in]}
	}
	return ms
}

// benchProject packs and multiplies as a pass does.
func benchProject(pool *pool, pr projector, scratch []scratch, pk *packed, x []float32, rows int, w *matrix) {
	f, h := pr.packSize(rows, w.in)
	if cap(pk.f32) < f {
		pk.f32 = make([]float32, f)
	}
	if cap(pk.b16) < h {
		pk.b16 = make([]uint16, h)
	}
	pk.rows, pk.in, pk.f32, pk.b16 = rows, w.in, pk.f32[:f], pk.b16[:h]
	block := pr.packRows()
	pool.run((rows+block-1)/block, func(_, i int) { pr.pack(pk, x, i*block, min((i+1)*block, rows)) })
	chunk := pr.chunk(rows, w.in)
	pool.run((w.out+chunk-1)/chunk, func(worker, i int) {
		o0, o1 := i*chunk, min((i+1)*chunk, w.out)
		s := &scratch[worker]
		pr.project(s.floats(1, rows*(o1-o0)), o1-o0, pk, w, o0, o1, s)
	})
}

// timeEach is how long f takes for all matrices.
func timeEach(ms []*matrix, f func(w *matrix)) time.Duration {
	start := time.Now()
	for _, w := range ms {
		f(w)
	}
	return time.Since(start)
}

// BenchmarkProjectors reports GB/s of weights and GFLOP/s, each the best of
// passes over 256 MiB of distinct matrices (32 MiB for many rows), and for one
// row the share of the best plain read of the same memory, in turn with it.
func BenchmarkProjectors(b *testing.B) {
	prs := map[string]projector{}
	if lackingAMX() == "" {
		prs["amx"] = amxProjector{}
	}
	if featuresAVX512BF16.here() {
		prs["avx512"] = bf16Projector{}
	}
	if len(prs) == 0 {
		b.Skipf("needs %v", featuresAVX512BF16)
	}
	for name, pr := range prs {
		for _, threads := range []int{1, 2} {
			for _, rows := range []int{1, 16, 32, 64, 512} {
				for _, shape := range benchShapes {
					out, in := shape[0], shape[1]
					if rows > 16 && out > 10000 {
						continue
					}
					b.Run(fmt.Sprintf("%s/threads=%d/rows=%d/%dx%d", name, threads, rows, out, in), func(b *testing.B) {
						ms := benchMatrices(out, in, 256<<20)
						pool := newPool(threads)
						defer pool.close()
						scratch, pk := make([]scratch, threads), packed{}
						x := randomRows(rand.New(rand.NewPCG(5, 6)), rows*in)
						passes := 3
						if rows > 32 {
							ms = ms[:max(1, len(ms)/8)]
						}
						var times, reads []time.Duration
						for b.Loop() {
							for range passes {
								times = append(times, timeEach(ms, func(w *matrix) { benchProject(pool, pr, scratch, &pk, x, rows, w) }))
								if rows > 1 {
									continue
								}
								for _, p := range readPatterns {
									const part = 512 << 10
									reads = append(reads, timeEach(ms, func(w *matrix) {
										pool.run(len(w.data)/part, func(_, i int) { p.read(w.data[i*part : (i+1)*part]) })
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
