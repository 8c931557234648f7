package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"windrow/backend"
	"windrow/cpu/kernels/kernelstest"
	"windrow/quant"
)

// bf16Projectors calls f for each projector that rounds activations to bf16,
// as a subtest that is skipped where the processor cannot run it.
func bf16Projectors(t *testing.T, f func(t *testing.T, pr Projector)) {
	t.Run("avx512", func(t *testing.T) {
		needs(t, featuresAVX512BF16)
		f(t, bf16Projector{})
	})
	t.Run("amx", func(t *testing.T) {
		needs(t, featuresAMX)
		if lackingAMX() != "" {
			t.Skip("needs the system's leave to use the matrix unit")
		}
		f(t, amxProjector{})
	})
}

// shortProjectors calls f for those, too, and for the exact one that takes short rows of bf16
// as they do.
func shortProjectors(t *testing.T, f func(t *testing.T, pr Projector)) {
	bf16Projectors(t, f)
	t.Run("avx2", func(t *testing.T) {
		needs(t, featuresAVX2)
		f(t, avx2Projector)
	})
}

// bf16Matrix is a random weight of elements of about 1/√in, in data that
// starts at the given misalignment.
func bf16Matrix(rng *rand.Rand, out, in, misalign int) *Weight {
	data := make([]byte, misalign+2*out*in)[misalign:]
	scale := 1 / math.Sqrt(float64(in))
	for i := 0; i < len(data); i += 2 {
		h := quant.F32ToBF16(float32(rng.NormFloat64() * scale))
		data[i], data[i+1] = byte(h), byte(h>>8)
	}
	return &Weight{dt: backend.BF16, out: out, in: in, data: data}
}

// bf16Want computes in float64 what the projection of x, rounded to bf16,
// should be, with Σ|x·w| as the measure of its rounding error.
func bf16Want(w *Weight, x []float32, r, o int) (sum, size float64) {
	for k := range w.in {
		a := float64(quant.BF16ToF32(quant.F32ToBF16(x[r*w.in+k])))
		i := 2 * (o*w.in + k)
		b := float64(quant.BF16ToF32(uint16(w.data[i]) | uint16(w.data[i+1])<<8))
		sum += a * b
		size += math.Abs(a * b)
	}
	return sum, size
}

// bf16Tolerance is the error allowed, of Σ|x·w|. Products of bf16 are exact in
// f32, and each of the in additions rounds by at most 2^-24 of a partial sum:
// in·2^-24 at worst, and √in·2^-24 with a few standard deviations in practice.
func bf16Tolerance(in int) float64 { return 4 * math.Sqrt(float64(in)) * 0x1p-24 }

func TestBF16Projectors(t *testing.T) {
	bf16Projectors(t, func(t *testing.T, pr Projector) {
		name := pr.Name()
		for _, c := range []struct{ out, in int }{
			{1, 32}, {3, 32}, {15, 64}, {16, 96}, {17, 128}, {31, 32}, {33, 544}, {48, 1024},
			{64, 1024}, {100, 1056}, {128, 512}, {65, 2048}, {35, 3072}, {18, 6144},
		} {
			rng := rand.New(rand.NewPCG(1, uint64(c.out*c.in)))
			w := bf16Matrix(rng, c.out, c.in, c.out%2)
			for _, rows := range []int{1, 2, 7, 15, 16, 17, 31, 33, 50, 64, 100, 170} {
				x := kernelstest.Rows(rng, rows*c.in)
				y := runProjector(pr, w, x, rows, 0, c.out, c.out)
				for r := range rows {
					for o := range c.out {
						want, size := bf16Want(w, x, r, o)
						if got := float64(y[r*c.out+o]); !(math.Abs(got-want) <= bf16Tolerance(c.in)*size) {
							t.Fatalf("%s %dx%d rows %d: y[%d][%d] = %v, want %v", name, c.out, c.in, rows, r, o, got, want)
						}
					}
				}
			}
		}
	})
}

// Row counts and the split of outputs must not change a bit.
func TestBF16BatchInvariance(t *testing.T) {
	bf16Projectors(t, func(t *testing.T, pr Projector) {
		for _, in := range []int{32, 544, 1024, 2048} {
			const out, most = 200, 600
			rng := rand.New(rand.NewPCG(2, uint64(in)))
			w := bf16Matrix(rng, out, in, 1)
			x := kernelstest.Rows(rng, most*in)
			want := make([]float32, 0, most*out)
			for r := range most {
				want = append(want, runProjector(pr, w, x[r*in:], 1, 0, out, out)...)
			}
			for _, c := range []struct{ rows, o0, o1, part int }{
				{2, 0, out, 64}, {7, 0, out, 16}, {16, 5, 170, 165}, {33, 0, out, 40}, {64, 0, out, 72}, {48, 9, out, 30}, {100, 1, 2, 1}, {512, 0, out, out}, {512, 3, 100, 13}, {173, 5, 170, 165}, {600, 0, out, 96}, {1, 7, 81, 5},
			} {
				t.Run(fmt.Sprintf("%d/%dx%d-%d", in, c.rows, c.o0, c.o1), func(t *testing.T) {
					y := runProjector(pr, w, x, c.rows, c.o0, c.o1, c.part)
					n := c.o1 - c.o0
					for r := range c.rows {
						for o := range n {
							if y[r*n+o] != want[r*out+c.o0+o] {
								t.Fatalf("y[%d][%d] = %v, alone %v", r, c.o0+o, y[r*n+o], want[r*out+c.o0+o])
							}
						}
					}
				})
			}
		}
	})
}

// Every count of outputs, odd ones too, against one output at a time.
func TestBF16AllOutputCounts(t *testing.T) {
	const in, most = 96, 33
	rng := rand.New(rand.NewPCG(7, 8))
	w := bf16Matrix(rng, 100, in, 3)
	x := kernelstest.Rows(rng, most*in)
	shortProjectors(t, func(t *testing.T, pr Projector) {
		name := pr.Name()
		single := runProjector(pr, w, x, most, 0, 100, 1)
		for out := 1; out <= 100; out++ {
			for _, rows := range []int{1, 3, 17, 33} {
				y := runProjector(pr, w, x, rows, 0, out, out)
				for r := range rows {
					for o := range out {
						if y[r*out+o] != single[r*100+o] {
							t.Fatalf("%s: %d outputs, %d rows: y[%d][%d] = %v, want %v", name, out, rows, r, o, y[r*out+o], single[r*100+o])
						}
					}
				}
			}
		}
	})
}

// Every count of rows, of lengths that are near and not, against one row at a time; what
// is fetched of weights that come next changes nothing.
func TestBF16AllRowCounts(t *testing.T) {
	const out, most = 53, 60
	shortProjectors(t, func(t *testing.T, pr Projector) {
		for _, in := range []int{32, 128, 256, 640, 704} {
			rng := rand.New(rand.NewPCG(11, uint64(in)))
			w, after := bf16Matrix(rng, out, in, 3), bf16Matrix(rng, out, in, 1)
			x := kernelstest.Rows(rng, most*in)
			var single []float32
			for r := range most {
				single = append(single, runProjector(pr, w, x[r*in:], 1, 0, out, out)...)
			}
			for rows := 1; rows <= most; rows++ {
				var p Packed
				p.Prepare(pr, rows, in)
				pr.Pack(&p, x, 0, rows)
				for i, s := range []*Scratch{{}, {Next: 40}, {After: after}, {After: after, AfterFrom: out - 1}, {After: bf16Matrix(rng, 1, 32, 0)}} {
					y := make([]float32, rows*out)
					for o := 0; o < out; o += 40 {
						pr.Project(y[o:], out, &p, w, o, min(o+40, out), s)
					}
					for j, v := range y {
						if v != single[j] {
							t.Fatalf("%s: %d rows of %d, scratch %d: y[%d][%d] = %v, alone %v", pr.Name(), rows, in, i, j/out, j%out, v, single[j])
						}
					}
				}
			}
		}
	})
}

// Some of the packed rows, in an order of their own, have the bits that all have; columns
// that are packed apart are those of whole rows.
func TestBF16RowsOfAList(t *testing.T) {
	shortProjectors(t, func(t *testing.T, some Projector) {
		pr, ok := some.(RowProjector)
		if !ok {
			t.Skip("has none")
		}
		const out, most = 37, 60
		for _, in := range []int{32, 256, 672, 704, 1056} {
			rng := rand.New(rand.NewPCG(12, uint64(in)))
			w, x := bf16Matrix(rng, out, in, 3), kernelstest.Rows(rng, most*in)
			all := runProjector(pr, w, x, most, 0, out, out)
			var p Packed
			p.Prepare(pr, most, in)
			for from := 0; from < in; {
				n := min(in-from, PackedColumns*(1+rng.IntN(3)))
				var part []float32
				for r := range most {
					part = append(part, x[r*in+from:r*in+from+n]...)
				}
				pr.PackColumns(&p, part, from, n)
				from += n
			}
			y := make([]float32, most*out)
			if pr.Project(y, out, &p, w, 0, out, &Scratch{}); !slices.Equal(y, all) {
				t.Fatalf("rows of %d that were packed by columns have other bits", in)
			}
			if !pr.TakesRows(w) {
				continue
			}
			for rows := range most {
				list := rng.Perm(most)[:rows]
				y := make([]float32, rows*out+1)
				y[rows*out] = 7
				pr.ProjectRows(y, out, &p, list, w, 0, out, &Scratch{})
				for i, r := range list {
					if !slices.Equal(y[i*out:(i+1)*out], all[r*out:(r+1)*out]) {
						t.Fatalf("row %d of %v of %d elements: %v, among all %v", i, list, in, y[i*out:(i+1)*out], all[r*out:(r+1)*out])
					}
				}
				if y[rows*out] != 7 {
					t.Fatalf("%d rows of %d: the element behind was overwritten", rows, in)
				}
			}
		}
	})
}

// What is not finite in one row of weights or activations stays in its row.
func TestBF16NonFinite(t *testing.T) {
	const out, in, most = 50, 256, 165
	rng := rand.New(rand.NewPCG(9, 10))
	w, x := bf16Matrix(rng, out, in, 0), kernelstest.Rows(rng, most*in)
	const badOut, infOut, badRow = 17, 40, 35
	w.data[2*(badOut*in+100)+1], w.data[2*(badOut*in+100)] = 0x7f, 0xc0
	w.data[2*(infOut*in+3)+1], w.data[2*(infOut*in+3)] = 0x7f, 0x80
	x[badRow*in+200] = float32(math.NaN())
	for _, rows := range []int{37, most} {
		bf16Projectors(t, func(t *testing.T, pr Projector) {
			name := pr.Name()
			y := runProjector(pr, w, x, rows, 0, out, out)
			for r := range rows {
				for o := range out {
					v := float64(y[r*out+o])
					switch nan, inf := math.IsNaN(v), math.IsInf(v, 0); {
					case r == badRow || o == badOut:
						if !nan {
							t.Errorf("%s: y[%d][%d] = %v, want NaN", name, r, o, v)
						}
					case o == infOut:
						if !inf {
							t.Errorf("%s: y[%d][%d] = %v, want an infinity", name, r, o, v)
						}
					case nan || inf:
						t.Errorf("%s: y[%d][%d] = %v", name, r, o, v)
					}
				}
			}
		})
	}
}

// Tile registers are state that the kernel saves at each signal: projections
// on many threads, preempted by a busy garbage collector, must stay exact.
func TestBF16UnderPreemption(t *testing.T) {
	const out, in, rows = 512, 2048, 33
	rng := rand.New(rand.NewPCG(11, 12))
	w, x := bf16Matrix(rng, out, in, 1), kernelstest.Rows(rng, rows*in)
	bf16Projectors(t, func(t *testing.T, pr Projector) {
		name := pr.Name()
		want := runProjector(pr, w, x, rows, 0, out, out)
		stop := make(chan struct{})
		var collector, workers sync.WaitGroup
		collector.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					runtime.GC()
				}
			}
		})
		for range 2*runtime.GOMAXPROCS(0) + 1 {
			workers.Go(func() {
				for range 20 {
					if !slices.Equal(runProjector(pr, w, x, rows, 0, out, out), want) {
						t.Errorf("%s: another result", name)
						return
					}
				}
			})
		}
		workers.Wait()
		close(stop)
		collector.Wait()
	})
}
