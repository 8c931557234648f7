package schedule

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain lets the collector wait: forwards of hundreds of simulated machines leave much
// behind, and it took a third of their time.
func TestMain(m *testing.M) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	os.Exit(m.Run())
}
