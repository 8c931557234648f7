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

// Shares of what is cut in runs have their share of each, and together are the whole.
func TestSplitSections(t *testing.T) {
	const n, rows, in = 2, 24, 1024
	r := rand.New(rand.NewPCG(8, 2))
	outputs, inputs := []int{4, 8, 12}, []int{512, 512}
	for dt := backend.F32; dt <= backend.Q6_K; dt++ {
		whole := vectors.Tensor(r, dt, rows, in, 64)
		row, got := make([]float32, in), make([]float32, in)
		of := func(x *backend.Tensor, i, width int) []float32 {
			quant.Row(got[:width], x, i)
			return got[:width]
		}
		for i := range n {
			y := *whole
			y.Sections = outputs
			if err := y.CheckOutputs(n); err != nil {
				t.Fatal(err)
			}
			share := y.OutputShare(i, n, make([]byte, 100))
			if err := share.Check(); err != nil || share.Sections != nil || share.Shape[0] != rows/n {
				t.Fatalf("%v: %v, %v", dt, share.Shape, err)
			}
			at, from := 0, 0
			for _, run := range outputs {
				for k := range run / n {
					quant.Row(row, whole, from+i*run/n+k)
					if !slices.Equal(of(&share, at, in), row) {
						t.Errorf("%v, share %d: output %d differs", dt, i, at)
					}
					at++
				}
				from += run
			}
			y.Sections = inputs
			if err := y.CheckInputs(n); err != nil {
				t.Fatal(err)
			}
			share = y.InputShare(i, n, make([]byte, share.Bytes()))
			if err := share.Check(); err != nil || share.Sections != nil {
				t.Fatalf("%v: %v, %v", dt, share.Shape, err)
			}
			for o := range rows {
				quant.Row(row, whole, o)
				want := append(slices.Clone(row[i*256:][:256]), row[512+i*256:][:256]...)
				if !slices.Equal(of(&share, o, in/n), want) {
					t.Errorf("%v, share %d: inputs of output %d differ", dt, i, o)
				}
			}
		}
	}
	w := vectors.Tensor(r, backend.Q8_0, 6, 192, 0)
	w.Name = "w"
	for want, err := range map[string]error{
		"tensor w: 3 outputs do not divide by 2":                 sections(w, 3, 3).CheckOutputs(2),
		"tensor w: runs of [3 4] to cut, 6 in all":               sections(w, 3, 4).CheckOutputs(1),
		"tensor w: 96 inputs in blocks of 32 do not divide by 2": sections(w, 96, 96).CheckInputs(2),
		"tensor w: runs of [96 32] to cut, 192 in all":           sections(w, 96, 32).CheckInputs(1),
		"tensor w: runs of [224 -32] to cut, 192 in all":         sections(w, 224, -32).CheckInputs(1),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestSplitHeads: over more devices than heads neighbours have the same one, over fewer
// each has its own.
func TestSplitHeads(t *testing.T) {
	const heads, dim, in = 2, 4, 256
	r := rand.New(rand.NewPCG(8, 3))
	whole := vectors.Tensor(r, backend.Q8_0, heads*dim, in, 0)
	whole.Split, whole.Heads = backend.SplitOutputs, heads
	row, want := make([]float32, in), make([]float32, in)
	for n, copies := range map[int]int{1: 1, 2: 1, 4: 2, 8: 4, 6: 3} {
		if got := whole.Copies(n); got != copies {
			t.Fatalf("%d devices: %d copies, want %d", n, got, copies)
		}
		if err := whole.CheckOutputs(n); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			share := whole.OutputShare(i, n, nil)
			size := heads * dim * copies / n
			if err := share.Check(); err != nil || share.Shape[0] != size || share.Heads != 0 {
				t.Fatalf("share %d of %d: %v of %d heads, %v", i, n, share.Shape, share.Heads, err)
			}
			for o := range size {
				quant.Row(row, &share, o)
				if quant.Row(want, whole, i/copies*size+o); !slices.Equal(row, want) {
					t.Errorf("share %d of %d: output %d differs", i, n, o)
				}
			}
		}
	}
	whole.Name = "w"
	if err := whole.CheckOutputs(3); err == nil || err.Error() != "tensor w: 8 outputs do not divide by 3" {
		t.Errorf("two heads over three: %v", err)
	}
	if whole.Split = backend.SplitNone; whole.Copies(4) != 1 {
		t.Error("what is whole has copies of parts")
	}
	for _, c := range [][3]int{{0, 4, 1}, {4, 0, 1}, {4, 2, 1}, {4, 6, 1}, {3, 3, 1}, {1, 5, 5}, {4, 8, 2}} {
		if got := backend.HeadCopies(c[0], c[1]); got != c[2] {
			t.Errorf("%d heads over %d devices: %d copies, want %d", c[0], c[1], got, c[2])
		}
	}
}

func sections(t *backend.Tensor, runs ...int) backend.Tensor {
	y := *t
	y.Sections = runs
	return y
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
