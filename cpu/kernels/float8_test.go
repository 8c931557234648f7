package kernels

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/backend"
	"windrow/cpu/kernels/kernelstest"
	"windrow/quant"
)

// float8Weight is that of kernelstest.
func float8Weight(rng *rand.Rand, out, in, group int, finite bool) *Weight {
	w := NewWeight(kernelstest.Float8(rng, out, in, group, finite))
	return &w
}

// Every table's rows of F8_E4M3 have the bits of quant.Row.
func TestFloat8Row(t *testing.T) {
	rng := rand.New(rand.NewPCG(51, 1))
	for _, in := range []int{1, 15, 16, 33, 128, 192, 272, 1000} {
		for _, group := range []int{1, 5, 16, 48, 128, 1000} {
			w := float8Weight(rng, 9, in, group, false)
			if err := w.tensor.Check(); err != nil {
				t.Fatal(err)
			}
			for o := range w.out {
				sameRow(t, kernelstest.Format{DType: backend.F8_E4M3, Group: group}, &backend.Tensor{Name: "w", DType: w.dt, Shape: []int{1, in}, Group: group,
					Data: w.data[o*in : (o+1)*in : (o+1)*in], Scales: w.tensor.Outputs(o, 1).Scales})
				got, want := make([]float32, in), make([]float32, in)
				decodeFloat8Any(got, &w.tensor, o)
				quant.Row(want, &w.tensor, o)
				if !slices.EqualFunc(got, want, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b }) {
					t.Fatalf("%d in groups of %d: row %d differs", in, group, o)
				}
			}
		}
	}
}

// decodeFloat8Any is decodeFloat8 by the best table that this machine runs.
func decodeFloat8Any(dst []float32, t *backend.Tensor, o int) {
	if k, _ := ByName(""); k.QuantRow != nil {
		k.QuantRow(dst, t, o)
		return
	}
	quant.Row(dst, t, o)
}

// FuzzFloat8 gives the decoders bytes and scales of any value.
func FuzzFloat8(f *testing.F) {
	f.Add(uint16(16), uint16(16), uint32(0x3f800000), []byte{0x7f, 0xff, 0x80, 1, 0x7e})
	f.Add(uint16(300), uint16(128), uint32(0x7f800000), []byte{0, 0x80})
	f.Add(uint16(47), uint16(5), uint32(1), []byte{0xb8, 0x08, 0x07})
	f.Fuzz(func(t *testing.T, length, groups uint16, scale uint32, bytes []byte) {
		in, group := int(length)%600+1, int(groups)%700+1
		w := backend.Tensor{Name: "w", DType: backend.F8_E4M3, Shape: []int{1, in}, Group: group}.Allocated()
		for i := range w.Data {
			if len(bytes) > 0 {
				w.Data[i] = bytes[i%len(bytes)]
			}
		}
		for i := 0; i < len(w.Scales); i += 4 {
			binary.LittleEndian.PutUint32(w.Scales[i:], scale+uint32(i))
		}
		sameRow(t, kernelstest.Format{DType: backend.F8_E4M3, Group: group}, &w)
	})
}

// A row's product has the same bits alone, among others, and with the weight in
// f32.
func TestFloat8Invariance(t *testing.T) {
	rng := rand.New(rand.NewPCG(52, 1))
	for _, k := range machineTables() {
		for _, group := range []int{128, 192} {
			const out, in, rows = 70, 192, 33
			w := float8Weight(rng, out, in, group, true)
			pr := k.Projector(w, false)
			x := kernelstest.Rows(rng, rows*in)
			y := runProjector(pr, w, x, rows, 0, out, 17)
			wide := backend.Tensor{Name: "w", DType: backend.F32, Shape: []int{out, in}, Data: make([]byte, 4*out*in)}
			for o := range out {
				row := make([]float32, in)
				quant.Row(row, &w.tensor, o)
				quant.Blocks(wide.Data[4*o*in:], backend.F32, row)
			}
			plain := NewWeight(wide)
			same := runProjector(k.Projector(&plain, false), &plain, x, rows, 0, out, out)
			for r := range rows {
				alone := runProjector(pr, w, x[r*in:(r+1)*in], 1, 0, out, out)
				for o := range out {
					if a, b, c := y[r*out+o], alone[o], same[r*out+o]; a != b || a != c {
						t.Fatalf("%s, groups of %d, row %d, output %d: %v, alone %v, in f32 %v", k.Name, group, r, o, a, b, c)
					}
				}
			}
		}
	}
}

// BenchmarkFloat8Row reports millions of elements a second, in cache.
func BenchmarkFloat8Row(b *testing.B) {
	w := float8Weight(rand.New(rand.NewPCG(53, 1)), 1, 4096, 128, true)
	dst := make([]float32, 4096)
	for b.Loop() {
		decodeFloat8Any(dst, &w.tensor, 0)
	}
	b.ReportMetric(4096*float64(b.N)/b.Elapsed().Seconds()/1e6, "Melem/s")
}
