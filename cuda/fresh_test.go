package cuda

import (
	"testing"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/cuda/emulator"
	"windrow/cuda/launch"
)

// TestRotationJoined runs forwards of sequences of few rows, whose attention norms and
// rotates: they have the bits of those that rotate in a launch of their own, as several rows
// at the beginning of a context do.
func TestRotationJoined(t *testing.T) { testRotationJoined(t, emulator.Driver(t)) }

// TestRotationJoinedHopper does so on an emulated device of compute capability 9.0,
// checked: among the kernels before and after, which may run at the same time.
func TestRotationJoinedHopper(t *testing.T) { testRotationJoined(t, emulator.CheckedHopper(t)) }

func testRotationJoined(t *testing.T, library string) {
	forward := func(forced launch.Tuning, base, rows, sequences int) (logits []float32, joined, apart int) {
		c := newVariantCase(t, library, false, backend.Affine4, 64)
		c.b.device.Tuning = forced
		logits = c.logitsAt(base, rows, 0, sequences)
		c.f.now.reset()
		if err := c.f.now.make(c.f.rest(false)); err != nil {
			t.Fatal(err)
		}
		for i := range c.f.now.actions {
			switch a := &c.f.now.actions[i]; {
			case a.kind == opRotate:
				apart++
			case a.kind == opAttend && a.angles != nil:
				joined++
			}
		}
		return logits, joined, apart
	}
	for _, z := range []struct{ base, rows, sequences, joined int }{
		{0, 1, 1, 1}, {0, 1, 3, 1}, {0, 2, 2, 0}, // by one block a KV head and span
		{75, 1, 1, 1}, {75, 2, 2, 1}, {120, 16, 1, 1}, {140, 7, 2, 1}, {250, 32, 1, 1}, // by units
	} {
		got, joined, apart := forward(launch.Tuning{}, z.base, z.rows, z.sequences)
		if joined != z.joined || apart != 1-z.joined {
			t.Errorf("%+v: %d rotations joined, %d not", z, joined, apart)
		}
		want, joined, apart := forward(launch.Tuning{Apart: true}, z.base, z.rows, z.sequences)
		if joined != 0 || apart != 1 {
			t.Errorf("%+v, apart: %d rotations joined, %d not", z, joined, apart)
		}
		if err := vectors.Equal(got, want); err != nil {
			t.Errorf("%+v: %v", z, err)
		}
	}
}
