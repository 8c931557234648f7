package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/backend"
	"windrow/backend/vectors"
)

// headOf makes a head whose logits are z for every row, up to rounding that keeps
// ties: all but the first input are 0.
func headOf(z []float32, width int) backend.Tensor {
	data := make([]byte, 4*len(z)*width)
	for i, v := range z {
		copyFloat(data[4*i*width:], v)
	}
	return backend.Tensor{Name: "head", DType: backend.F32, Shape: []int{len(z), width}, Data: data}
}

func copyFloat(to []byte, v float32) {
	b := math.Float32bits(v)
	to[0], to[1], to[2], to[3] = byte(b), byte(b>>8), byte(b>>16), byte(b>>24)
}

// The statistics and candidates of a head in parts are those of the whole: with the
// best in either part, on ties, with ids barred on both sides of the border.
func TestGroupResults(t *testing.T) {
	g, one := openGroup(t, true), openBackend(t, true).(*Backend)
	defer one.Close()
	const width = 16
	x, norm := make([]float32, width), make([]float32, width)
	x[0] = 1
	for i := range norm {
		norm[i] = 0.25
	}
	r := rand.New(rand.NewPCG(3, 9))
	cases := append(slices.Clone(vectors.Cases),
		vectors.Logits{Vocab: 600, Top: 64, Limit: 300, Except: 299, Spread: 2},  // nothing is left to the second GPU
		vectors.Logits{Vocab: 600, Top: 3, Limit: 301, Except: 300, Spread: 2},   // but for one id, which is barred
		vectors.Logits{Vocab: 1000, Top: 64, Except: 500, Grain: 2, Spread: 1.5}, // ties over the border
	)
	for i, c := range cases {
		for _, split := range []backend.Split{backend.SplitNone, backend.SplitOutputs} {
			for _, best := range []int{-1, c.Vocab / 5, c.Vocab - 1} { // of the vocabulary: as drawn, in the first part, in the last
				z := c.Rows(r, 1)
				if best >= 0 {
					z[best] = 40
				}
				head := headOf(z, width)
				head.Split = split
				want, bars := backend.Wanted{TopK: c.Top, Logits: i%2 == 0}, backend.Bars{Limit: int32(c.Limit), Except: int32(c.Except)}
				got, alone := results(t, g, x, norm, head, want, bars), results(t, one, x, norm, head, want, bars)
				what := fmt.Sprintf("case %d, split %d, best %d", i, split, best)
				if got.Argmax != alone.Argmax || !slices.Equal(got.Top, alone.Top) || !slices.Equal(got.Logits, alone.Logits) {
					t.Errorf("%s: argmax %d, top %v; one GPU: %d, %v", what, got.Argmax, got.Top, alone.Argmax, alone.Top)
				}
				if d := math.Abs(float64(got.Entropy - alone.Entropy)); d > 1e-5 {
					t.Errorf("%s: entropy %v, one GPU: %v", what, got.Entropy, alone.Entropy)
				}
				if d := math.Abs(float64(got.LogSumExp - alone.LogSumExp)); d > 1e-5 {
					t.Errorf("%s: log-sum-exp %v, one GPU: %v", what, got.LogSumExp, alone.LogSumExp)
				}
			}
		}
	}
	// Parts of an embedding that is the head, packed and not.
	for _, dt := range []backend.DType{backend.BF16, backend.Affine8, backend.Q4_0} {
		g, one := openGroup(t, false), openBackend(t, false)
		x, norm := vectors.Normals(r, 256), vectors.Normals(r, 256)
		head := *vectors.Tensor(r, dt, 1304, 256, 64)
		want := backend.Wanted{TopK: 9, Logits: true}
		if got, alone := results(t, g, x, norm, head, want, backend.NoBars), results(t, one, x, norm, head, want, backend.NoBars); !slices.Equal(got.Logits, alone.Logits) || !slices.Equal(got.Top, alone.Top) {
			t.Errorf("a whole head of %v: other logits than on one GPU", dt)
		}
		one.Close()
	}
	// More candidates than a GPU finds.
	head := headOf(cases[len(cases)-1].Rows(r, 1), width)
	head.Split = backend.SplitOutputs
	bars := backend.Bars{Except: 2}
	want := backend.Wanted{TopK: 700}
	if got, alone := results(t, g, x, norm, head, want, bars), results(t, one, x, norm, head, want, bars); len(got.Top) != 700 || !slices.Equal(got.Top, alone.Top) {
		t.Errorf("700 candidates: %d, one GPU %d, or others", len(got.Top), len(alone.Top))
	}
	// Ids that are allowed lie in both parts, or in one.
	vocabulary := cases[len(cases)-1].Vocab
	for _, ids := range [][]int32{{2, 5, 700, 999}, {2, 998}, {3}} {
		want := backend.Wanted{TopK: 3, Allowed: backend.NewIDSet(vocabulary)}
		for _, id := range ids {
			want.Allowed.Add(id)
		}
		if got, alone := results(t, g, x, norm, head, want, bars), results(t, one, x, norm, head, want, bars); got.Argmax != alone.Argmax || !slices.Equal(got.Top, alone.Top) || got.Argmax == 2 || !slices.Contains(ids, got.Argmax) {
			t.Errorf("of %v: %d, %v; one GPU %d, %v", ids, got.Argmax, got.Top, alone.Argmax, alone.Top)
		}
	}
}

// results is that of one row.
func results(t *testing.T, b backend.Backend, x, norm []float32, head backend.Tensor, w backend.Wanted, bars backend.Bars) backend.Result {
	t.Helper()
	row := headOf(nil, 0)
	row.Name, row.Shape, row.Data = "x", []int{1, len(x)}, make([]byte, 4*len(x))
	weight := backend.Tensor{Name: "norm", DType: backend.F32, Shape: []int{len(norm)}, Data: make([]byte, 4*len(norm))}
	for i := range x {
		copyFloat(row.Data[4*i:], x[i])
		copyFloat(weight.Data[4*i:], norm[i])
	}
	table, err := b.Matrix(row)
	if err != nil {
		t.Fatal(err)
	}
	n, err := b.Vector(weight)
	if err != nil {
		t.Fatal(err)
	}
	h, err := b.Matrix(head)
	if err != nil {
		t.Fatal(err)
	}
	p := new(backend.Program)
	buf := p.Buffer(len(x))
	p.Embed(buf, table)
	p.Head(buf, n, 1e-6, h, bars)
	f, err := b.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list, err := run(f, backend.Values{Tokens: []int32{0}, Positions: []int32{0}, Want: []backend.Wanted{w}})
	if err != nil {
		t.Fatal(err)
	}
	return list[0]
}
