package memory

import (
	"runtime"
	"testing"
)

// The machine has more than this process has taken, and less than any has.
func TestTotal(t *testing.T) {
	n := Total()
	switch runtime.GOOS {
	case "linux", "darwin", "windows":
	default:
		t.Skip("nobody says how much memory there is on " + runtime.GOOS)
	}
	if n < 64<<20 || n > 1<<50 {
		t.Errorf("%d bytes of memory", n)
	}
}
