package kernels

import (
	"math"
	"math/rand/v2"
	"testing"

	"windrow/backend"
	"windrow/cpu/kernels/kernelstest"
)

// projectAll packs x and projects in chunks of the given size.
func projectAll(proj Projector, x []float32, rows int, w *Weight, chunk int) []float32 {
	f, h := proj.PackSize(rows, w.in)
	p := &Packed{Rows: rows, in: w.in, f32: make([]float32, f), b16: make([]uint16, h)}
	for i := range p.f32 {
		p.f32[i] = nan32 // padding must be written too
	}
	for r := 0; r < rows; r += proj.PackRows() {
		proj.Pack(p, x, r, min(rows, r+proj.PackRows()))
	}
	y := make([]float32, rows*w.out)
	var s Scratch
	for o := 0; o < w.out; o += chunk {
		o1 := min(w.out, o+chunk)
		part := make([]float32, rows*(o1-o))
		s.Next = [...]int{0, chunk, 2 * chunk, 1 << 20}[o/chunk%4] // what is fetched ahead changes nothing
		proj.Project(part, o1-o, p, w, o, o1, &s)
		for r := range rows {
			copy(y[r*w.out+o:r*w.out+o1], part[r*(o1-o):(r+1)*(o1-o)])
		}
	}
	return y
}

// exactShape is one matrix of the tests: sizes around the steps of 16 and 32
// elements, K blocks of 1,024, groups of 2 and 4 outs, panels of 64.
type exactShape struct{ out, in int }

var exactShapes = []exactShape{
	{1, 1}, {3, 7}, {4, 16}, {5, 31}, {2, 32}, {7, 33}, {9, 48}, {6, 64}, {13, 96},
	{66, 160}, {5, 1024}, {7, 1056}, {3, 2080}, {67, 1100},
}

// TestExactProjectors compares with float64. An accumulator's lane adds in/16
// (or in/8) products and then 5 sums of lanes, each rounding to 2^-24 of a
// partial sum, which Σ|x·w| bounds: in/8 + 6 roundings at most.
func TestExactProjectors(t *testing.T) {
	fastTables(t, func(t *testing.T, k *Table) {
		r := rand.New(rand.NewPCG(9, 1))
		for _, dt := range []backend.DType{backend.BF16, backend.F16, backend.F32} {
			for _, sh := range exactShapes {
				w := make([]float32, sh.out*sh.in)
				kernelstest.Gaussian(r, w, 1)
				data, kept := kernelstest.Encode(dt, w)
				m := &Weight{dt: dt, out: sh.out, in: sh.in, data: data}
				if !k.Exact.Takes(dt, sh.in) {
					t.Fatalf("%s does not take %v rows of %d", k.Exact.Name(), dt, sh.in)
				}
				const rows = 7
				x := make([]float32, rows*sh.in)
				kernelstest.Gaussian(r, x, 1)
				y := projectAll(k.Exact, x, rows, m, k.Exact.Chunk(rows, sh.in))
				for row := range rows {
					for o := range sh.out {
						var want, norm float64
						for c := range sh.in {
							p := float64(x[row*sh.in+c]) * float64(kept[o*sh.in+c])
							want += p
							norm += math.Abs(p)
						}
						bound := norm * (float64(sh.in)/8 + 6) / (1 << 24)
						if got := float64(y[row*sh.out+o]); !(math.Abs(got-want) <= bound) {
							t.Fatalf("%v %dx%d: y[%d][%d] = %g, want %g ± %g", dt, sh.out, sh.in, row, o, got, want, bound)
						}
					}
				}
			}
		}
	})
}

// TestExactInvariance demands the bits of a row alone, whatever rows ride
// along and however the outputs are cut.
func TestExactInvariance(t *testing.T) {
	fastTables(t, func(t *testing.T, k *Table) {
		r := rand.New(rand.NewPCG(9, 2))
		for _, dt := range []backend.DType{backend.BF16, backend.F16, backend.F32} {
			for _, sh := range []exactShape{{11, 50}, {21, 64}, {70, 1056}, {6, 2112}} {
				w := make([]float32, sh.out*sh.in)
				kernelstest.Gaussian(r, w, 1)
				data, _ := kernelstest.Encode(dt, w)
				m := &Weight{dt: dt, out: sh.out, in: sh.in, data: data}
				const most = 512
				x := make([]float32, most*sh.in)
				kernelstest.Gaussian(r, x, 1)
				alone := make([][]float32, most)
				for _, row := range []int{0, 1, 2, 5, 6, 11, 14, 15, 16, 30, 32, 47, 199, 200, 300, 510, 511} {
					alone[row] = projectAll(k.Exact, x[row*sh.in:(row+1)*sh.in], 1, m, sh.out)
				}
				for _, rows := range []int{1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 16, 33, 48, 201, 512} {
					for _, chunk := range []int{1, 3, 4, 10, 64, sh.out} {
						if rows > 48 && chunk < 64 {
							continue
						}
						y := projectAll(k.Exact, x[:rows*sh.in], rows, m, chunk)
						for row := range rows {
							for o, want := range alone[row] {
								if got := y[row*sh.out+o]; got != want {
									t.Fatalf("%v %dx%d, %d rows, chunks of %d: y[%d][%d] = %g, alone it is %g",
										dt, sh.out, sh.in, rows, chunk, row, o, got, want)
								}
							}
						}
					}
				}
			}
		}
	})
}

// TestExactNaN: a NaN in one row of weights, or of activations, stays there.
func TestExactNaN(t *testing.T) {
	fastTables(t, func(t *testing.T, k *Table) {
		r := rand.New(rand.NewPCG(9, 3))
		const out, in = 14, 77
		for _, dt := range []backend.DType{backend.BF16, backend.F16, backend.F32} {
			for _, rows := range []int{1, 4, 9} {
				for bad := range out {
					w, x := make([]float32, out*in), make([]float32, rows*in)
					kernelstest.Gaussian(r, w, 1)
					kernelstest.Gaussian(r, x, 1)
					w[bad*in+r.IntN(in)] = nan32
					badRow := rows
					if rows > 1 {
						badRow = bad % rows
						x[badRow*in+r.IntN(in)] = inf32
					}
					data, _ := kernelstest.Encode(dt, w)
					y := projectAll(k.Exact, x, rows, &Weight{dt: dt, out: out, in: in, data: data}, out)
					for row := range rows {
						for o := range out {
							v := float64(y[row*out+o])
							finite := !math.IsNaN(v) && !math.IsInf(v, 0)
							if finite != (o != bad && row != badRow) {
								t.Fatalf("%v: bad weight row %d, bad row %d: y[%d][%d] = %g", dt, bad, badRow, row, o, v)
							}
						}
					}
				}
			}
		}
	})
}
