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
