package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/quant"
)

// hostWeights are experts' matrices in bf16, and where a backend has them.
type hostWeights []backend.Tensor

func newHostWeights(r *rand.Rand, n, out, in int) (list hostWeights) {
	for e := range n {
		t := backend.Tensor{Name: fmt.Sprint("expert ", e), DType: backend.BF16, Shape: []int{out, in}}.Allocated()
		quant.Blocks(t.Data, backend.BF16, vectors.Normals(r, out*in))
		list = append(list, t)
	}
	return list
}

func (w hostWeights) of(t *testing.T, b *Backend) (list []backend.Matrix) {
	t.Helper()
	for _, x := range w {
		m, err := b.Matrix(x)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, m)
	}
	return list
}

// TestHostMixture: rows of a device have the reference's sums, the same bits in forwards of
// any rows, more than go at once among them, and experts that are not there are refused.
func TestHostMixture(t *testing.T) {
	const experts, chosen, width, inner, rows = 6, 2, 32, 64, hostRows + 70
	r := rand.New(rand.NewPCG(9, 4))
	for _, exact := range []bool{true, false} {
		b, err := New(Options{Exact: exact, Threads: 2})
		if err != nil {
			t.Fatal(err)
		}
		gate, up, down := newHostWeights(r, experts, inner, width), newHostWeights(r, experts, inner, width), newHostWeights(r, experts, width, inner)
		m, err := b.Mixture(&backend.Experts{Gate: gate.of(t, b), Up: up.of(t, b), Down: down.of(t, b)}, chosen)
		if err != nil {
			t.Fatal(err)
		}
		h, routing, all := vectors.Normals(r, rows*width), make([]float32, rows*2*chosen), make([]float32, rows*width)
		for i := range rows {
			first := r.IntN(experts - 1)
			copy(routing[i*4:], []float32{float32(first), float32(first + 1 + r.IntN(experts-1-first)), r.Float32(), r.Float32()})
			all[i*width] = 99 // is overwritten
		}
		if err := m.Run(all, h, routing); err != nil {
			t.Fatal(err)
		}
		if exact {
			checkHostRow(t, gate, up, down, h[:width], routing[:4], all[:width])
		}
		for _, n := range []int{1, 7, 16, 300} {
			for from := 0; from+n <= rows; from += 501 {
				some := make([]float32, n*width)
				if err := m.Run(some, h[from*width:(from+n)*width], routing[from*4:(from+n)*4]); err != nil {
					t.Fatal(err)
				}
				if err := vectors.Equal(some, all[from*width:(from+n)*width]); err != nil {
					t.Fatalf("exact %t, %d rows from %d: %v", exact, n, from, err)
				}
			}
		}
		for _, wrong := range []float32{-1, experts, float32(math.NaN()), float32(math.Inf(1))} {
			if m.Run(all[:width], h[:width], []float32{0, wrong, 1, 1}) == nil {
				t.Errorf("expert %v is run", wrong)
			}
		}
		if m.Run(all[:width], h[:width], routing[:8]) == nil || m.Run(all[:width-1], h[:width-1], routing[:4]) == nil {
			t.Error("rows of another shape are taken")
		}
		for _, w := range down { // they stay where they lie
			clear(w.Data)
		}
		if err := m.Run(all, h, routing); err != nil || slices.ContainsFunc(all, func(x float32) bool { return x != 0 }) {
			t.Errorf("weights were copied: %v", err)
		}
		b.Close()
		if m.Run(all[:width], h[:width], routing[:4]) == nil {
			t.Error("a closed backend runs experts")
		}
	}
}

// checkHostRow compares a row with float64.
func checkHostRow(t *testing.T, gate, up, down hostWeights, h, routing, got []float32) {
	t.Helper()
	row := func(w backend.Tensor, o int) []float32 {
		x := make([]float32, w.Shape[1])
		quant.Row(x, &w, o)
		return x
	}
	dot := func(w []float32, x []float64) (sum float64) {
		for i := range w {
			sum += float64(w[i]) * x[i]
		}
		return sum
	}
	x := make([]float64, len(h))
	for i, v := range h {
		x[i] = float64(v)
	}
	want := make([]float64, len(h))
	k := len(routing) / 2
	for i, number := range routing[:k] {
		n := int(number)
		mid := make([]float64, gate[n].Shape[0])
		for o := range mid {
			g := dot(row(gate[n], o), x)
			mid[o] = g / (1 + math.Exp(-g)) * dot(row(up[n], o), x)
		}
		for o := range want {
			want[o] += float64(routing[k+i]) * dot(row(down[n], o), mid)
		}
	}
	for i, w := range want {
		if math.Abs(float64(got[i])-w) > 1e-4*(1+math.Abs(w)) {
			t.Fatalf("element %d is %v, want %v", i, got[i], w)
		}
	}
}
