package threadtime

import (
	"testing"
	"time"
)

// TestPassed: work counts, and to wait does not, where that is known.
func TestPassed(t *testing.T) {
	m := Start()
	defer m.Stop()
	time.Sleep(200 * time.Millisecond)
	waited := m.Passed()
	if m.known && waited > 100*time.Millisecond {
		t.Errorf("%v of 200 ms asleep count", waited)
	}
	x, began := uint64(1), time.Now()
	for time.Since(began) < 10*time.Second && m.Passed()-waited < 20*time.Millisecond {
		for range 1000 {
			x = x*6364136223846793005 + 1442695040888963407
		}
	}
	if m.Passed()-waited < 20*time.Millisecond {
		t.Errorf("10 s of work count as %v (%d)", m.Passed()-waited, x)
	}
	if _, ok := used(); ok != m.known {
		t.Error("one of two is known")
	}
}
