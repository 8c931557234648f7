package quant

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"windrow/backend"
)

// Values of E4M3 from the paper's table (arXiv 2209.05433, table 1).
func TestFloat8(t *testing.T) {
	for b, want := range map[byte]float64{
		0x00: 0, 0x01: 0x1p-9, 0x07: 7 * 0x1p-9, 0x08: 0x1p-6, 0x38: 1, 0x3f: 1.875, 0x7e: 448, 0xfe: -448, 0xb8: -1, 0x81: -0x1p-9,
	} {
		if got := float64(float8[b]); got != want {
			t.Errorf("%#02x is %v, want %v", b, got, want)
		}
	}
	if !math.Signbit(float64(float8[0x80])) || float8[0x80] != 0 {
		t.Errorf("0x80 is %v, want -0", float8[0x80])
	}
	for b, v := range float8 {
		if nan := b&0x7f == 0x7f; (v != v) != nan {
			t.Errorf("%#02x is %v", b, v)
		}
	}
}

func groupedOf(layout Layout, bits, out, in, group int, symmetric, bf16 bool) *Grouped {
	rng := rand.New(rand.NewPCG(uint64(layout), uint64(bits)))
	bytes := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	g := &Grouped{Layout: layout, Bits: bits, Out: out, In: in, Group: group, Symmetric: symmetric, ScalesBF16: bf16,
		Numbers: bytes(out * in * bits / 8), Scales: make([]byte, 2*out*in/group)}
	for i := 0; i < len(g.Scales); i += 2 {
		h := F32ToF16(rng.Float32() / 64)
		if bf16 {
			h = F32ToBF16(rng.Float32()/64 + 1e-4)
		}
		g.Scales[i], g.Scales[i+1] = byte(h), byte(h>>8)
	}
	if !symmetric {
		g.Zeros = bytes(out * in / group * bits / 8)
	}
	return g
}

// Groups of any multiple of 32 become affine groups of at most 128, each with the
// scale of its own: weights are (q − middle)·scale, element by element.
func TestGroupedLengths(t *testing.T) {
	const out, in = 8, 768
	for length, want := range map[int]int{32: 32, 64: 64, 96: 32, 128: 128, 192: 64, 256: 128, 384: 128, 768: 128} {
		for _, bits := range []int{4, 8} {
			g := groupedOf(LayoutRows, bits, out, in, length, true, true)
			dt, group, err := g.Target()
			if err != nil || group != want {
				t.Errorf("%d bits in groups of %d: groups of %d, want %d: %v", bits, length, group, want, err)
				continue
			}
			w := backend.Tensor{Name: "w", DType: dt, Shape: []int{out, in}, Group: group}.Allocated()
			if err := g.Convert(&w, 0, out); err != nil {
				t.Fatal(err)
			}
			if err := w.Check(); err != nil {
				t.Fatal(err)
			}
			row := make([]float32, in)
			for o := range out {
				Row(row, &w, o)
				for i, v := range row {
					bit := (o*in + i) * bits
					q := int(g.Numbers[bit/8]) >> (bit % 8) & (1<<bits - 1)
					at := 2 * (o*(in/length) + i/length)
					scale := BF16ToF32(uint16(g.Scales[at]) | uint16(g.Scales[at+1])<<8)
					if want := float32(q-(1<<(bits-1))) * scale; v != want {
						t.Fatalf("%d bits in groups of %d: output %d, input %d is %v, want %v", bits, length, o, i, v, want)
					}
				}
			}
		}
	}
}

// BenchmarkGrouped reports millions of weights a second, on one core.
func BenchmarkGrouped(b *testing.B) {
	const out, in = 1024, 4096
	for _, c := range []struct {
		name      string
		layout    Layout
		symmetric bool
	}{{"awq", LayoutAWQ, false}, {"gptq", LayoutGPTQ, true}, {"gptq zeros", LayoutGPTQ, false}, {"rows", LayoutRows, true}} {
		g := groupedOf(c.layout, 4, out, in, 128, c.symmetric, false)
		dt, group, err := g.Target()
		if err != nil {
			b.Fatal(err)
		}
		t := backend.Tensor{Name: "w", DType: dt, Shape: []int{out, in}, Group: group}.Allocated()
		b.Run(fmt.Sprintf("%s to %v", c.name, dt), func(b *testing.B) {
			for b.Loop() {
				for o := 0; o < out; o += 128 {
					if err := g.Convert(&t, o, o+128); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(out*in*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mweights/s")
		})
	}
}

// BenchmarkFloat8 reports millions of weights a second, on one core.
func BenchmarkFloat8(b *testing.B) {
	g := groupedOf(LayoutRows, 8, 1, 4096, 128, true, false)
	scales, dst := make([]byte, 4*32), make([]float32, 4096)
	for b.Loop() {
		Float8ToF32(dst, g.Numbers, scales, 128)
	}
	b.ReportMetric(4096*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mweights/s")
}
