package cpu

import (
	"context"
	"testing"

	"windrow/backend"
)

// A table that multiplies integers says so of the weights that it takes.
func TestArithmetic(t *testing.T) {
	for _, name := range KernelTables() {
		b, err := New(Options{Threads: 1, Kernels: name})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		integers := b.Features().Quantized
		w := backend.Tensor{Name: "w", DType: backend.Q8_0, Shape: []int{64, 512}}.Allocated()
		kernels, rounds, err := b.Arithmetic(w)
		if err != nil {
			t.Fatal(err)
		}
		if rounds != (integers != "") || rounds && kernels != integers {
			t.Errorf("%s: q8_0 by %s, rounding %v; the table's integers are %q", name, kernels, rounds, integers)
		}
		// A stack is as one of its matrices, also one that is yet to be made.
		for _, d := range backend.DTypes() {
			if !d.Quantized() {
				continue
			}
			stack := backend.Tensor{Name: "w", DType: d, Shape: []int{3, 8, 512}}
			if d.Affine() || d == backend.F8_E4M3 {
				stack.Group = 64
			}
			unmade := stack
			unmade.Make = func(context.Context) (backend.Tensor, error) { return stack.Allocated(), nil }
			stack = stack.Allocated()
			kernels, rounds, err := b.Arithmetic(stack.Part(1))
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range []backend.Tensor{stack, unmade} {
				if k, r, err := b.Arithmetic(x); k != kernels || r != rounds || err != nil {
					t.Errorf("%s: a stack in %v by %s, rounding %v (%v), one of it by %s, %v", name, d, k, r, err, kernels, rounds)
				}
			}
			stack.Data = stack.Data[1:]
			if _, _, err := b.Arithmetic(stack); err == nil {
				t.Errorf("%s: a stack in %v that lacks a byte was taken", name, d)
			}
		}
	}
}
