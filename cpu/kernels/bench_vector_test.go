package kernels

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"windrow/backend"
	"windrow/cpu/kernels/kernelstest"
)

// BenchmarkVector times the vector kernels of every table on 3,072 elements
// (one row of a 0.6b model's MLP), in L1.
func BenchmarkVector(b *testing.B) {
	const n = 3072
	for _, k := range machineTables() {
		name := k.Name
		r := rand.New(rand.NewPCG(1, 1))
		x, y, z := make([]float32, n), make([]float32, n), make([]float32, n)
		bytes := make([]byte, 4*n)
		kernelstest.Gaussian(r, y, 1)
		kernelstest.Gaussian(r, z, 1)
		for _, c := range []struct {
			name string
			run  func()
		}{
			{"widenBF16", func() { k.WidenBF16(x, bytes) }},
			{"narrowBF16", func() { k.NarrowBF16(bytes, y) }},
			{"sumSquares", func() { k.SumSquares(y) }},
			{"scaleMul", func() { k.ScaleMul(x, y, z, 1) }},
			{"rotate", func() { clear(x); k.Rotate(x, y, z) }},
			{"siluMul", func() { k.SiluMul(x, y, z) }},
			{"maximum", func() { k.Maximum(y) }},
			{"expSums", func() { k.ExpSums(y, 1) }},
		} {
			b.Run(name+"/"+c.name, func(b *testing.B) {
				bestOf(b, n, "Gelem/s", c.run)
			})
		}
	}
}

// BenchmarkAttend times scores and values of one key block, d = 128, all in L1
// and L2; GFLOP/s is to be compared with the FMA peak of one thread.
func BenchmarkAttend(b *testing.B) {
	const nk = 64
	for _, k := range machineTables() {
		name := k.Name
		for _, d := range []int{64, 128} {
			for _, nq := range []int{1, 2, 8, 32} {
				r := rand.New(rand.NewPCG(1, 1))
				q, key, s := make([]float32, nq*d), make([]float32, nk*d), make([]float32, nq*nk)
				kernelstest.Gaussian(r, q, 1)
				kernelstest.Gaussian(r, key, 1)
				b.Run(fmt.Sprintf("%s/scores/d=%d/nq=%d", name, d, nq), func(b *testing.B) {
					bestOf(b, 2*nq*nk*d, "GFLOP/s", func() { k.AttendScores(s, nk, q, key, nq, nk, d) })
				})
				b.Run(fmt.Sprintf("%s/values/d=%d/nq=%d", name, d, nq), func(b *testing.B) {
					clear(q)
					bestOf(b, 2*nq*nk*d, "GFLOP/s", func() { k.AttendValues(q, s, nk, key, nq, nk, d) })
				})
			}
		}
	}
}

// bestOf reports the rate of the fastest of many short spells of f, each about
// 50 µs: on a machine that others use too, it is what the kernel can do.
func bestOf(b *testing.B, work int, unit string, f func()) {
	f()
	spell := 1
	for start := time.Now(); time.Since(start) < 50*time.Microsecond; spell++ {
		f()
	}
	best := time.Hour
	for b.Loop() {
		start := time.Now()
		for range spell {
			f()
		}
		best = min(best, time.Since(start))
	}
	b.ReportMetric(float64(work)*float64(spell)/best.Seconds()/1e9, unit)
	b.ReportMetric(0, "ns/op")
}

// BenchmarkExact times the exact projectors on one thread. One row reads 64 MiB
// of weights in turn, so that they come from memory (or a large L3); GB/s is
// to be compared with the plain read loop. Many rows are compared with the FMA
// peak.
func BenchmarkExact(b *testing.B) {
	const total = 64 << 20
	data := make([]byte, total)
	for i := range data {
		data[i] = byte(i * 7 & 0x3f)
	}
	for _, k := range machineTables() {
		name := k.Name
		if name == "go" || name == "amx" || name == "avx512bf16" {
			continue // their exact projector is another table's, or slow
		}
		floats := make([]float32, total/4)
		for i := range floats {
			floats[i] = 1
		}
		at := 0
		b.Run(name+"/read", func(b *testing.B) {
			part := len(floats) / 64
			bestOf(b, 4*part, "GB/s", func() { at = (at + 1) % 64; k.SumSquares(floats[at*part : (at+1)*part]) })
		})
		for _, in := range []int{1024, 3072} {
			for _, rows := range []int{1, 2, 4, 6, 8, 16, 32, 512} {
				m := &Weight{dt: backend.BF16, out: total / 2 / in, in: in, data: data[:total/2/in*in*2]}
				f, _ := k.Exact.PackSize(rows, in)
				p := &Packed{Rows: rows, in: in, f32: make([]float32, f)}
				k.Exact.Pack(p, make([]float32, rows*in), 0, rows)
				chunk := k.Exact.Chunk(rows, in)
				y := make([]float32, rows*chunk)
				var s Scratch
				at := 0
				run := func() {
					if at += chunk; at+chunk > m.out {
						at = 0
					}
					k.Exact.Project(y, chunk, p, m, at, at+chunk, &s)
				}
				b.Run(fmt.Sprintf("%s/in=%d/rows=%d", name, in, rows), func(b *testing.B) {
					if rows > 4 {
						bestOf(b, 2*rows*chunk*in, "GFLOP/s", run)
					} else {
						bestOf(b, 2*chunk*in, "GB/s", run)
					}
				})
			}
		}
	}
}
