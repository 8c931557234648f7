package cpu

import (
	"math/rand/v2"
	"testing"

	"windrow/backend"
)

// TestGateOfTwoTypes: a gate and an up of different types share a dispatch
// where both meet activations in f32, and have the bits of their own.
func TestGateOfTwoTypes(t *testing.T) {
	const rows, out, in = 5, 70, 512
	rng := rand.New(rand.NewPCG(13, 1))
	encoded, _ := encode(backend.BF16, randomRows(rng, out*in))
	plain := backend.Tensor{Name: "plain", DType: backend.BF16, Shape: []int{out, in}, Data: encoded}
	quantised := quantMatrix(rng, quantCase{backend.Affine4, 64}, out, in, 0).tensor
	quantised.Name = "quantised"
	x := randomRows(rng, rows*in)
	fastTables(t, func(t *testing.T, k *kernels) {
		b, err := New(Options{Kernels: k.name, Exact: true, Threads: 2})
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
			p, err := b.Begin(rows)
			if err != nil {
				t.Fatal(err)
			}
			xb, y, gate, up := p.Buffer(in).(*buffer), p.Buffer(out), p.Buffer(out), p.Buffer(out)
			copy(xb.data, x)
			p.GatedProject(y, xb, w[0], w[1])
			p.Project([]backend.Buffer{gate}, xb, w[:1])
			p.Project([]backend.Buffer{up}, xb, w[1:])
			got, want := p.Read(y), make([]float32, rows*out)
			k.siluMul(want, p.Read(gate), p.Read(up))
			if err := p.End(); err != nil {
				t.Fatal(err)
			}
			compare(t, types[0].Name+" gate", got, want, 1e-6, 1e-6)
		}
	})
}
