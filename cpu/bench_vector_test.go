package cpu

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// BenchmarkVector times the vector kernels of every table on 3,072 elements
// (one row of a 0.6b model's MLP), in L1.
func BenchmarkVector(b *testing.B) {
	const n = 3072
	for _, name := range KernelTables() {
		k := kernelTables[name]()
		r := rand.New(rand.NewPCG(1, 1))
		x, y, z := make([]float32, n), make([]float32, n), make([]float32, n)
		bytes := make([]byte, 4*n)
		gaussian(r, y, 1)
		gaussian(r, z, 1)
		for _, c := range []struct {
			name string
			run  func()
		}{
			{"widenBF16", func() { k.widenBF16(x, bytes) }},
			{"narrowBF16", func() { k.narrowBF16(bytes, y) }},
			{"sumSquares", func() { k.sumSquares(y) }},
			{"scaleMul", func() { k.scaleMul(x, y, z, 1) }},
			{"rotate", func() { clear(x); k.rotate(x, y, z) }},
			{"siluMul", func() { k.siluMul(x, y, z) }},
			{"maximum", func() { k.maximum(y) }},
			{"expSums", func() { k.expSums(y, 1) }},
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
	for _, name := range KernelTables() {
		k := kernelTables[name]()
		for _, d := range []int{64, 128} {
			for _, nq := range []int{1, 2, 8, 32} {
				r := rand.New(rand.NewPCG(1, 1))
				q, key, s := make([]float32, nq*d), make([]float32, nk*d), make([]float32, nq*nk)
				gaussian(r, q, 1)
				gaussian(r, key, 1)
				b.Run(fmt.Sprintf("%s/scores/d=%d/nq=%d", name, d, nq), func(b *testing.B) {
					bestOf(b, 2*nq*nk*d, "GFLOP/s", func() { k.attendScores(s, nk, q, key, nq, nk, d) })
				})
				b.Run(fmt.Sprintf("%s/values/d=%d/nq=%d", name, d, nq), func(b *testing.B) {
					clear(q)
					bestOf(b, 2*nq*nk*d, "GFLOP/s", func() { k.attendValues(q, s, nk, key, nq, nk, d) })
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
