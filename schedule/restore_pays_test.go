package schedule

import (
	"testing"
	"time"
)

// TestRestorePays: pages come from disk where what that took, handing over and waiting for
// forwards among it, is less than computing them; where it was more, it is tried again when
// that is long ago.
func TestRestorePays(t *testing.T) {
	s := &scripted{cost: loadTables(t)["flat"], at: time.Unix(1, 0)}
	x := idle(s, Options{Prefixes: -1, Now: s.now})
	const mega = 1_000_000
	pays := func(want bool, when string) {
		t.Helper()
		if x.pays(mega, 1000) != want {
			t.Errorf("%s: %v, want %v", when, !want, want)
		}
	}
	pays(true, "nothing is known")
	x.rates.row = 1e-4 // 100 ms for all
	pays(true, "nothing came yet")
	came := func(took time.Duration) {
		asked := s.at
		s.at = s.at.Add(took)
		x.came(mega, asked)
	}
	came(90 * time.Millisecond)
	pays(true, "90 ms in place of 100")
	came(150 * time.Millisecond) // 105 on the average
	pays(false, "150 ms once")
	came(50 * time.Millisecond)
	pays(true, "50 ms since")
	came(400 * time.Millisecond)
	pays(false, "400 ms once")
	s.at = s.at.Add(forgets + time.Second)
	pays(true, "that is long ago")
	came(90 * time.Millisecond)
	pays(true, "what was long ago does not count")
}
