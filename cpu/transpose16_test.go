package cpu

import (
	"bytes"
	"testing"
)

// TestTranspose16 compares with element by element, both ways.
func TestTranspose16(t *testing.T) {
	for _, d := range []int{4, 32, 64, 128, 256} {
		src, dst, back := make([]byte, 2*pageSlots*d), make([]byte, 2*pageSlots*d), make([]byte, 2*pageSlots*d)
		for i := range src {
			src[i] = byte(i*7 + i>>8*13)
		}
		transpose16(dst, src, pageSlots, d)
		for slot := range pageSlots {
			for k := range d {
				if x, y := 2*(k*pageSlots+slot), 2*(slot*d+k); dst[x] != src[y] || dst[x+1] != src[y+1] {
					t.Fatalf("head dim %d: slot %d, dimension %d", d, slot, k)
				}
			}
		}
		if transpose16(back, dst, d, pageSlots); !bytes.Equal(back, src) {
			t.Fatalf("head dim %d: not back", d)
		}
	}
}
