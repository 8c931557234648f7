package cuda

import (
	"strings"
	"testing"

	"windrow/backend"
)

// TestBenchAttention runs the benchmark's pieces at their smallest, for their
// launches to be valid: on the emulator its figures mean nothing.
func TestBenchAttention(t *testing.T) {
	var out strings.Builder
	b := &attendBench{d: testDevice(t), w: &out, layers: 2, replays: 1}
	b.open(192, 64)
	a := b.shape(backend.KVInt8)
	b.decode(a, 70, 1, 1)
	b.prefill(a, 33)
	b.rotate(a, 3)
	b.close()
	if b.err != nil || strings.Count(out.String(), "\n") != 3 {
		t.Error(out.String())
	}
}
