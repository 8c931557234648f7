package quant

import (
	"fmt"
	"math"
	"testing"

	"windrow/backend"
)

// unpackable are the types that have Units.
func unpackable() (list []backend.DType) {
	for _, d := range backend.DTypes() {
		if _, ok := UnitsOf(d); ok {
			list = append(list, d)
		}
	}
	return list
}

// A row's numbers, scales and biases are its weights, bit for bit: the products
// are exact, and one sum is rounded as Row rounds it.
func TestUnpackedNumbersAreTheRow(t *testing.T) {
	if n := len(unpackable()); n != 8 {
		t.Fatalf("%d types have units, want 8", n)
	}
	for _, d := range unpackable() {
		sameUnits(t, d, anyBlocks(d, splitMix(d), 4096/d.BlockSize()))
	}
}

func sameUnits(t *testing.T, d backend.DType, data []byte) {
	t.Helper()
	u, _ := UnitsOf(d)
	in := len(data) / d.BlockBytes() * d.BlockSize()
	x := backend.Tensor{Name: "x", DType: d, Shape: []int{1, in}, Data: data}
	want := make([]float32, in)
	Row(want, &x, 0)
	const stride = 3
	for _, raise := range []byte{0, 128 - u.Less} {
		numbers, scales, biases := make([]byte, in+1), make([]float32, stride*in/u.Group), make([]float32, stride*in/u.Group)
		numbers[in] = 77
		if !u.Bias {
			Unpack(d, numbers, scales, nil, stride, data, raise)
		} else {
			Unpack(d, numbers, scales, biases, stride, data, raise)
		}
		if numbers[in] != 77 {
			t.Fatalf("%v: wrote past the row", d)
		}
		for i, w := range want {
			q := int(numbers[i]) - int(raise)
			if q < 0 || q >= 1<<u.Bits {
				t.Fatalf("%v raised by %d: number %d is %d, want %d bits", d, raise, i, q, u.Bits)
			}
			g := i / u.Group * stride
			got := scales[g] * float32(q-int(u.Less))
			if u.Bias {
				got += biases[g]
			}
			if math.Float32bits(got) != math.Float32bits(w) && !(got != got && w != w) && !(got == 0 && w == 0) {
				t.Fatalf("%v raised by %d: element %d is %v, want %v", d, raise, i, got, w)
			}
		}
	}
}

// FuzzUnpack: any bytes come out as Row has them.
func FuzzUnpack(f *testing.F) {
	for _, d := range unpackable() {
		f.Add(uint8(d), anyBlocks(d, splitMix(d), 2))
	}
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		d := backend.DType(kind)
		if _, ok := UnitsOf(d); !ok || len(data) < d.BlockBytes() {
			return
		}
		sameUnits(t, d, data[:len(data)/d.BlockBytes()*d.BlockBytes()])
	})
}

// BenchmarkUnpack reports millions of elements a second, in cache.
func BenchmarkUnpack(b *testing.B) {
	const in = 2048
	for _, d := range unpackable() {
		u, _ := UnitsOf(d)
		data := anyBlocks(d, 1, in/d.BlockSize())
		numbers, scales, biases := make([]byte, in), make([]float32, in/u.Group), make([]float32, in/u.Group)
		row := make([]float32, in)
		x := backend.Tensor{Name: "x", DType: d, Shape: []int{1, in}, Data: data}
		for name, work := range map[string]func(){
			"unpack": func() { Unpack(d, numbers, scales, biases, 1, data, 0) },
			"row":    func() { Row(row, &x, 0) },
		} {
			b.Run(fmt.Sprintf("%v/%s", d, name), func(b *testing.B) {
				for b.Loop() {
					work()
				}
				b.ReportMetric(in*float64(b.N)/b.Elapsed().Seconds()/1e6, "M/s")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
