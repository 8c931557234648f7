package cpu

import (
	"math/rand/v2"
	"testing"

	"windrow/backend"
	"windrow/cpu/kernels/kernelstest"
)

// TestGateOfTwoTypes: a gate and an up of different types share a dispatch
// where both meet activations in f32, and have the bits of their own.
func TestGateOfTwoTypes(t *testing.T) {
	const rows, out, in = 5, 70, 512
	rng := rand.New(rand.NewPCG(13, 1))
	encoded, _ := kernelstest.Encode(backend.BF16, kernelstest.Rows(rng, out*in))
	plain := backend.Tensor{Name: "plain", DType: backend.BF16, Shape: []int{out, in}, Data: encoded}
	quantised := kernelstest.Format{DType: backend.Affine4, Group: 64}.Weight(rng, out, in, 0)
	quantised.Name = "quantised"
	x := kernelstest.Rows(rng, rows*in)
	for _, name := range KernelTables() {
		if name == "go" {
			continue
		}
		b, err := New(Options{Kernels: name, Exact: true, Threads: 2})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		for _, types := range [][2]backend.Tensor{{plain, quantised}, {quantised, plain}} {
			var w [2]backend.Linear
			for i := range w {
				if w[i].Weight, err = b.Matrix(types[i]); err != nil {
					t.Fatal(err)
				}
			}
			f := &forward{b: b, rows: rows, buffers: make([]buffer, 4)}
			xb, y, gate, up := f.testBuffer(0, in), f.testBuffer(1, out), f.testBuffer(2, out), f.testBuffer(3, out)
			copy(xb.data, x)
			f.gatedProject(y, xb, w[0], w[1])
			f.project([]backend.Buffer{2}, xb, w[:1], false)
			f.project([]backend.Buffer{3}, xb, w[1:], false)
			got, want := y.data, make([]float32, rows*out)
			b.k.SiluMul(want, gate.data, up.data)
			kernelstest.Compare(t, name+": "+types[0].Name+" gate", got, want, 1e-6, 1e-6)
		}
	}
}

// testBuffer is buffer i of a forward, with room for its rows.
func (f *forward) testBuffer(i, width int) *buffer {
	f.buffers[i].sized(f.rows, width)
	return &f.buffers[i]
}
