//go:build unix

package kernels

import (
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/cpu/kernels/kernelstest"
)

func TestQuantRowReadsOnlyTheWeight(t *testing.T) {
	for _, c := range kernelstest.Formats {
		for _, atEnd := range []bool{false, true} {
			w := rowOf(c, 256, []byte{1, 2, 3}, func(n int) []byte { return guarded(t, make([]byte, n), atEnd) })
			sameRow(t, c, &w)
		}
	}
}

func TestInt8ReadsOnlyTheWeight(t *testing.T) {
	needsInt8(t)
	for _, c := range kernelstest.Formats {
		for _, sh := range []struct{ out, in int }{{1, 256}, {5, 512}, {16, 256}, {47, 768}, {67, 1024}} {
			rng := rand.New(rand.NewPCG(25, uint64(sh.in)))
			w := quantMatrix(rng, c, sh.out, sh.in, 0)
			for name, pr := range int8Projectors(&w.tensor) {
				for _, rows := range []int{1, 6, 17, 20, 97} {
					x := kernelstest.Rows(rng, rows*sh.in)
					want := runProjector(pr, w, x, rows, 0, sh.out, sh.out)
					for _, atEnd := range []bool{false, true} {
						g := *w
						g.data = guarded(t, w.data, atEnd)
						g.tensor.Data = g.data
						if c.DType.Affine() {
							g.tensor.Scales, g.tensor.Biases = guarded(t, w.tensor.Scales, atEnd), guarded(t, w.tensor.Biases, atEnd)
						}
						if !slices.Equal(runProjector(pr, &g, x, rows, 0, sh.out, sh.out), want) {
							t.Fatalf("%s %v %dx%d, %d rows: another result", name, c, sh.out, sh.in, rows)
						}
					}
				}
			}
		}
	}
}
