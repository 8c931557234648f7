package emulator

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"windrow/quant"
)

var builds = []Build{Plain, Fast, Checked}

func TestPositions(t *testing.T) {
	k := kernelOf(t, library(t, "values.metal", Plain), "positions")
	groups, threads := [3]int{2, 3, 2}, [3]int{5, 4, 2}
	for seed := range uint64(2) {
		out := make([]uint32, 12*40)
		if err := k.Run(Launch{Groups: groups, Threads: threads, Args: []Arg{memory(0, out), structure(1, [2]uint32{})}, Seed: seed}); err != nil {
			t.Fatal(err)
		}
		for i, got := range out {
			index, group := i%40, i/40
			at := func(i int) int {
				return [3]int{index % 5, index / 5 % 4, index / 20}[i] + threads[i]*[3]int{group % 2, group / 2 % 3, group / 6}[i]
			}
			if want := at(0) + 10*at(1) + 100*at(2) + 1000*(index%32) + 100000*(index/32); int(got) != want {
				t.Fatalf("seed %d: thread %d of threadgroup %d has %d, want %d", seed, index, group, got, want)
			}
		}
	}
}

func TestSimdgroupOperations(t *testing.T) {
	in := make([]float32, 32)
	for i := range in {
		in[i] = float32((i*5)%32) / 4
	}
	sum, most, least, product := 0.0, 0.0, math.Inf(1), 1.0
	votes := 0
	for i, v := range in {
		sum, most, least, product = sum+float64(v), max(most, float64(v)), min(least, float64(v)), product*float64(1+v/64)
		if v > 3 && i < 16 {
			votes |= 1 << i
		}
	}
	at := func(i int) float64 {
		if i < 0 || i > 31 {
			return -1
		}
		return float64(in[i])
	}
	prefix := func(n int) (s float64) {
		for i := range n {
			s += at(i)
		}
		return s
	}
	operations := []struct {
		name string
		want func(lane int) float64
	}{
		{"sum", func(int) float64 { return sum }},
		{"max", func(int) float64 { return most }},
		{"min", func(int) float64 { return least }},
		{"product", func(int) float64 { return product }},
		{"shuffle", func(l int) float64 { return at(l * 7 % 32) }},
		{"shuffle_xor", func(l int) float64 { return at(l ^ 5) }},
		{"fill_down", func(l int) float64 { return at(l + 3) }},
		{"fill_up", func(l int) float64 { return at(l - 3) }},
		{"broadcast", func(int) float64 { return at(9) }},
		{"broadcast_first", func(int) float64 { return at(0) }},
		{"inclusive sum", func(l int) float64 { return prefix(l + 1) }},
		{"exclusive sum", func(l int) float64 { return prefix(l) }},
		{"ballot", func(int) float64 { return float64(votes) }},
		{"all, any", func(int) float64 { return 2 }},
		{"quad_sum", func(l int) float64 { q := l &^ 3; return at(q) + at(q+1) + at(q+2) + at(q+3) }},
		{"quad_max", func(l int) float64 { q := l &^ 3; return max(at(q), at(q+1), at(q+2), at(q+3)) }},
		{"quad_shuffle_xor", func(l int) float64 { return at(l ^ 1) }},
		{"quad_broadcast", func(l int) float64 { return at(l&^3 + 2) }},
		{"sum of int", func(int) float64 { return 496 }},
		{"max of uint, first", func(l int) float64 {
			if l == 0 {
				return 131
			}
			return 31
		}},
	}
	for _, build := range builds {
		k := kernelOf(t, library(t, "values.metal", build), "simd_values")
		for seed := range uint64(2) {
			out := make([]float32, 32*len(operations))
			if err := k.Run(Launch{Groups: [3]int{1, 1, 1}, Threads: [3]int{32, 1, 1}, Args: []Arg{memory(0, in), memory(1, out)}, Seed: seed}); err != nil {
				t.Fatal(err)
			}
			for i, o := range operations {
				for lane := range 32 {
					if got, want := float64(out[32*i+lane]), o.want(lane); math.Abs(got-want) > 1e-5*math.Abs(want) {
						t.Errorf("%v, seed %d: %s gives lane %d %g, want %g", build, seed, o.name, lane, got, want)
					}
				}
			}
		}
	}
}

func TestMatrices(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	numbers := func() []float32 {
		v := make([]float32, 16*20)
		for i := range v {
			v[i] = quant.BF16ToF32(quant.F32ToBF16(float32(r.IntN(65)-32) / 16)) // exact in each type
		}
		return v
	}
	a, b, c := numbers(), numbers(), numbers()
	halves := func(v []float32, convert func(float32) uint16) []uint16 {
		h := make([]uint16, len(v))
		for i, x := range v {
			h[i] = convert(x)
		}
		return h
	}
	for _, build := range builds {
		l := library(t, "values.metal", build)
		for _, kind := range []string{"f32", "f16", "bf16"} {
			operand := func(index int, v []float32) Arg {
				switch kind {
				case "f16":
					return memory(index, halves(v, quant.F32ToF16))
				case "bf16":
					return memory(index, halves(v, quant.F32ToBF16))
				}
				return memory(index, v)
			}
			out, elements := make([]float32, 512), make([]float32, 64)
			err := kernelOf(t, l, "matrix_"+kind).Run(Launch{
				Groups: [3]int{1, 1, 1}, Threads: [3]int{32, 1, 1}, Seed: 1,
				Args: []Arg{operand(0, a), operand(1, b), memory(2, c), memory(3, out), memory(4, elements)},
			})
			if err != nil {
				t.Fatal(err)
			}
			check := func(what string, got, want float32) {
				t.Helper()
				if got != want {
					t.Errorf("%v, %s: %s is %g, want %g", build, kind, what, got, want)
				}
			}
			at := func(v []float32, row, column int) float32 { return v[(row+3)*20+column+4] }
			for lane := range 32 {
				row, column := lane/16*4+lane/2%4, lane/8%2*4+lane%2*2
				for e := range 2 {
					check("an element", elements[2*lane+e], at(out, row, column+e))
					check("an element that was set", out[384+row*8+column+e], 2*float32(lane)+float32(e))
				}
			}
			for row := range 8 {
				for column := range 8 {
					var product float32
					for i := range 8 {
						product += at(a, row, i) * at(b, column, i)
					}
					where := fmt.Sprintf("row %d, column %d", row, column)
					check(where, at(out, row, column), product+at(c, row, column))
					check(where+" transposed", out[320+column*8+row], product)
				}
			}
		}
	}
}

func TestVectors(t *testing.T) {
	in := []float32{0.75, -2.5, 3.3333333, 1.00390625}
	f16 := func(f float32) float32 { return quant.F16ToF32(quant.F32ToF16(f)) }
	bf16 := func(f float32) float32 { return quant.BF16ToF32(quant.F32ToBF16(f)) }
	want := []float32{
		0, -2, 3, 1,
		f16(in[0]), f16(in[1]), f16(in[2]), f16(in[3]),
		bf16(in[0]), bf16(in[1]), bf16(in[2]), bf16(in[3]),
		1, 0, 6, 5,
		in[1] * in[3], in[1] * in[2], in[1] * in[1], in[1] * in[0],
		in[2],
		float32(math.Float32bits(in[0]) >> 16),
		2,
		in[0] + 2*in[1] + 3*in[2] + 4*in[3],
		f16(in[0]),
		1.75,
		0.6,
		bf16(in[3]),
		2,
		in[0]*in[1] + in[2] + 0.5 + 8 + 3 + 1,
	}
	for _, build := range builds {
		out := make([]float32, len(want))
		err := kernelOf(t, library(t, "values.metal", build), "vector_values").Run(Launch{Groups: [3]int{1, 1, 1}, Threads: [3]int{1, 1, 1}, Args: []Arg{memory(0, in), memory(1, out)}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			if math.Abs(float64(out[i]-want[i])) > 1e-6*math.Abs(float64(want[i])) {
				t.Errorf("%v: result %d is %g, want %g", build, i, out[i], want[i])
			}
		}
	}
}

func TestBindings(t *testing.T) {
	l := library(t, "values.metal", Plain)
	for kernel, want := range map[string]string{
		"positions":   "[{0 0 4 true} {1 1 8 false}]",
		"dynamic":     "[{0 0 4 true} {3 2 4 true}]",
		"matrix_bf16": "[{0 0 2 false} {1 0 2 false} {2 0 4 false} {3 0 4 true} {4 0 4 true}]",
	} {
		if got := fmt.Sprint(kernelOf(t, l, kernel).Bindings()); got != want {
			t.Errorf("%s has the bindings %s, want %s", kernel, got, want)
		}
	}
	if _, err := l.Kernel("matrix_values"); err == nil {
		t.Error("the name of a template is a kernel")
	}
}
