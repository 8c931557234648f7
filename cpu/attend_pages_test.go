package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/backend"
)

// attended runs one forward's attention over random rows; where poison is not
// negative, the values of rows from it on are NaN.
func attended(t *testing.T, b *Backend, kv backend.KV, r *rand.Rand, base, rows, poison int) []float32 {
	t.Helper()
	l := kv.Layout()
	p, err := b.Begin(rows)
	if err != nil {
		t.Fatal(err)
	}
	wide, narrow := 2*l.KVHeads*l.HeadDim, l.KVHeads*l.HeadDim
	q, k, v, out := p.Buffer(wide), p.Buffer(narrow), p.Buffer(narrow), p.Buffer(wide)
	for _, x := range []backend.Buffer{q, k, v} {
		data := x.(*buffer).data
		for i := range data {
			data[i] = float32(r.NormFloat64())
		}
	}
	if poison >= 0 {
		data := v.(*buffer).data
		for i := poison * narrow; i < len(data); i++ {
			data[i] = float32(math.NaN())
		}
	}
	ones := make([]float32, rows*l.HeadDim/2)
	for i := range ones {
		ones[i] = 1
	}
	spans := []backend.Span{{KV: kv, Base: base, Rows: rows}}
	p.RotateStore(q, k, v, backend.Heads{Cos: ones, Sin: make([]float32, len(ones))}, spans, 0)
	p.Attend(out, q, spans, 0, 0.1)
	y := slices.Clone(p.Read(out))
	if err := p.End(); err != nil {
		t.Fatal(err)
	}
	return y
}

// What a cancelled forward left behind reaches nothing, finite or not: weights of
// 0 meet values of 0.
func TestCancelledValuesLeaveNoTrace(t *testing.T) {
	for _, name := range KernelTables() {
		b, err := New(Options{Threads: 1, Kernels: name})
		if err != nil {
			t.Fatal(err)
		}
		for _, base := range []int{0, 50, 64} {
			for _, rows := range []int{1, 20} {
				t.Run(fmt.Sprintf("%s/%d/%d", name, base, rows), func(t *testing.T) {
					layout := backend.KVLayout{Layers: 1, KVHeads: 2, HeadDim: 64, DType: backend.KVBF16, Slots: 256}
					var got [2][]float32
					for i := range got {
						kv, err := b.NewKV(layout)
						if err != nil {
							t.Fatal(err)
						}
						r := rand.New(rand.NewPCG(1, 2))
						if base > 0 {
							attended(t, b, kv, r, 0, base, -1)
						}
						if i == 1 {
							attended(t, b, kv, rand.New(rand.NewPCG(3, 4)), base, 90, 0)
						}
						got[i] = attended(t, b, kv, r, base, rows, -1)
						kv.Close()
					}
					if !slices.Equal(got[0], got[1]) {
						t.Error("a cancelled forward changes the next one")
					}
				})
			}
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
