package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"windrow/backend"
	"windrow/conformance/backendtest"
	"windrow/cpu/kernels"
	"windrow/cpu/kernels/kernelstest"
)

// withBLAS is a backend that multiplies by product in forwards of more than
// that many rows.
func withBLAS(t *testing.T, k *kernels.Table, exact bool, rows int, product sgemm) *Backend {
	t.Helper()
	b, err := newBackend(k, exact, 2, &accelerate, "0", nil)
	if err != nil {
		t.Fatal(err)
	}
	b.blas = blas{product: product, rows: rows}
	t.Cleanup(func() { b.Close() })
	return b
}

// tableSgemm is an sgemm by a table's own kernels, for tests that would be slow
// by plainSgemm. Rows of a and b must follow one another.
func tableSgemm(table *kernels.Table) sgemm {
	var s kernels.Scratch
	return func(m, n, k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int) {
		if lda != k || ldb != k {
			panic("rows apart")
		}
		p := new(kernels.Packed)
		p.Prepare(table.Exact, m, k)
		table.Exact.Pack(p, a[:m*k], 0, m)
		w := kernels.NewWeight(backend.Tensor{DType: backend.F32, Shape: []int{n, k}, Data: unsafe.Slice((*byte)(unsafe.Pointer(&b[0])), 4*n*k)})
		table.Exact.Project(c, ldc, p, &w, 0, n, &s)
	}
}

// TestAccelerateConformance passes the suite with every product done by a BLAS.
func TestAccelerateConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("minutes under an emulator")
	}
	k := bestTable(t)
	backendtest.Run(t, "../model/testdata/golden", func(t *testing.T) backend.Backend {
		return withBLAS(t, k, true, 0, tableSgemm(k))
	})
}

// weightOf is a weight of any type with random values, and its rows in f32.
// Data of odd offset is not aligned.
func weightOf(t *testing.T, b *Backend, rng *rand.Rand, c kernelstest.Format, out, in, offset int) (*matrix, []float32) {
	t.Helper()
	var tensor backend.Tensor
	if c.DType.Quantized() {
		tensor = c.Weight(rng, out, in, offset)
	} else {
		values := make([]float32, out*in)
		kernelstest.Gaussian(rng, values, 1)
		data, _ := kernelstest.Encode(c.DType, values)
		tensor = backend.Tensor{DType: c.DType, Shape: []int{out, in}, Data: append(make([]byte, offset, offset+len(data)), data...)[offset:]}
	}
	tensor.Name = "w"
	w, err := b.Matrix(tensor)
	if err != nil {
		t.Fatal(err)
	}
	m := w.(*matrix)
	wide := make([]float32, out*in)
	for o := range out {
		kernels.Reference().WidenRow(wide[o*in:(o+1)*in], &m.Weight, o)
	}
	return m, wide
}

// TestAccelerateProjections compares projections by a BLAS with float64 where
// they are cut: panels of outputs and their tails, pieces that are widened, the
// last columns of a wider target, every type of weight and f32 used in place.
// An order of a sum of n rounds each partial sum, which Σ|x·w| bounds: n times
// 2^-24 of that; bias and residual are two more.
func TestAccelerateProjections(t *testing.T) {
	k := bestTable(t)
	rng := rand.New(rand.NewPCG(12, 1))
	cases := append([]kernelstest.Format{{DType: backend.BF16}, {DType: backend.F16}, {DType: backend.F32}}, kernelstest.Formats...)
	for _, c := range cases {
		for _, sh := range []struct{ rows, out, in int }{{1, 1, 256}, {5, 15, 512}, {130, 33, 256}, {3, 1100, 1024}} {
			if c.DType.Quantized() && c.DType != backend.Affine4 && (sh.out > 1000 || testing.Short()) {
				continue
			}
			if !c.DType.Quantized() && sh.out < 1000 {
				sh.in -= 3
			}
			for offset := range 2 {
				b := withBLAS(t, k, true, 0, plainSgemm)
				w, wide := weightOf(t, b, rng, c, sh.out, sh.in, offset)
				what := fmt.Sprintf("%v %+v, offset %d", c, sh, offset)
				if direct := w.Floats(0, 1) != nil; direct != (c.DType == backend.F32 && offset == 0) {
					t.Fatalf("%s: in place is %v", what, direct)
				}
				bias := make(vector, sh.out)
				kernelstest.Gaussian(rng, bias, 1)
				f := &forward{b: b, rows: sh.rows, buffers: make([]buffer, 4)}
				fill := func(i, width int) *buffer {
					x := f.testBuffer(i, width)
					kernelstest.Gaussian(rng, x.data, 1)
					return x
				}
				x, plain, biased, residual := fill(0, sh.in), fill(1, sh.out), fill(2, sh.out), fill(3, sh.out)
				held := append([]float32(nil), residual.data...)
				f.project([]backend.Buffer{1, 2}, x, []backend.Linear{{Weight: w}, {Weight: w, Bias: bias}}, false)
				f.project([]backend.Buffer{3}, x, []backend.Linear{{Weight: w, Bias: bias}}, true)
				for r := range sh.rows {
					for o := range sh.out {
						var sum, norm float64
						for i := range sh.in {
							v := float64(x.data[r*sh.in+i]) * float64(wide[o*sh.in+i])
							sum, norm = sum+v, norm+math.Abs(v)
						}
						at := r*sh.out + o
						for _, got := range []struct {
							name string
							y    float32
							plus float64
						}{
							{"project", plain.data[at], 0}, {"with bias", biased.data[at], float64(bias[o])},
							{"into the residual", residual.data[at], float64(bias[o]) + float64(held[at])},
						} {
							bound := (norm + 10) * float64(sh.in+2) / (1 << 24)
							if want := sum + got.plus; !(math.Abs(float64(got.y)-want) <= bound) {
								t.Fatalf("%s, %s: [%d][%d] is %v, want %v ± %v", what, got.name, r, o, got.y, want, bound)
							}
						}
					}
				}
			}
		}
	}
}

// TestAccelerateGate compares gate and up in several panels with our kernels.
func TestAccelerateGate(t *testing.T) {
	k := bestTable(t)
	const rows, out, in = 5, 1050, 2048 // panels of 512, 512 and 26
	rng := rand.New(rand.NewPCG(12, 2))
	ours, theirs := withBLAS(t, k, true, 0, nil), withBLAS(t, k, true, 0, plainSgemm)
	g, _ := weightOf(t, ours, rng, kernelstest.Format{DType: backend.BF16}, out, in, 0)
	u, _ := weightOf(t, ours, rng, kernelstest.Format{DType: backend.Affine4, Group: 64}, out, in, 0)
	if outs := blasOuts(g); outs != 512 {
		t.Fatalf("panels of %d", outs)
	}
	x := make([]float32, rows*in)
	kernelstest.Gaussian(rng, x, 0.02)
	var results [2][]float32
	for i, b := range []*Backend{ours, theirs} {
		f := &forward{b: b, rows: rows, buffers: make([]buffer, 2)}
		xb, d := f.testBuffer(0, in), f.testBuffer(1, out)
		copy(xb.data, x)
		f.gatedProject(d, xb, backend.Linear{Weight: g}, backend.Linear{Weight: u})
		results[i] = d.data
	}
	// Sums of 2,048 products of about 0.02 are about 1.
	kernelstest.Compare(t, "gated", results[1], results[0], 1e-4, 1e-4)
}

// TestAccelerateInvariance: up to BatchInvariantRows a row has its bits alone,
// and one row more goes to the BLAS, in whose order it has others. Unasked,
// and with weights that meet activations in int8, it always has them.
func TestAccelerateInvariance(t *testing.T) {
	k := bestTable(t)
	const out, in, most = 70, 512, 512
	rng := rand.New(rand.NewPCG(12, 3))
	x := make([]float32, most*in)
	kernelstest.Gaussian(rng, x, 1)
	for _, c := range []kernelstest.Format{{DType: backend.F32}, {DType: backend.Affine4, Group: 64}, {DType: backend.Q8_0}} {
		for _, exact := range []bool{true, false} {
			for _, asked := range []bool{true, false} {
				calls := 0
				product := func(m, n, k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int) {
					calls++
					plainSgemm(m, n, k, a, lda, b, ldb, c, ldc)
				}
				b := withBLAS(t, k, exact, accelerateRows, product)
				if !asked {
					b.blas = blas{}
				}
				w, _ := weightOf(t, b, rng, c, out, in, 0)
				project := func(first, rows int) []float32 {
					f := &forward{b: b, rows: rows, buffers: make([]buffer, 2)}
					xb, y := f.testBuffer(0, in), f.testBuffer(1, out)
					copy(xb.data, x[first*in:])
					f.project([]backend.Buffer{1}, xb, []backend.Linear{{Weight: w}}, false)
					return y.data
				}
				alone := make([][]float32, most)
				for _, r := range []int{0, 1, 5, 127, 128, 511} {
					alone[r] = project(r, 1)
				}
				for _, rows := range []int{2, 33, accelerateRows, accelerateRows + 1, most} {
					before := calls
					y := project(0, rows)
					same := true
					for r := range rows {
						if alone[r] != nil {
							same = same && equalRows(y[r*out:(r+1)*out], alone[r])
						}
					}
					rounds := !exact && c.DType.Quantized() && k.Quant != nil
					theirs := asked && rows > b.Features().BatchInvariantRows && !rounds
					if same == theirs || (calls > before) != theirs {
						t.Errorf("%v, exact %v, asked %v, %d rows: %d calls, the bits alone %v; by the BLAS is %v",
							c, exact, asked, rows, calls-before, same, theirs)
					}
				}
			}
		}
	}
}
