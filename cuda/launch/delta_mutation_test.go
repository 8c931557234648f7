package launch

import (
	"os"
	"testing"
)

const (
	byDelta   = "gated DeltaNet"
	byDecode  = "decode attention bf16"
	byPrefill = "prefill attention bf16"
)

// deltaFaults are mistakes in delta.cu, which the self-test shows, or the checked build
// reports.
var deltaFaults = []fault{
	{"a chunk is not waited for", "delta.cu", "copy_wait<STAGES - 2>();", "", byDelta},
	{"a chunk is filled that is in use", "delta.cu", "start(chunk + STAGES - 1);", "start(chunk + STAGES);", byDelta},
	{"warps do not wait for each other", "delta.cu", "sync(); // the chunk is there, and nobody reads the one before", "sync_warp();", byDelta},
	{"rows are read before they are made", "delta.cu", "dependency_wait();\nUNROLL for (u32 i = 0; i + 1 < STAGES; i++) start(i);", "UNROLL for (u32 i = 0; i + 1 < STAGES; i++) start(i);\ndependency_wait();", byDelta},
	{"the state is stored after a row that may be taken back", "delta.cu", "if (item == settled && item < end && !kept)", "if (item == settled) rows(lines, item, item + 1, true), item++;\nif (item == settled + 1 && !kept)", byDelta},
	{"a state that only folds is not stored", "delta.cu", "states.from == states.to && folded == states.settle;", "states.from == states.to;", byDelta},
	{"a fork's state stays where it was read", "delta.cu", "const bool kept = states.from == states.to && folded", "const bool kept = folded", byDelta},
	{"a row's delta is not logged", "delta.cu", "UNROLL for (u32 c = 0; c < C; c++) logged[c] = delta[c];", "{}", byDelta},
	{"keys are not logged", "delta.cu", "line[e] = from[e];", "{}", byDelta},
	{"rows before are not carried over", "delta.cu", "if (row == span.first && states.from && states.from != states.to)", "if (false)", byDelta},
	{"rows before are those of the forward", "delta.cu", "if (back >= conv || index < back || index - back < span.base) continue;", "if (back >= conv || index < back) continue;", byDelta},
}

// TestDeltaChecked: the self-test finds nothing wrong in the checked build, where launches
// overlap.
func TestDeltaChecked(t *testing.T) {
	t.Setenv("WINDROW_EMULATED_CC", "9.0")
	t.Setenv("WINDROW_EMULATED_SEED", "3")
	of := []string{byDelta, byDecode, byPrefill}
	if os.Getenv("WINDROW_SLOW") == "" {
		of = of[:1]
		t.Log("left out: attention, minutes on the emulator: set WINDROW_SLOW=1")
	}
	for i, name := range of {
		if err := (fault{by: name}).notice(t, 100+i); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDeltaMutations plants one fault at a time in delta.cu.
func TestDeltaMutations(t *testing.T) {
	if os.Getenv("WINDROW_SLOW") == "" {
		t.Skip("minutes on the emulator: set WINDROW_SLOW=1")
	}
	t.Setenv("WINDROW_EMULATED_CC", "9.0")
	for i, f := range deltaFaults {
		t.Run(f.what, func(t *testing.T) {
			if err := f.notice(t, 200+i); err == nil {
				t.Error("not reported")
			} else {
				t.Log(err)
			}
		})
	}
}

// TestDeltaMutationsPlanted: all of them can be planted.
func TestDeltaMutationsPlanted(t *testing.T) {
	text, err := os.ReadFile("../kernels/delta.cu")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range deltaFaults {
		if _, err := f.plant(string(text)); err != nil {
			t.Error(err)
		}
	}
}
