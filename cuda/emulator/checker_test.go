package emulator_test

import (
	"strings"
	"testing"

	"windrow/cuda/driver"
)

// Arguments of the kernels of testdata/faulty.cu: sizes of buffers in words
// (negative: a number as it is).
var faults = []struct {
	kernel   string
	args     []int
	blocks   int
	shared   int
	reported string // by the checked build; "" for a correct kernel
}{
	{"no_sync", []int{128, 128}, 1, 0, "race: read|nobody has written"},
	{"warp_sync_only", []int{128, 128}, 1, 0, "race: read|nobody has written"},
	{"shuffle_is_no_barrier", []int{128, 128}, 1, 0, "race: read"},
	{"no_sync_before_reuse", []int{256, 128}, 1, 0, "race: "},
	{"barrier_of_wrong_group", []int{128, 128}, 1, 0, "race: read|nobody has written"},
	{"no_copy_wait", []int{512, 128}, 1, 0, "an asynchronous copy"},
	{"copy_wait_of_older", []int{1024, 128}, 1, 0, "an asynchronous copy"},
	{"no_sync_after_copy_wait", []int{512, 128}, 1, 0, "an asynchronous copy|race: read|nobody has written"},
	{"copy_into_read_buffer", []int{1024, 128}, 1, 0, "race: "},
	{"read_past_end", []int{300, 128, -300}, 1, 0, "out of bounds: read"},
	{"write_past_end", []int{128}, 1, 0, "out of bounds: write"},
	{"dynamic_shared_overrun", []int{128}, 1, 512, "out of bounds: write"},
	{"shared_array_overrun", []int{128, -64}, 1, 0, "out of bounds: index 64"},
	{"uninitialised_shared", []int{128}, 1, 0, "nobody has written"},
	{"divergent_barrier", []int{128}, 1, 0, "divergence: barrier 0 reached by 32 of 128"},
	{"two_barriers", []int{128}, 1, 0, "divergence: two barriers"},
	{"divergent_shuffle", []int{128}, 1, 0, "divergence: threads of one warp part ways"},
	{"exited_lanes", []int{128, -16}, 1, 0, "divergence: threads of one warp part ways"},
	{"misaligned_vector", []int{256, 128}, 1, 0, "misaligned"},
	{"misaligned_stream", []int{512, 128}, 1, 0, "misaligned"},
	{"misaligned_copy", []int{512, 128}, 1, 0, "not a multiple of 16"},
	{"blocks_collide", []int{128}, 2, 0, "race: "},
	{"blocks_do_not_wait", []int{128, 128}, 4, 0, "race: read|race: write"},
	{"ticket_without_fence", []int{512, 1, 128}, 4, 0, "race: read"},
	{"no_ticket", []int{512, 1, 128}, 4, 0, "race: read|race: write"},
	{"ticket_then_l1", []int{512, 1, 128}, 4, 0, "race: read"},
	{"fence_before_barrier", []int{512, 1, 128}, 4, 0, "race: read"},
	{"reads_before_wait", []int{128, 128}, 1, 0, "read before dependency_wait()"},
	{"writes_before_wait", []int{128}, 1, 0, "write before dependency_wait()"},
	{"never_waits", []int{128}, 1, 0, "dependency_wait()"},
	{"shift_too_far", []int{128, -32}, 1, 0, "shift by 32"},

	{"ok_ticket", []int{512, 1, 128}, 4, 0, ""},
	{"ok_ticket_l2", []int{512, 1, 128}, 4, 0, ""},
	{"ok_ticket_all_fence", []int{512, 1, 128}, 4, 0, ""},
	{"ok_barriers", []int{256, 128}, 2, 0, "race: write"}, // two blocks, one output
	{"ok_barriers", []int{256, 128}, 1, 0, ""},
	{"ok_copies", []int{2048, 128}, 1, 4096, ""},
	{"ok_unwritten", []int{128}, 1, 0, ""},
	{"ok_atomic", []int{1}, 5, 0, ""},
	{"ok_bytes", []int{32}, 1, 0, ""},
}

// place makes the arguments of a kernel.
func (r *rig) place(t *testing.T, args []int) []uint64 {
	var list []uint64
	for _, a := range args {
		if a < 0 {
			list = append(list, uint64(-a))
			continue
		}
		list = append(list, uint64(r.buffer(t, a)))
	}
	return list
}

// TestChecker plants single faults: each must be reported, in any order of
// execution, and correct kernels must not.
func TestChecker(t *testing.T) {
	r := newRig(t, true, "faulty")
	for _, seed := range []string{"", "1", "2"} {
		t.Setenv("WINDROW_EMULATED_SEED", seed)
		for _, f := range faults {
			args := r.place(t, f.args)
			if strings.HasSuffix(f.kernel, "_before_wait") {
				// The kernel before uses the first buffer.
				set, err := r.module.Function("set")
				if err != nil {
					t.Fatal(err)
				}
				if err := r.stream.Launch(set, config(1, 128, 0), args[:1]); err != nil {
					t.Fatal(err)
				}
			}
			err := r.run(f.kernel, f.blocks, 128, f.shared, args...)
			if f.reported == "" {
				if err != nil {
					t.Errorf("%s, seed %q: correct, but reported: %v", f.kernel, seed, err)
				}
				continue
			}
			if err == nil {
				t.Errorf("%s, seed %q: not reported", f.kernel, seed)
				continue
			}
			found := false
			for _, part := range strings.Split(f.reported, "|") {
				found = found || strings.Contains(err.Error(), part)
			}
			if !found {
				t.Errorf("%s, seed %q: reported as %q, want %q", f.kernel, seed, err, f.reported)
			}
			if seed == "" {
				t.Log(err)
			}
		}
	}
}

// TestOverlapConstants reads a buffer before it waits for the kernel before,
// which nobody writes: that is allowed.
func TestOverlapConstants(t *testing.T) {
	r := newRig(t, true, "faulty")
	in, out := r.buffer(t, 128), r.buffer(t, 128)
	set, err := r.module.Function("set")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.stream.Launch(set, config(1, 128, 0), []uint64{uint64(out)}); err != nil {
		t.Fatal(err)
	}
	if err := r.run("ok_constants_before_wait", 1, 128, 0, uint64(in), uint64(out)); err != nil {
		t.Error(err)
	}
}

// TestOverlapOfTwo reads what the kernel before the last one wrote: that one has ended where
// the last one waited for it before it let the next begin, and may run still otherwise.
func TestOverlapOfTwo(t *testing.T) {
	for kernel, reported := range map[string]bool{"late": false, "early": true} {
		r := newRig(t, true, "faulty")
		in, other, out := r.buffer(t, 128), r.buffer(t, 128), r.buffer(t, 128)
		for i, to := range []driver.Ptr{in, other} {
			f, err := r.module.Function([]string{"early", kernel}[i])
			if err == nil {
				err = r.stream.Launch(f, config(1, 128, 0), []uint64{uint64(to)})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		err := r.run("reads_what_came_before", 1, 128, 0, uint64(in), uint64(out))
		if said := err != nil && strings.Contains(err.Error(), "read before dependency_wait()"); said != reported || err != nil && !said {
			t.Errorf("after %s: %v", kernel, err)
		}
	}
}

// TestMessageNamesLine wants the source lines of both accesses in a report.
func TestMessageNamesLine(t *testing.T) {
	r := newRig(t, true, "faulty")
	err := r.run("shuffle_is_no_barrier", 1, 128, 0, r.place(t, []int{128, 128})...)
	if err == nil || strings.Count(err.Error(), "faulty.cu:") != 2 {
		t.Errorf("reported as %v, want two places in faulty.cu", err)
	}
}
