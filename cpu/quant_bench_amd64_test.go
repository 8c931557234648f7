package cpu

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// benchQuantMatrices are as many distinct matrices as make up size bytes, so
// that no cache helps. Their bits are random, their scales small numbers.
func benchQuantMatrices(c quantCase, out, in, size int) []*matrix {
	seed := quantMatrix(rand.New(rand.NewPCG(5, 6)), c, min(out, 64), in, 0)
	repeat := func(b []byte, n int) []byte {
		d := make([]byte, n)
		for i := 0; i < n; i += len(b) {
			copy(d[i:], b)
		}
		return d
	}
	var ms []*matrix
	for total := 0; total < size; {
		t := seed.tensor
		t.Shape = []int{out, in}
		t.Data = repeat(t.Data, out*c.dt.RowBytes(in))
		if c.dt.Affine() {
			t.Scales, t.Biases = repeat(t.Scales, 2*out*in/c.group), repeat(t.Biases, 2*out*in/c.group)
		}
		ms = append(ms, &matrix{label: "w", dt: c.dt, out: out, in: in, data: t.Data, tensor: t})
		total += t.Bytes()
	}
	return ms
}

// BenchmarkInt8Projectors reports GB/s of packed weights with their scales, for
// one row as a share of the best plain read of the same memory in turn with it,
// and GFLOP/s: each the best of passes over 256 MiB of distinct matrices (32
// MiB for many rows).
func BenchmarkInt8Projectors(b *testing.B) {
	for _, c := range quantCases {
		for _, shape := range [][2]int{{2048, 2048}, {6144, 2048}, {2048, 6144}} {
			out, in := shape[0], shape[1]
			for _, rows := range []int{1, 16, 32, 512} {
				for _, threads := range []int{1, 2} {
					b.Run(fmt.Sprintf("%v-%d/%dx%d/rows=%d/threads=%d", c.dt, c.group, out, in, rows, threads), func(b *testing.B) {
						size := 256 << 20
						if rows > 32 {
							size = 32 << 20
						}
						ms := benchQuantMatrices(c, out, in, size)
						benchInt8(b, ms, rows, threads)
					})
				}
			}
		}
	}
}

func benchInt8(b *testing.B, ms []*matrix, rows, threads int) {
	w := ms[0]
	k, _ := kernelsByName("")
	if k.quant == nil || k.quant(&w.tensor) == nil {
		b.Skip("needs a table with integer kernels: AVX2, or SDOT")
	}
	pr := k.quant(&w.tensor)
	pool := newPool(threads)
	defer pool.close()
	scratch, pk := make([]scratch, threads), packed{}
	x := randomRows(rand.New(rand.NewPCG(5, 6)), rows*w.in)
	var times, reads []time.Duration
	for b.Loop() {
		for range 3 {
			times = append(times, timeEach(ms, func(w *matrix) { benchProject(pool, pr, scratch, &pk, x, rows, w) }))
			if rows > 1 {
				continue
			}
			for _, p := range readPatterns {
				const part = 128 << 10
				reads = append(reads, timeEach(ms, func(w *matrix) {
					parts := func(d []byte) {
						pool.run((len(d)+part-1)/part, func(_, i int) { p.read(d[i*part : min(len(d), (i+1)*part)]) })
					}
					parts(w.data)
					if w.dt.Affine() {
						parts(w.tensor.Scales)
						parts(w.tensor.Biases)
					}
				}))
			}
		}
	}
	best := slices.Min(times)
	sec := best.Seconds() / float64(len(ms))
	b.ReportMetric(float64(w.tensor.Bytes())/sec/1e9, "GB/s")
	b.ReportMetric(2*float64(w.out*w.in*rows)/sec/1e9, "GFLOP/s")
	if rows == 1 {
		b.ReportMetric(float64(slices.Min(reads))/float64(best), "of-read")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkInt8Tables times the arithmetics of every table for quantised weights
// in turn within one loop, so that a noisy machine is noisy for all: the median
// ms of 32 MiB of distinct matrices of 2,048 × 2,048 (8 MiB from 16 rows on), one
// thread, and for each arithmetic how many times as fast as the one that its
// instruction set had before it is: median, lowest and highest decile of turns.
//
// f32 is the exact arithmetic of AVX2 over widened rows, f32-go the same where Go
// widens them, row-by-row that of AVX-512 VNNI for one row at a time.
func BenchmarkInt8Tables(b *testing.B) {
	if !featuresAVX2.here() {
		b.Skipf("needs %v", featuresAVX2)
	}
	before := map[string]string{"f32": "f32-go", "avx2": "f32-go", "avxvnni": "f32-go", "avx512": "row-by-row", "amx": "row-by-row"}
	for _, c := range quantCases {
		for _, rows := range []int{1, 2, 4, 8, 16, 32, 512} {
			b.Run(fmt.Sprintf("%v-%d/rows=%d", c.dt, c.group, rows), func(b *testing.B) {
				size := 32 << 20
				if rows >= 16 {
					size = 8 << 20
				}
				ms := benchQuantMatrices(c, 2048, 2048, size)
				w := ms[0]
				prs := map[string]projector{"f32": newPanelProjector(avx2Table()), "f32-go": newPanelProjector(avx2Kernels())}
				for _, k := range machineTables() {
					if k.quant != nil && before[k.name] != "" {
						prs[k.name] = k.quant(&w.tensor)
					}
				}
				if featuresVBMI.here() {
					f, _ := newQuantFormat(&w.tensor, "row-by-row")
					prs["row-by-row"] = quantTiles{f, 1}
				}
				pool := newPool(1)
				defer pool.close()
				scratch, pk := make([]scratch, 1), packed{}
				x := randomRows(rand.New(rand.NewPCG(5, 6)), rows*w.in)
				times, ratios := map[string][]float64{}, map[string][]float64{}
				for b.Loop() {
					turn := map[string]float64{}
					for name, pr := range prs {
						turn[name] = 1e3 * timeEach(ms, func(w *matrix) { benchProject(pool, pr, scratch, &pk, x, rows, w) }).Seconds()
						times[name] = append(times[name], turn[name])
					}
					for name, t := range turn {
						if old := turn[before[name]]; old > 0 {
							ratios[name] = append(ratios[name], old/t)
						}
					}
				}
				for name, t := range times {
					slices.Sort(t)
					b.ReportMetric(t[len(t)/2], name+"-ms")
				}
				for name, r := range ratios {
					slices.Sort(r)
					b.ReportMetric(r[len(r)/2], name+"-faster")
					b.ReportMetric(r[len(r)/10], name+"-faster-low")
					b.ReportMetric(r[len(r)-1-len(r)/10], name+"-faster-high")
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// BenchmarkInt8Formats times the best table's arithmetic for quantised weights of
// every type in turn, so that a noisy machine is noisy for all: the least time of
// its turns, in ns a thousand weights and row, one thread, matrices of 2,048 ×
// 2,048 that make up 24 MiB (6 MiB from 16 rows on).
func BenchmarkInt8Formats(b *testing.B) {
	for _, rows := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			size := 24 << 20
			if rows > 1 {
				size = 6 << 20
			}
			k, _ := kernelsByName("")
			pool := newPool(1)
			defer pool.close()
			scratch, pk := make([]scratch, 1), packed{}
			x := randomRows(rand.New(rand.NewPCG(5, 6)), rows*2048)
			var ms [][]*matrix
			least := make([]float64, len(quantCases))
			for _, c := range quantCases {
				ms = append(ms, benchQuantMatrices(c, 2048, 2048, size))
			}
			for b.Loop() {
				for i, m := range ms {
					pr := k.quant(&m[0].tensor)
					if pr == nil {
						b.Skip("no int8 arithmetic")
					}
					t := timeEach(m, func(w *matrix) { benchProject(pool, pr, scratch, &pk, x, rows, w) })
					each := float64(t.Nanoseconds()) / float64(len(m)*rows) / (2048 * 2048 / 1e3)
					if least[i] == 0 || each < least[i] {
						least[i] = each
					}
				}
			}
			for i, c := range quantCases {
				b.ReportMetric(least[i], c.String()+"-ns")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
