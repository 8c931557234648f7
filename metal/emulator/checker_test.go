package emulator

import (
	"strings"
	"testing"
)

// faults says what each kernel of testdata/faulty.metal must be reported for, in the
// checked build, and in the others where "any" is set.
var faults = []struct {
	kernel   string
	groups   int
	reported string // alternatives between |; "" for a correct kernel
	any      bool
}{
	{"no_barrier", 1, "race: read|nobody has written", false},
	{"barrier_of_simdgroup", 1, "race: read|nobody has written", false},
	{"barrier_of_other_memory", 1, "race: ", false},
	{"barrier_of_device_memory", 1, "race: read", false},
	{"barrier_of_nothing", 1, "race: read", false},
	{"shuffle_is_no_barrier", 1, "race: read", false},
	{"no_barrier_before_reuse", 1, "race: ", false},
	{"read_past_end", 1, "out of bounds: read of 4 bytes, 0 past the end of 2048 of buffer 0", false},
	{"read_before_begin", 1, "out of bounds: read of 4 bytes, 4 before the first of 2048 of buffer 0", false},
	{"write_past_end", 1, "out of bounds: write", false},
	{"array_overrun", 1, "out of bounds: index 64 of 's", false},
	{"pointer_overrun", 1, "out of bounds: write of 4 bytes, 0 past the end of 256 of s", false},
	{"dynamic_overrun", 1, "past the end of 496 of threadgroup memory 0", false},
	{"uninitialised", 1, "of s, faulty.metal:98, which nobody has written", false},
	{"uninitialised_counter", 1, "nobody has written", false},
	{"divergent_barrier", 1, "divergence: barrier 0 reached by 32 of 128", true},
	{"two_barriers", 1, "divergence: two barriers in one simdgroup", true},
	{"two_barriers_of_simdgroups", 1, "divergence: two barriers in one threadgroup", true},
	{"divergent_sum", 1, "divergence: two operations in one simdgroup", true},
	{"sum_beside_barrier", 1, "divergence: threads of one simdgroup part ways", true},
	{"shuffle_from_exited", 1, "no active lane", true},
	{"misaligned_device", 1, "misaligned", false},
	{"misaligned_vector", 1, "misaligned", false},
	{"misaligned_threadgroup", 1, "misaligned", false},
	{"threadgroups_collide", 2, "race: write", false},
	{"threadgroups_do_not_wait", 2, "race: ", false},
	{"counter_and_plain", 1, "race: write", false},
	{"shift_too_far", 1, "shift by 32", false},
	{"matrix_of_unordered_writes", 1, "race: |nobody has written", false},
	{"matrix_read_without_barrier", 1, "race: read|nobody has written", false},
	{"matrix_transposed_in_place", 1, "race: read|nobody has written", false},
	{"matrix_past_end", 1, "out of bounds: read", false},
	{"matrices_collide", 1, "race: write", false},
	{"matrix_in_a_branch", 1, "divergence: the threads of one simdgroup load, multiply or store different matrices", true},
	{"matrix_of_many_places", 1, "divergence: the threads of one simdgroup load, multiply or store different matrices", true},
	{"product_after_exit", 1, "divergence: matrices are multiplied after threads", true},
	{"too_much_memory", 1, "threadgroup memory over 32 KiB: 32800 bytes with s", true},

	{"ok_barriers", 1, "", true},
	{"ok_device_barrier", 1, "", true},
	{"ok_exited", 1, "", true},
	{"ok_threadgroups", 2, "", true},
	{"ok_counter", 3, "", true},
	{"ok_threadgroup_counter", 1, "", true},
	{"ok_aligned", 1, "", true},
	{"ok_dynamic", 1, "", true},
	{"ok_matrix", 1, "", true},
}

// faultyArgs are the buffers of the kernels of testdata/faulty.metal, farther from each
// other than the checker looks for a neighbour: of two allocations that happen to be next
// to each other, past the end of the one is within the other.
func faultyArgs() []Arg {
	const page = 4096 / 4
	slab := make([]float32, 5*page)
	return []Arg{memory(0, slab[page:page+512]), memory(1, slab[3*page:3*page+128])}
}

// TestChecker wants single faults reported, in any order of execution, and
// correct kernels not.
func TestChecker(t *testing.T) {
	for _, build := range []Build{Plain, Fast, Checked} {
		l := library(t, "faulty.metal", build)
		for _, f := range faults {
			k := kernelOf(t, l, f.kernel)
			for seed := range uint64(3) {
				if build != Checked && (!f.any || seed == 2) {
					continue
				}
				launch := Launch{Groups: [3]int{f.groups, 1, 1}, Threads: [3]int{128, 1, 1}, Args: faultyArgs(), Seed: seed}
				if strings.Contains(f.kernel, "dynamic") {
					launch.Threadgroup = map[int]int{0: 512, 1: 64}
					if f.reported != "" {
						launch.Threadgroup = map[int]int{0: 496}
					}
				}
				err := k.Run(launch)
				if f.reported == "" {
					if err != nil {
						t.Errorf("%s, seed %d: correct, but reported: %v", f.kernel, seed, err)
					}
					continue
				}
				found := false
				for part := range strings.SplitSeq(f.reported, "|") {
					found = found || err != nil && strings.Contains(err.Error(), part)
				}
				if !found {
					t.Errorf("%s, %v, seed %d: reported as %v, want %q", f.kernel, build, seed, err, f.reported)
				} else if seed == 0 && build == Checked {
					t.Log(err)
				}
			}
		}
	}
}

// TestMessageNamesLines wants the source lines of both accesses in a report.
func TestMessageNamesLines(t *testing.T) {
	k := kernelOf(t, library(t, "faulty.metal", Checked), "shuffle_is_no_barrier")
	err := k.Run(Launch{Groups: [3]int{1, 1, 1}, Threads: [3]int{128, 1, 1}, Args: faultyArgs()})
	if err == nil || strings.Count(err.Error(), "faulty.metal:") != 2 {
		t.Errorf("reported as %v, want two places in faulty.metal", err)
	}
}

// TestRefusedLaunches does what a driver refuses or what has no defined result.
func TestRefusedLaunches(t *testing.T) {
	l := library(t, "values.metal", Plain)
	k := kernelOf(t, l, "positions")
	limited := kernelOf(t, l, "limited")
	if limited.MaxThreads() != 64 || k.MaxThreads() != 1024 {
		t.Errorf("most threads are %d and %d, want 64 and 1024", limited.MaxThreads(), k.MaxThreads())
	}
	data := make([]uint32, 4096)
	type params struct{ n, m uint32 }
	good := []Arg{memory(0, data), structure(1, params{1, 2})}
	one := [3]int{1, 1, 1}
	for _, c := range []struct {
		kernel          *Kernel
		groups, threads [3]int
		args            []Arg
		memory          map[int]int
		want            string
	}{
		{k, [3]int{1, 0, 1}, one, good, nil, "a grid of no threadgroups"},
		{k, one, [3]int{32, 0, 1}, good, nil, "0 threads"},
		{k, one, [3]int{32, 33, 1}, good, nil, "1056 threads"},
		{k, [3]int{-1, 1, 1}, one, good, nil, "[-1 1 1]"},
		{limited, one, [3]int{65, 1, 1}, good, nil, "the kernel allows 64"},
		{k, one, one, good[:1], nil, "nothing is bound at index 1"},
		{k, one, one, good[1:], nil, "nothing is bound at index 0"},
		{k, one, one, []Arg{good[0], structure(1, uint32(1))}, nil, "the bytes at index 1 are 4, the kernel's struct has 8"},
		{k, one, one, []Arg{good[0], structure(1, [3]uint32{})}, nil, "the bytes at index 1 are 12, the kernel's struct has 8"},
		{k, one, one, []Arg{good[0], memory(1, data[:1])}, nil, "the buffer at index 1 has 4 bytes, the kernel's struct 8"},
		{k, one, one, []Arg{{Index: 0, Bytes: make([]byte, 64)}, good[1]}, nil, "which the kernel may write"},
		{k, one, one, []Arg{{Index: 0, Pointer: good[0].Pointer, Length: 4, Base: good[1].Pointer}, {Index: 31}}, nil, "index 31"},
		{k, one, one, good, map[int]int{0: 24}, "not a multiple of 16"},
		{k, one, one, good, map[int]int{0: 32 << 10, 1: 16}, "threadgroup memory over 32 KiB"},
		{kernelOf(t, l, "dynamic"), one, one, good, nil, "no threadgroup memory is set at index 3"},
	} {
		err := c.kernel.Run(Launch{Groups: c.groups, Threads: c.threads, Args: c.args, Threadgroup: c.memory})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	if err := k.Run(Launch{Groups: one, Threads: one, Args: good}); err != nil {
		t.Error(err)
	}
}
