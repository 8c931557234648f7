package cpu

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"windrow/backend"
	"windrow/backend/vectors"
)

// BenchmarkHostMixture runs the experts of a layer of qwen3-30b-a3b in 4 bits, of which each
// row chooses 8 of 128 at random, as for a device: µs, GB/s of the experts that were chosen,
// and the share of the memory's bandwidth, measured in turn with it.
func BenchmarkHostMixture(b *testing.B) {
	const experts, chosen, width, inner = 128, 8, 2048, 768
	r := rand.New(rand.NewPCG(3, 5))
	back, err := New(Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer back.Close()
	each := 0
	take := func(out, in int) (list []backend.Matrix) {
		for range experts {
			t := backend.Tensor{Name: "w", DType: backend.Affine4, Shape: []int{out, in}, Group: 64}.Allocated()
			for i := range t.Data {
				t.Data[i] = byte(r.Uint32())
			}
			for i := 0; i < len(t.Scales); i += 2 {
				t.Scales[i+1], t.Biases[i+1] = 0x3c, 0xbd
			}
			each = t.Bytes()
			m, err := back.Matrix(t)
			if err != nil {
				b.Fatal(err)
			}
			list = append(list, m)
		}
		return list
	}
	m, err := back.Mixture(&backend.Experts{Gate: take(inner, width), Up: take(inner, width), Down: take(width, inner)}, chosen)
	if err != nil {
		b.Fatal(err)
	}
	for _, rows := range []int{1, 4, 16, 512} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			h, dst, routing := vectors.Normals(r, rows*width), make([]float32, rows*width), make([]float32, rows*2*chosen)
			var seconds, shares []float64
			for b.Loop() {
				used := map[int]bool{}
				for i := range rows {
					list := r.Perm(experts)[:chosen]
					slices.Sort(list)
					for j, e := range list {
						routing[i*2*chosen+j], routing[i*2*chosen+chosen+j], used[e] = float32(e), 0.125, true
					}
				}
				start := time.Now()
				if err := m.Run(dst, h, routing); err != nil {
					b.Fatal(err)
				}
				s := time.Since(start).Seconds()
				read := float64(3*each*len(used)) / 1e9 / s
				seconds = append(seconds, s)
				shares = append(shares, read/MeasureBandwidth(back.pool.workers, 10*time.Millisecond))
			}
			slices.Sort(seconds)
			slices.Sort(shares)
			b.ReportMetric(1e6*seconds[len(seconds)/2], "µs")
			b.ReportMetric(100*shares[len(shares)/2], "%bandwidth")
			b.ReportMetric(0, "ns/op")
		})
	}
}
