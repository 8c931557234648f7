package kernels

import "testing"

// TestGrown: room is kept, and made anew a few times at most whatever the order of sizes.
func TestGrown(t *testing.T) {
	var s []float32
	made, before := 0, 0
	for i := range 1000 {
		n := 64 * (1 + i*617%1000) // from 64 to 64,000 elements
		if got := Grown(&s, n); len(got) != n || cap(s) < n {
			t.Fatalf("%d elements with room for %d, want %d", len(got), cap(s), n)
		}
		if cap(s) != before {
			made, before = made+1, cap(s)
		}
	}
	if made > 11 || cap(s) > 2*64_000 {
		t.Errorf("made %d times, at last for %d: want at most 11 times, of at most twice as much as was wanted", made, cap(s))
	}
	var large []byte
	if Grown(&large, mostRounded+1); cap(large) > mostRounded+mostRounded/8 {
		t.Errorf("room for %d of %d elements", cap(large), mostRounded+1)
	}
	if got := Grown(&large, 0); len(got) != 0 {
		t.Errorf("%d elements, want none", len(got))
	}
}
