package launch

import (
	"os"
	"testing"
)

const (
	byDelta   = "gated DeltaNet"
	byFewRows = "few rows of gated DeltaNet"
	byDecode  = "decode attention bf16"
	byPrefill = "prefill attention bf16"
)

// deltaFaults are mistakes in the kernels of gated DeltaNet, which the self-test shows, or the checked build
// reports.
var deltaFaults = []fault{
	{"a chunk is not waited for", "delta.cu", "copy_wait<STAGES - 2>();", "", byDelta},
	{"a chunk is filled that is in use", "delta.cu", "start(chunk + STAGES - 1);", "start(chunk + STAGES);", byDelta},
	{"warps do not wait for each other", "delta.cu", "sync(); // the chunk is there, and nobody reads the one before", "sync_warp();", byDelta},
	{"rows are read before they are made", "delta.cu", "dependency_wait();\nUNROLL for (u32 i = 0; i + 1 < STAGES; i++) start(i);", "UNROLL for (u32 i = 0; i + 1 < STAGES; i++) start(i);\ndependency_wait();", byDelta},
	{"the state is stored after a row that may be taken back", "delta.cu", "if (item == settled && item < end && !kept)", "if (item == settled) rows(lines, item, item + 1, true), item++;\nif (item == settled + 1 && !kept)", byDelta},
	{"a state that only folds is not stored", "delta.cu", "states.from == states.to && folded == states.settle;", "states.from == states.to;", byDelta},
	{"a fork's state stays where it was read", "delta.cu", "const bool kept = states.from == states.to && folded", "const bool kept = folded", byDelta},
	{"a row's delta is not logged", "delta.cuh", "if (slice < C) *logged = of_own;", "{}", byDelta},
	{"columns are stored in a lane's order", "delta.cuh", "METHOD void store(float *to) {\narrange();", "METHOD void store(float *to) {", byDelta},
	{"a lane gives another column's delta", "delta.cuh", "(slice % C ^ c))); // a lane", "(slice % C ^ (C - 1 - c)))); // a lane", byDelta},
	{"what a row gives is what its key asked", "delta.cuh", "if (slice / C == 1 && before)", "if (slice / C == 0 && before)", byDelta},
	{"the last values of a chunk are not copied", "delta.cu", "if (t < CHUNK * QUADS) copy_async(", "if (t + 1 < CHUNK * QUADS) copy_async(", byDelta},
	{"a row of a chunk's pass is another's", "delta.cu", "from + (u64)(i * PASS) * key_line);", "from + (u64)(i / 2 * PASS) * key_line);", byDelta},
	{"keys are not logged", "delta.cu", "line[e] = from[e];", "{}", byDelta},
	{"rows before are not carried over", "delta.cu", "if (row == span.first && states.from && states.from != states.to)", "if (false)", byDelta},
	{"few rows: logged rows are not waited for", "delta_few_hopper.cu", "load_logged(first);\ncopy_wait<0>();", "load_logged(first);", byFewRows},
	{"few rows: logged rows are replaced before they are folded in", "delta_few_hopper.cu", "sync_group(1, TEAM);\nload_logged(first);", "load_logged(first);", byFewRows},
	{"few rows: keys are logged before other heads have folded in", "delta_few_hopper.cu", "last = atomic_add(count, 1) == group - 1;", "last = atomic_add(count, 1) == 0;", byFewRows},
	{"few rows: the count is not made ready for the next launch", "delta_few_hopper.cu", "if (last) *count = 0;", "", byFewRows},
	{"few rows: who comes last does not see that others have read", "delta_few_hopper.cu", "fence();\nlast =", "last =", byFewRows},
	{"few rows: nobody waits for the cluster to fold in", "delta_few_hopper.cu", "cluster_wait();        // the cluster has folded in", "", byFewRows},
	{"few rows: rows are normed before they are there", "delta_few_hopper.cu", "wait_with(there, 0);", "", byFewRows},
	{"few rows: the keeper does not wait for the team to fold in", "delta_few_hopper.cu", "wait_phase(folded_in, 0);", "", byFewRows},
	{"few rows: others' queries and keys are not waited for", "delta_few_hopper.cu", "if (!alone) wait_with(taken, 0);", "", byFewRows},
	{"few rows: queries are given to blocks that may not have begun", "delta_few_hopper.cu", "cluster_wait(); // all blocks have begun", "", byFewRows},
	{"few rows: what columns give is not waited for", "delta_few_hopper.cu", "sync_group(1, TEAM);\ncluster_wait();", "cluster_wait();", byFewRows},
	{"few rows: queries are made of rows that are not there", "delta_few_hopper.cu", "copy_wait<0>();\n_Pragma(\"nounroll\") for (u32 row = from_row;", "_Pragma(\"nounroll\") for (u32 row = from_row;", byFewRows},
	{"few rows: a fork leaves the rows before behind", "delta_few_hopper.cu", "if (rank + 1 < CONV) r.carry(rank + 1, query), r.carry(rank + 1, key);", "", byFewRows},
	{"few rows: a fork leaves values before behind", "delta_few_hopper.cu", "if (lane / 4 < CONV - 1) r.carry(lane / 4 + 1, channel);", "", byFewRows},
	{"few rows: the first key is not logged", "delta_few_hopper.cu", "if (row < rows && span.base + row >= states.settle) *(f32x4 *)(states.to + place.keys", "if (row < rows && span.base + row > states.settle) *(f32x4 *)(states.to + place.keys", byFewRows},
	{"few rows: the state is not stored", "delta_few_hopper.cu", "if (!kept) y.store(states.to + state);", "", byFewRows},
	{"few rows: values before come to the place of others", "delta_few_hopper.cu", "sync_warp(); // what was there is read before others come to its place", "", byFewRows},
	{"few rows: a block logs another's rows", "delta_few_hopper.cu", "const u32 row = rank + i * BLOCKS;\nif (row < rows && r.kept", "const u32 row = (rank ^ 1) + i * BLOCKS;\nif (row < rows && r.kept", byFewRows},
	{"few rows: gates are not logged", "delta_few_hopper.cu", "* value_heads + head] = both;", "* value_heads + head] = f32x4{};", byFewRows},
	{"rows before are those of the forward", "delta.cu", "if (back >= conv || index < back || index - back < span.base) continue;", "if (back >= conv || index < back) continue;", byDelta},
}

// TestDeltaChecked: the self-test finds nothing wrong in the checked build, where launches
// overlap.
func TestDeltaChecked(t *testing.T) {
	t.Setenv("WINDROW_EMULATED_CC", "9.0")
	t.Setenv("WINDROW_EMULATED_SEED", "3")
	of := []string{byDelta, byFewRows, byDecode, byPrefill}
	if os.Getenv("WINDROW_SLOW") == "" {
		of = of[:2]
		t.Log("left out: attention, minutes on the emulator: set WINDROW_SLOW=1")
	}
	for i, name := range of {
		if err := (fault{by: name}).notice(t, 100+i); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDeltaMutations plants one fault at a time.
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
	for _, f := range deltaFaults {
		text, err := os.ReadFile("../kernels/" + f.file)
		if err == nil {
			_, err = f.plant(string(text))
		}
		if err != nil {
			t.Error(err)
		}
	}
}
