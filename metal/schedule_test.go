package metal

import (
	"testing"

	"windrow/conformance/scheduletest"
)

// TestSchedule: what a scheduler promises of answers holds on the device.
func TestSchedule(t *testing.T) {
	if testing.Short() {
		t.Skip("a scheduler on the emulator: leave -short out")
	}
	b := openBackend(t, false)
	defer b.Close()
	scheduletest.Run(t, b)
}

// TestHybridSessions: conversations with a hybrid are kept on disk, and go on from there.
func TestHybridSessions(t *testing.T) {
	if testing.Short() {
		t.Skip("a scheduler on the emulator: leave -short out")
	}
	b := openBackend(t, false)
	defer b.Close()
	scheduletest.RunHybrid(t, b)
}
