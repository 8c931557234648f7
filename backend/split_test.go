package backend_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/quant"
)

// Parts of a matrix hold the weights that its rows have there.
func TestSplitTensor(t *testing.T) {
	const out, in, n = 6, 1024, 2
	r := rand.New(rand.NewPCG(8, 1))
	for dt := backend.F32; dt <= backend.Q6_K; dt++ {
		whole := vectors.Tensor(r, dt, out, in, 64)
		row, half, room := make([]float32, in), make([]float32, in/n), make([]byte, whole.Bytes()/n)
		outputs := whole.Outputs(2, 3)
		if err := outputs.Check(); err != nil {
			t.Fatalf("%v, outputs: %v", dt, err)
		}
		if err := whole.CheckInputs(n); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			inputs := whole.InputShare(i, n, room)
			if err := inputs.Check(); err != nil {
				t.Fatalf("%v, inputs: %v", dt, err)
			}
			for o := range out {
				quant.Row(row, whole, o)
				quant.Row(half, &inputs, o)
				if !slices.Equal(half, row[i*in/n:(i+1)*in/n]) {
					t.Errorf("%v: part %d of the inputs of output %d differs", dt, i, o)
				}
			}
		}
		got := make([]float32, in)
		for o := range 3 {
			quant.Row(row, whole, o+2)
			quant.Row(got, &outputs, o)
			if !slices.Equal(got, row) {
				t.Errorf("%v: output %d differs", dt, o+2)
			}
		}
	}
}

func TestCheckInputs(t *testing.T) {
	for _, c := range []struct {
		dt    backend.DType
		in, n int
		want  string
	}{
		{backend.BF16, 6, 3, ""},
		{backend.BF16, 6, 4, "tensor w: 6 inputs do not divide by 4"},
		{backend.Affine4, 128, 2, ""},
		{backend.Affine4, 192, 2, "tensor w: 192 inputs in groups of 64 do not divide by 2"},
		{backend.Q4_K, 512, 4, "tensor w: 512 inputs in blocks of 256 do not divide by 4"},
	} {
		w := vectors.Tensor(rand.New(rand.NewPCG(1, 1)), c.dt, 1, c.in, 64)
		w.Name = "w"
		got := ""
		if err := w.CheckInputs(c.n); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%v, %d inputs by %d: %q, want %q", c.dt, c.in, c.n, got, c.want)
		}
	}
}

// Parts of a weight of F8_E4M3 take their scales along.
func TestSplitFloat8(t *testing.T) {
	const out, in, n = 6, 256, 2
	r := rand.New(rand.NewPCG(9, 1))
	whole := backend.Tensor{Name: "w", DType: backend.F8_E4M3, Shape: []int{out, in}, Group: 64}.Allocated()
	for i := range whole.Data {
		whole.Data[i] = byte(r.IntN(0x7f))
	}
	for i := 0; i < len(whole.Scales); i += 4 {
		quant.Blocks(whole.Scales[i:], backend.F32, []float32{r.Float32()})
	}
	if err := whole.CheckInputs(n); err != nil {
		t.Fatal(err)
	}
	if err := whole.CheckInputs(8); err == nil {
		t.Error("4 groups were cut into 8")
	}
	row, got := make([]float32, in), make([]float32, in)
	outputs := whole.Outputs(2, 3)
	for o := range 3 {
		quant.Row(row, &whole, o+2)
		if quant.Row(got, &outputs, o); !slices.Equal(got, row) {
			t.Errorf("output %d differs", o+2)
		}
	}
	for i := range n {
		inputs := whole.InputShare(i, n, make([]byte, 100))
		if err := inputs.Check(); err != nil {
			t.Fatal(err)
		}
		for o := range out {
			quant.Row(row, &whole, o)
			if quant.Row(got[:in/n], &inputs, o); !slices.Equal(got[:in/n], row[i*in/n:(i+1)*in/n]) {
				t.Errorf("part %d of the inputs of output %d differs", i, o)
			}
		}
	}
}
