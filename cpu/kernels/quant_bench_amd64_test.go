package kernels

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"windrow/cpu/kernels/kernelstest"
)

// distinct are as many distinct weights as make up size bytes.
func distinct(c kernelstest.Format, out, in, size int) (ws []*Weight) {
	for _, t := range c.Distinct(out, in, size) {
		w := NewWeight(t)
		ws = append(ws, &w)
	}
	return ws
}

// timeEach is how long f takes for all weights.
func timeEach(ws []*Weight, f func(w *Weight)) time.Duration {
	start := time.Now()
	for _, w := range ws {
		f(w)
	}
	return time.Since(start)
}

// single packs and multiplies as a forward of one thread does.
type single struct {
	packed Packed
	out    []float32
	memory Scratch
}

func (s *single) project(pr Projector, x []float32, rows int, w *Weight) {
	s.packed.Prepare(pr, rows, w.in)
	for r := 0; r < rows; r += pr.PackRows() {
		pr.Pack(&s.packed, x, r, min(r+pr.PackRows(), rows))
	}
	chunk := pr.Chunk(rows, w.in)
	for o := 0; o < w.out; o += chunk {
		n := min(chunk, w.out-o)
		pr.Project(Grown(&s.out, rows*n), n, &s.packed, w, o, o+n, &s.memory)
	}
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
	for _, c := range kernelstest.Formats {
		for _, rows := range []int{1, 2, 4, 8, 16, 32, 512} {
			b.Run(fmt.Sprintf("%v-%d/rows=%d", c.DType, c.Group, rows), func(b *testing.B) {
				size := 32 << 20
				if rows >= 16 {
					size = 8 << 20
				}
				ms := distinct(c, 2048, 2048, size)
				w := ms[0]
				prs := map[string]Projector{"f32": newPanelProjector(avx2Table()), "f32-go": newPanelProjector(avx2Kernels())}
				for _, k := range machineTables() {
					if k.Quant != nil && before[k.Name] != "" {
						prs[k.Name] = k.Quant(&w.tensor)
					}
				}
				if featuresVBMI.here() {
					f, _ := newQuantFormat(&w.tensor, "row-by-row")
					prs["row-by-row"] = quantTiles{f, 1}
				}
				var run single
				x := kernelstest.Rows(rand.New(rand.NewPCG(5, 6)), rows*w.in)
				times, ratios := map[string][]float64{}, map[string][]float64{}
				for b.Loop() {
					turn := map[string]float64{}
					for name, pr := range prs {
						turn[name] = 1e3 * timeEach(ms, func(w *Weight) { run.project(pr, x, rows, w) }).Seconds()
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

// BenchmarkInt8Formats times each table's arithmetic for quantised weights of every
// type in turn, so that a noisy machine is noisy for all: the least time of
// its turns, in ns a thousand weights and row, one thread, matrices of 2,048 ×
// 2,048 that make up 24 MiB (6 MiB from 16 rows on).
func BenchmarkInt8Formats(b *testing.B) {
	for _, k := range machineTables() {
		for _, rows := range []int{1, 2, 4, 8, 16, 64, 256} {
			b.Run(fmt.Sprintf("%s/rows=%d", k.Name, rows), func(b *testing.B) {
				if k.Quant == nil {
					b.Skip("no int8 arithmetic")
				}
				int8Formats(b, k, rows)
			})
		}
	}
}

// int8Formats is BenchmarkInt8Formats for one table and that many rows.
func int8Formats(b *testing.B, k *Table, rows int) {
	size := 24 << 20
	if rows > 1 {
		size = 6 << 20
	}
	var run single
	x := kernelstest.Rows(rand.New(rand.NewPCG(5, 6)), rows*2048)
	var ms [][]*Weight
	least := make([]float64, len(kernelstest.Formats))
	for _, c := range kernelstest.Formats {
		ms = append(ms, distinct(c, 2048, 2048, size))
	}
	for b.Loop() {
		for i, m := range ms {
			pr := k.Quant(&m[0].tensor)
			if pr == nil {
				continue
			}
			t := timeEach(m, func(w *Weight) { run.project(pr, x, rows, w) })
			each := float64(t.Nanoseconds()) / float64(len(m)*rows) / (2048 * 2048 / 1e3)
			if least[i] == 0 || each < least[i] {
				least[i] = each
			}
		}
	}
	for i, c := range kernelstest.Formats {
		b.ReportMetric(least[i], c.String()+"-ns")
	}
	b.ReportMetric(0, "ns/op")
}
