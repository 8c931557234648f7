package cpu

import (
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
	}
}
