package kernels

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"windrow/backend"
	"windrow/cpu/kernels/kernelstest"
)

// TestAfter: what is fetched of the weights that come next changes nothing, wherever they
// end, and whatever form they have.
func TestAfter(t *testing.T) {
	const out, in, piece = 96, 512, 64
	rng := rand.New(rand.NewPCG(7, 8))
	for _, k := range machineTables() {
		if k.Quant == nil {
			continue
		}
		for _, c := range kernelstest.Formats {
			w, next := NewWeight(c.Weight(rng, out, in, 0)), NewWeight(c.Weight(rng, out, in, 0))
			longer, others := NewWeight(c.Weight(rng, out, 2*in, 0)), next
			if c.Group > 0 { // in longer groups
				d := c
				d.Group *= 2
				others = NewWeight(d.Weight(rng, out, in, 0))
			}
			pr := k.Quant(&w.tensor)
			if pr == nil {
				continue
			}
			for _, rows := range []int{1, 2, 8, 24} {
				p := packed(pr, kernelstest.Rows(rng, rows*in), rows, in)
				var s Scratch
				want, got := make([]float32, rows*piece), make([]float32, rows*piece)
				pr.Project(want, piece, p, &w, 0, piece, &s)
				for _, after := range []*Weight{&next, &w, &longer, &others} {
					for _, from := range []int{0, 8, out - piece, out - 16, out} {
						s.After, s.AfterFrom = after, from
						clear(got)
						pr.Project(got, piece, p, &w, 0, piece, &s)
						if !slices.Equal(got, want) {
							t.Fatalf("%s, %v, %d rows: other bits with outputs from %d on behind", k.Name, c, rows, from)
						}
					}
				}
			}
		}
	}
}

// packed are rows of x as a projector takes them.
func packed(pr Projector, x []float32, rows, in int) *Packed {
	p := &Packed{}
	p.Prepare(pr, rows, in)
	for r := 0; r < rows; r += pr.PackRows() {
		pr.Pack(p, x, r, min(r+pr.PackRows(), rows))
	}
	return p
}

// BenchmarkPieces reads experts out of memory in pieces, two of one expert in turn, as gate
// and up are: ns a thousand weights and row, the least of some passes, where a piece is told
// what comes after it (Scratch.After), and where it is not.
func BenchmarkPieces(b *testing.B) {
	for _, k := range machineTables() {
		for _, c := range []kernelstest.Format{{DType: backend.Affine4, Group: 64}, {DType: backend.Q4_K}} {
			for _, shape := range []struct{ out, in int }{{768, 2048}, {2048, 768}} {
				for _, piece := range []int{64, 256} {
					for _, rows := range []int{1, 2} {
						b.Run(fmt.Sprintf("%s/type=%v/shape=%dx%d/piece=%d/rows=%d", k.Name, c, shape.out, shape.in, piece, rows), func(b *testing.B) {
							if k.Quant == nil {
								b.Skip("no int8 arithmetic")
							}
							pieces(b, k, c, shape.out, shape.in, piece, rows)
						})
					}
				}
			}
		}
	}
}

func pieces(b *testing.B, k *Table, c kernelstest.Format, out, in, piece, rows int) {
	m := distinct(c, out, in, 128<<20)
	rng := rand.New(rand.NewPCG(5, 6))
	pr := k.Quant(&m[0].tensor)
	p := packed(pr, kernelstest.Rows(rng, rows*in), rows, in)
	y, order := make([]float32, rows*piece), rng.Perm(len(m)/2)
	var s Scratch
	pass := func(told bool) time.Duration {
		start := time.Now()
		for i, e := range order {
			for o := 0; o < out; o += piece {
				for half := range 2 {
					s.After = nil
					switch {
					case !told:
					case half == 0:
						s.After, s.AfterFrom = m[2*e+1], o
					case o+piece < out:
						s.After, s.AfterFrom = m[2*e], o+piece
					case i+1 < len(order):
						s.After, s.AfterFrom = m[2*order[i+1]], 0
					}
					pr.Project(y, piece, p, m[2*e+half], o, o+piece, &s)
				}
			}
		}
		return time.Since(start)
	}
	var least [2]time.Duration
	for b.Loop() {
		for i, told := range []bool{false, true} {
			if t := pass(told); least[i] == 0 || t < least[i] {
				least[i] = t
			}
		}
	}
	each := float64(2*len(order)*out*in*rows) / 1e3
	b.ReportMetric(float64(least[0].Nanoseconds())/each, "alone-ns")
	b.ReportMetric(float64(least[1].Nanoseconds())/each, "told-ns")
	b.ReportMetric(0, "ns/op")
}
