package cpu

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/backend"
	"windrow/cpu/kernels/kernelstest"
)

// topologies are how many threads machines have.
var topologies = []int{1, 2, 8, 16, 64}

// TestSpread: whatever number of workers a machine has, they all have outputs to work on,
// in loops over the matrices of published shapes; and where the projector's own chunks do
// that, they are kept.
func TestSpread(t *testing.T) {
	for _, shape := range []struct {
		name string
		outs [][]int // loops of a layer: q, k, v; o; gate and up; down
	}{
		{"tiny-gsm", [][]int{{384, 128, 128}, {384}, {1024}, {384}}},
		{"0.6b", [][]int{{2048, 1024, 1024}, {1024}, {3072}, {1024}}},
		{"1.7b", [][]int{{2048, 1024, 1024}, {2048}, {6144}, {2048}}},
		{"4b", [][]int{{4096, 1024, 1024}, {2560}, {9728}, {2560}}},
		{"8b", [][]int{{4096, 1024, 1024}, {4096}, {12288}, {4096}}},
	} {
		for _, workers := range topologies {
			for _, outs := range shape.outs {
				total := 0
				for _, n := range outs {
					total += n
				}
				for _, likes := range []int{64, 128, 256} {
					chunk := spread(likes, workers, outs)
					if likes%chunk != 0 || chunk < leastChunk {
						t.Fatalf("%d workers, %v: chunks of %d where %d are liked", workers, outs, chunk, likes)
					}
					share := busy(chunk, workers, outs)
					// With an item of the least size for all there is nothing left to cut.
					least := min(.88, .8*busy(leastChunk, workers, outs))
					if total/workers >= 4*leastChunk {
						least = .74
					}
					if share < least || share < busy(likes, workers, outs) {
						t.Errorf("%s, %d workers, %v in chunks of %d: %.2f of the time at work", shape.name, workers, outs, chunk, share)
					}
					if busy(likes, workers, outs) > .96 && chunk != likes {
						t.Errorf("%s, %d workers, %v: chunks of %d where %d would do", shape.name, workers, outs, chunk, likes)
					}
				}
			}
		}
	}
	// What was wrong: 4 bits of 1.7b on 16 cores.
	if got, was := busy(spread(256, 16, []int{2048}), 16, []int{2048}), busy(256, 16, []int{2048}); got != 1 || was != .5 {
		t.Errorf("%v of 16 workers' time, %v before", got, was)
	}
}

// TestThreadsChangeNothing: with any number of workers, in every table that this machine
// runs, projections have the same bits.
func TestThreadsChangeNothing(t *testing.T) {
	const in = 512
	rng := rand.New(rand.NewPCG(17, 4))
	encoded, _ := kernelstest.Encode(backend.BF16, kernelstest.Rows(rng, 608*in))
	plain := backend.Tensor{Name: "bf16", DType: backend.BF16, Shape: []int{608, in}, Data: encoded}
	weights := []backend.Tensor{plain}
	for _, form := range []kernelstest.Format{{DType: backend.Affine4, Group: 64}, {DType: backend.Affine8, Group: 64}} {
		w := form.Weight(rng, 608, in, 0)
		w.Name = fmt.Sprint(form.DType)
		weights = append(weights, w)
	}
	for _, name := range KernelTables() {
		for _, rows := range []int{1, 5, 33} {
			x := kernelstest.Rows(rng, rows*in)
			for _, w := range weights {
				var want []float32
				for _, threads := range topologies {
					b, err := New(Options{Kernels: name, Threads: threads})
					if err != nil {
						t.Fatal(err)
					}
					var linear backend.Linear
					if linear.Weight, err = b.Matrix(w); err != nil {
						t.Fatal(err)
					}
					f := &forward{b: b, rows: rows, buffers: make([]buffer, 3)}
					xb, y, gated := f.testBuffer(0, in), f.testBuffer(1, 608), f.testBuffer(2, 608)
					copy(xb.data, x)
					f.project([]backend.Buffer{1}, xb, []backend.Linear{linear}, false)
					f.gatedProject(gated, xb, linear, linear)
					got := slices.Concat(y.data[:rows*608], gated.data[:rows*608])
					b.Close()
					if want == nil {
						want = got
					} else if !slices.Equal(got, want) {
						t.Fatalf("%s, %s, %d rows: %d threads have other bits than 1", name, w.Name, rows, threads)
					}
				}
			}
		}
	}
}

// TestBandwidthBuffer: what threads read is several times their cores' L3.
func TestBandwidthBuffer(t *testing.T) {
	for _, threads := range topologies {
		if n := bandwidthBytes(threads); n < 512<<20 || n/threads < 2*12<<20 || n > 4<<30 {
			t.Errorf("%d threads read %d MiB", threads, n>>20)
		}
	}
}
