package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/backend"
	"windrow/cpu/kernels"
)

// attended runs one forward's attention over random rows; where poison is not
// negative, the values of rows from it on are NaN.
func attended(t *testing.T, b *Backend, store backend.Storage, r *rand.Rand, base, rows, poison int) []float32 {
	t.Helper()
	l := store.Layout().Keys()
	wide, narrow := 2*l.KVHeads*l.HeadDim, l.KVHeads*l.HeadDim
	rot := &rotation{unrotated(l.HeadDim / 2), 1 << 20}
	values := &backend.Values{Positions: make([]int32, rows), Spans: []backend.Span{{Storage: store, Base: base, Rows: rows}}}
	f := &forward{b: b, rows: rows, buffers: make([]buffer, 4), values: values, angles: []angles{{rotation: rot}}}
	q, k, v, out := f.testBuffer(0, wide), f.testBuffer(1, narrow), f.testBuffer(2, narrow), f.testBuffer(3, wide)
	for _, x := range []*buffer{q, k, v} {
		for i := range x.data {
			x.data[i] = float32(r.NormFloat64())
		}
	}
	if poison >= 0 {
		for i := poison * narrow; i < len(v.data); i++ {
			v.data[i] = float32(math.NaN())
		}
	}
	a := &f.angles[0]
	n := rows * rot.Pairs()
	rot.Fill(kernels.Grown(&a.cos, n), kernels.Grown(&a.sin, n), values.Positions)
	if err := store.Reserve(base + rows); err != nil {
		t.Fatal(err)
	}
	heads := &backend.Heads{KVHeads: l.KVHeads, HeadDim: l.HeadDim, Rotation: rot}
	f.rotateStore(q, k, v, heads, 0)
	f.attend(out, q, heads, 0, 0.1)
	return slices.Clone(out.data)
}

// unrotated are angles of 0.
type unrotated int

func (u unrotated) Pairs() int { return int(u) }

func (u unrotated) Fill(cos, sin []float32, _ []int32) {
	for i := range cos {
		cos[i], sin[i] = 1, 0
	}
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
					layout := backend.KeysLayout(1, 2, 64, backend.KVBF16, 256)
					var got [2][]float32
					for i := range got {
						kv, err := b.NewStorage(layout)
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
