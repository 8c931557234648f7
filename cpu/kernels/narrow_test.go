package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// The narrow kernels give the bits of widening first, whatever the number of
// keys, and write nothing past the rounded-up keys.
func TestNarrowEqualsWide(t *testing.T) {
	fastTables(t, func(t *testing.T, k *Table) {
		if k.NarrowScores == nil {
			t.Skip("this table widens first")
		}
		r := rand.New(rand.NewPCG(3, 4))
		for _, d := range []int{64, 128, 192} {
			for _, nq := range []int{2, 4, 8} {
				for _, nk := range []int{1, 5, 8, 9, 31, 63, 64} {
					q := make([]float32, nq*d)
					for i := range q {
						q[i] = float32(r.NormFloat64())
					}
					wide := make([]float32, 2*PageSlots*d)
					for i := range wide {
						wide[i] = float32(r.NormFloat64())
					}
					stored := make([]byte, 2*len(wide))
					k.NarrowBF16(stored, wide)
					k.WidenBF16(wide, stored)
					keys, values := stored[:PageSlots*d*2], stored[PageSlots*d*2:]
					what := fmt.Sprintf("%s d %d, %d queries, %d keys", k.Name, d, nq, nk)

					got, want := make([]float32, nq*PageSlots), make([]float32, nq*PageSlots)
					k.NarrowScores(got, PageSlots, q, keys, nq, nk, d, stored)
					k.AttendScores(want, PageSlots, q, wide, nq, nk, d)
					for i := range nq {
						same(t, what, got[i*PageSlots:i*PageSlots+nk], want[i*PageSlots:i*PageSlots+nk])
						for j := (nk + 7) &^ 7; j < PageSlots; j++ {
							if got[i*PageSlots+j] != 0 {
								t.Fatalf("%s: score %d of query %d was written", what, j, i)
							}
						}
					}
					a, b := make([]float32, nq*d), make([]float32, nq*d)
					copy(a, q)
					copy(b, q)
					k.NarrowValues(a, want, PageSlots, values, nq, nk, d)
					k.AttendValues(b, want, PageSlots, wide[PageSlots*d:], nq, nk, d)
					same(t, what+", values", a, b)
				}
			}
		}
	})
}

func same(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}
