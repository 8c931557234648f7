package metal

import (
	"slices"
	"testing"

	"windrow/rope"
)

// The angles of positions that nobody comes near to take no memory, and those that
// are there are kept while it grows.
func TestRotationGrows(t *testing.T) {
	m := newHostMemory(1 << 30)
	b := overMemory(m, Options{})
	table, err := rope.New(rope.Config{HeadDim: 10, Theta: 1e4})
	if err != nil {
		t.Fatal(err)
	}
	made, err := b.Rotation(table, 5000)
	if err != nil {
		t.Fatal(err)
	}
	r := made.(*rotationTable)
	if len(m.buffers) != 0 || r.Pairs() != 5 || r.Positions() != 5000 {
		t.Errorf("%d buffers, %d pairs, %d positions", len(m.buffers), r.Pairs(), r.Positions())
	}
	for _, c := range []struct{ last, room, filled int }{
		{0, 1024, 64}, {63, 1024, 64}, {64, 1024, 128}, {1023, 1024, 1024}, {1024, 2048, 1088}, {5, 2048, 1088}, {4999, 5000, 5000},
	} {
		if err := r.fill([]int32{0, int32(c.last), 3}); err != nil {
			t.Fatal(err)
		}
		if r.room != c.room || r.filled != c.filled || len(m.buffers) != 1 {
			t.Errorf("position %d: room for %d, %d filled, %d buffers; want %d, %d and one", c.last, r.room, r.filled, len(m.buffers), c.room, c.filled)
		}
		cos, sin, got := make([]float32, 5), make([]float32, 5), make([]float32, 10)
		for at := range c.filled {
			table.Fill(cos, sin, []int32{int32(at)})
			floats(got, m.bytes(r.data.at(40*at), 40))
			if !slices.Equal(got[:5], cos) || !slices.Equal(got[5:], sin) {
				t.Fatalf("position %d has %v, want %v and %v", at, got, cos, sin)
			}
		}
	}
	if err := b.Close(); err != nil || len(m.buffers) != 0 {
		t.Errorf("%d buffers are left, error %v", len(m.buffers), err)
	}
}
