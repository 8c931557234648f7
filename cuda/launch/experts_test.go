package launch

import (
	"os"
	"testing"
)

// TestExpertsChecked runs the self-tests of routing and experts with races between
// threads and between blocks, bounds and uninitialised reads checked, in two orders of
// threads, on a device whose launches overlap: as they are, no fault is found.
func TestExpertsChecked(t *testing.T) {
	if os.Getenv("WINDROW_SLOW") == "" && os.Getenv("CI") == "" {
		t.Skip("minutes on the emulator: set WINDROW_SLOW=1")
	}
	t.Setenv("WINDROW_EMULATED_CC", "9.0")
	for i, by := range []string{byRoute, byExperts} {
		for j, seed := range []string{"0", "1"} {
			t.Run(by+"/"+seed, func(t *testing.T) {
				t.Setenv("WINDROW_EMULATED_SEED", seed)
				if err := (fault{by: by}).notice(t, 1000+2*i+j); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
