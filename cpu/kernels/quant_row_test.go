package kernels

import (
	"math"
	"math/rand/v2"
	"testing"

	"windrow/backend"
	"windrow/cpu/kernels/kernelstest"
	"windrow/quant"
)

// rowOf is a weight of one row, cut out of bytes of any value: out of the end
// come scales and biases of affine types.
func rowOf(c kernelstest.Format, in int, bytes []byte, take func(n int) []byte) backend.Tensor {
	t := backend.Tensor{Name: "w", DType: c.DType, Shape: []int{1, in}, Group: c.Group}
	t.Data = take(c.DType.RowBytes(in))
	if c.DType.Affine() {
		t.Scales, t.Biases = take(2*in/c.Group), take(2*in/c.Group)
	}
	at := 0
	for _, part := range [][]byte{t.Data, t.Scales, t.Biases} {
		for i := range part {
			if len(bytes) > 0 {
				part[i] = bytes[at%len(bytes)]
			}
			at++
		}
	}
	return t
}

func anywhere(n int) []byte { return make([]byte, n) }

// sameRow compares every table's decoder with quant.Row, bit for bit.
func sameRow(t *testing.T, c kernelstest.Format, w *backend.Tensor) {
	t.Helper()
	in := w.Shape[1]
	got, want := make([]float32, in+1), make([]float32, in)
	quant.Row(want, w, 0)
	for _, k := range machineTables() {
		name, row := k.Name, k.QuantRow
		if row == nil {
			continue
		}
		got[in] = 7
		row(got[:in], w, 0)
		for i, v := range want {
			if math.Float32bits(got[i]) != math.Float32bits(v) && !(got[i] != got[i] && v != v) {
				t.Fatalf("%s %v: element %d of %d is %v, want %v", name, c, i, in, got[i], v)
			}
		}
		if got[in] != 7 {
			t.Fatalf("%s %v: written beyond %d elements", name, c, in)
		}
	}
}

func TestQuantRow(t *testing.T) {
	for _, c := range kernelstest.Formats {
		for _, in := range []int{256, 512, 1280} {
			for seed := range uint64(20) {
				rng := rand.New(rand.NewPCG(31, seed))
				bytes := make([]byte, 1283)
				for i := range bytes {
					bytes[i] = byte(rng.Uint32())
				}
				w := rowOf(c, in, bytes, anywhere)
				sameRow(t, c, &w)
				w = quantMatrix(rng, c, 1, in, int(seed%5)).tensor
				sameRow(t, c, &w)
			}
		}
		// Rows that are no multiple of 256.
		if c.DType.BlockSize() <= 32 {
			in := 3 * max(c.Group, 32)
			w := quantMatrix(rand.New(rand.NewPCG(32, 1)), c, 1, in, 1).tensor
			sameRow(t, c, &w)
		}
	}
}

// FuzzQuantRow gives the decoders bytes of any value: infinite scales, NaN, zeros
// of both signs.
func FuzzQuantRow(f *testing.F) {
	for i := range kernelstest.Formats {
		f.Add(uint8(i), uint8(1), []byte{0, 0x80, 0xff, 0x7f, 0, 0x7c, 1, 0xfc})
		f.Add(uint8(i), uint8(4), []byte{0})
		f.Add(uint8(i), uint8(2), []byte{0x80, 0x3f, 0x12, 0xbc, 0xee})
	}
	f.Fuzz(func(t *testing.T, format, blocks uint8, bytes []byte) {
		c := kernelstest.Formats[int(format)%len(kernelstest.Formats)]
		in := (int(blocks)%8 + 1) * max(c.DType.BlockSize(), c.Group, 32)
		w := rowOf(c, in, bytes, anywhere)
		sameRow(t, c, &w)
	})
}

// BenchmarkQuantRow reports millions of elements a second, in cache.
func BenchmarkQuantRow(b *testing.B) {
	for _, c := range kernelstest.Formats {
		w := quantMatrix(rand.New(rand.NewPCG(33, 1)), c, 1, 2048, 0).tensor
		dst := make([]float32, 2048)
		rows := map[string]func([]float32, *backend.Tensor, int){"go": quant.Row}
		for _, k := range machineTables() {
			if k.QuantRow != nil {
				rows[k.Name] = k.QuantRow
			}
		}
		for name, row := range rows {
			b.Run(c.String()+"/"+name, func(b *testing.B) {
				for b.Loop() {
					row(dst, &w, 0)
				}
				b.ReportMetric(2048*float64(b.N)/b.Elapsed().Seconds()/1e6, "Melem/s")
			})
		}
	}
}
