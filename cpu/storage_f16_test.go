package cpu

import (
	"math"
	"testing"

	"windrow/backend"
)

// TestKVF16: what is stored in f16 comes back rounded, and never infinite.
func TestKVF16(t *testing.T) {
	b, err := New(Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	made, err := b.NewStorage(backend.KeysLayout(1, 1, 8, backend.KVF16, 70))
	if err != nil {
		t.Fatal(err)
	}
	defer made.Close()
	c := made.(*storage)
	x := []float32{1, -0.1, 65504, 65520, 1e6, float32(math.Inf(-1)), 1e-9, 3}
	want := []float32{1, -0.099975586, 65504, 65504, 65504, -65504, 0, 3}
	if err := c.Reserve(65); err != nil {
		t.Fatal(err)
	}
	for _, index := range []int{63, 64} {
		c.store(b.k, 0, 0, true, index, x)
	}
	got := make([]float32, 16)
	c.load(b.k, got, 0, 0, true, 63, 2)
	for i, y := range got {
		if y != want[i%8] {
			t.Errorf("%v comes back as %v, want %v", x[i%8], y, want[i%8])
		}
	}
}
