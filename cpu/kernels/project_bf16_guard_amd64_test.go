//go:build unix

package kernels

import (
	"math/rand/v2"
	"testing"

	"windrow/cpu/kernels/kernelstest"
)

func TestBF16ReadsOnlyTheWeight(t *testing.T) {
	shortProjectors(t, func(t *testing.T, pr Projector) {
		name := pr.Name()
		for _, c := range []struct{ out, in int }{{1, 32}, {5, 96}, {16, 64}, {47, 544}, {47, 640}, {67, 1024}, {31, 2048}} {
			rng := rand.New(rand.NewPCG(13, uint64(c.in)))
			w := bf16Matrix(rng, c.out, c.in, 0)
			for _, rows := range []int{1, 6, 20, 40} {
				x := kernelstest.Rows(rng, rows*c.in)
				want := runProjector(pr, w, x, rows, 0, c.out, c.out)
				for _, atEnd := range []bool{false, true} {
					g := *w
					g.data = guarded(t, w.data, atEnd)
					for i, v := range runProjector(pr, &g, x, rows, 0, c.out, c.out) {
						if v != want[i] {
							t.Fatalf("%s %dx%d rows %d: element %d is %v, want %v", name, c.out, c.in, rows, i, v, want[i])
						}
					}
				}
			}
		}
	})
}
