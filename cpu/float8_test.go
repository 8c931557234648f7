package cpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/backend"
	"windrow/quant"
)

// float8Matrix is a weight of all codes in turn, NaN left out where finite is
// set, and scales of any size.
func float8Matrix(rng *rand.Rand, out, in, group int, finite bool) *matrix {
	t := backend.Tensor{Name: "w", DType: backend.F8_E4M3, Shape: []int{out, in}, Group: group}.Allocated()
	for i := range t.Data {
		t.Data[i] = byte(i*7 + i/256)
		if finite && t.Data[i]&0x7f == 0x7f {
			t.Data[i] = 0x7e
		}
	}
	for i := 0; i < len(t.Scales); i += 4 {
		s := float32(math.Exp2(rng.Float64()*8 - 12))
		if !finite && i%12 == 8 {
			s = float32(math.Inf(-1))
		}
		binary.LittleEndian.PutUint32(t.Scales[i:], math.Float32bits(s))
	}
	return &matrix{label: "w", dt: t.DType, out: out, in: in, data: t.Data, tensor: t}
}

// Every table's rows of F8_E4M3 have the bits of quant.Row.
func TestFloat8Row(t *testing.T) {
	rng := rand.New(rand.NewPCG(51, 1))
	for _, in := range []int{1, 15, 16, 33, 128, 192, 272, 1000} {
		for _, group := range []int{1, 5, 16, 48, 128, 1000} {
			w := float8Matrix(rng, 9, in, group, false)
			if err := w.tensor.Check(); err != nil {
				t.Fatal(err)
			}
			for o := range w.out {
				sameRow(t, quantCase{backend.F8_E4M3, group}, &backend.Tensor{Name: "w", DType: w.dt, Shape: []int{1, in}, Group: group,
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
	if k, _ := kernelsByName(""); k.quantRow != nil {
		k.quantRow(dst, t, o)
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
		sameRow(t, quantCase{backend.F8_E4M3, group}, &w)
	})
}

// A row's product has the same bits alone, among others, and with the weight in
// f32.
func TestFloat8Invariance(t *testing.T) {
	rng := rand.New(rand.NewPCG(52, 1))
	for _, name := range KernelTables() {
		for _, group := range []int{128, 192} {
			const out, in, rows = 70, 192, 33
			b, err := New(Options{Threads: 1, Kernels: name})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			w := float8Matrix(rng, out, in, group, true)
			m, err := b.Matrix(w.tensor)
			if err != nil {
				t.Fatal(err)
			}
			w = m.(*matrix)
			x := randomRows(rng, rows*in)
			y := runProjector(w.proj, w, x, rows, 0, out, 17)
			wide := backend.Tensor{Name: "w", DType: backend.F32, Shape: []int{out, in}, Data: make([]byte, 4*out*in)}
			for o := range out {
				row := make([]float32, in)
				quant.Row(row, &w.tensor, o)
				quant.Blocks(wide.Data[4*o*in:], backend.F32, row)
			}
			if m, err = b.Matrix(wide); err != nil {
				t.Fatal(err)
			}
			plain := m.(*matrix)
			same := runProjector(plain.proj, plain, x, rows, 0, out, out)
			for r := range rows {
				alone := runProjector(w.proj, w, x[r*in:(r+1)*in], 1, 0, out, out)
				for o := range out {
					if a, b, c := y[r*out+o], alone[o], same[r*out+o]; a != b || a != c {
						t.Fatalf("%s, groups of %d, row %d, output %d: %v, alone %v, in f32 %v", name, group, r, o, a, b, c)
					}
				}
			}
		}
	}
}

// BenchmarkFloat8Row reports millions of elements a second, in cache.
func BenchmarkFloat8Row(b *testing.B) {
	w := float8Matrix(rand.New(rand.NewPCG(53, 1)), 1, 4096, 128, true)
	dst := make([]float32, 4096)
	for b.Loop() {
		decodeFloat8Any(dst, &w.tensor, 0)
	}
	b.ReportMetric(4096*float64(b.N)/b.Elapsed().Seconds()/1e6, "Melem/s")
}

// BenchmarkPublishedProject times a projection of 4,096 to 4,096 in the types
// that published weights become.
func BenchmarkPublishedProject(b *testing.B) {
	const out, in = 4096, 4096
	rng := rand.New(rand.NewPCG(54, 1))
	for _, dt := range []backend.DType{backend.BF16, backend.F8_E4M3, backend.Q8_0, backend.Q4_0} {
		var w backend.Tensor
		switch dt {
		case backend.F8_E4M3:
			w = float8Matrix(rng, out, in, 128, true).tensor
		default:
			w = quant.Encode("w", dt, out, in, 0, randomRows(rng, out*in))
		}
		for _, rows := range []int{1, 16, 512} {
			b.Run(fmt.Sprintf("%v/%d rows", dt, rows), func(b *testing.B) {
				be, err := New(Options{Threads: 2})
				if err != nil {
					b.Fatal(err)
				}
				defer be.Close()
				m, err := be.Matrix(w)
				if err != nil {
					b.Fatal(err)
				}
				x := randomRows(rng, rows*in)
				f := &forward{b: be, rows: rows, buffers: make([]buffer, 2)}
				src := f.testBuffer(0, in)
				f.testBuffer(1, out)
				copy(src.data, x)
				for b.Loop() {
					f.project([]backend.Buffer{1}, src, []backend.Linear{{Weight: m}}, false)
				}
				b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)*1e3, "ms")
			})
		}
	}
}
