package cuda

import (
	"testing"

	"windrow/backend"
	"windrow/backend/vectors"
	"windrow/cuda/emulator"
	"windrow/cuda/launch"
)

// rotatedCase is a forward of so many rows of so many sequences, whose attention norms and rotates.
type rotatedCase struct {
	rows, sequences int
	joined          bool
}

// TestRotationJoined runs forwards of sequences of one row, whose attention norms and
// rotates: they have the bits of those that rotate in a launch of their own, as more rows do.
func TestRotationJoined(t *testing.T) {
	b := openBackend(t, false).(*Backend)
	defer b.Close()
	more := emulator.OnGPU && hopper(b.device) // whose multiprocessors have room for all clusters
	testRotationJoined(t, emulator.Driver(t), []rotatedCase{{1, 1, true}, {1, 3, true}, {2, 2, more}, {16, 1, more}})
}

// TestRotationJoinedHopper does so on an emulated device of compute capability 9.0,
// checked: among the kernels before and after, which may run at the same time. Where all
// clusters of attention have room several rows are joined, too.
func TestRotationJoinedHopper(t *testing.T) {
	library := emulator.CheckedHopper(t)
	testRotationJoined(t, library, []rotatedCase{{1, 2, true}, {2, 2, false}})
	t.Setenv("WINDROW_EMULATED_SMS", "64")
	testRotationJoined(t, library, []rotatedCase{{1, 1, true}, {1, 3, true}, {16, 1, true}, {2, 2, true}, {7, 3, true}})
}

func testRotationJoined(t *testing.T, library string, cases []rotatedCase) {
	forward := func(forced launch.Tuning, rows, sequences int) (logits []float32, joined, apart int) {
		c := newVariantCase(t, library, false, backend.Affine4, 64)
		c.b.device.Tuning = forced
		logits = c.logits(rows, 0, sequences)
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
	for _, z := range cases {
		got, joined, apart := forward(launch.Tuning{}, z.rows, z.sequences)
		if joined+apart != 1 || joined == 1 != z.joined {
			t.Errorf("%+v: %d rotations joined, %d not", z, joined, apart)
		}
		want, joined, apart := forward(launch.Tuning{Apart: true}, z.rows, z.sequences)
		if joined != 0 || apart != 1 {
			t.Errorf("%+v, apart: %d rotations joined, %d not", z, joined, apart)
		}
		if err := vectors.Equal(got, want); err != nil {
			t.Errorf("%+v: %v", z, err)
		}
	}
}
