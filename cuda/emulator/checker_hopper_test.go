package emulator_test

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"windrow/cuda/driver"
)

// Kernels of testdata/faulty_hopper.cu: they take the same arguments.
var hopperFaults = []struct {
	kernel   string
	blocks   int
	reported string // by the checked build; "" for a correct kernel
}{
	{"wrong_parity", 1, "copy|what nobody does"},
	{"no_wait_for_copy", 1, "copy"},
	{"freed_before_product", 1, "race: "},
	{"refilled_before_free", 1, "race: |what nobody does"},
	{"too_few_bytes", 1, "what nobody does"},
	{"too_many_bytes", 1, "what nobody does"},
	{"barriers_not_made", 1, "barrier"},
	{"barriers_not_shown", 1, "barrier"},
	{"box_outside", 1, "out of bounds"},
	{"box_off_line", 1, "misaligned"},
	{"descriptor_off_swizzle", 1, "descriptor"},
	{"sums_before_wait", 1, nan},
	{"no_products_fence", 1, "products_fence"},
	{"products_not_committed", 1, "commit"},
	{"warps_part_ways", 1, "divergence"},
	{"stores_not_shown", 1, "proxy_fence"},
	{"copies_not_shown", 1, "proxy_fence"},
	{"bulk_not_waited_for", 1, "copy|nobody has written"},
	{"bulk_off_target", 1, "misaligned"},
	{"bulk_off_source", 1, "misaligned"},
	{"bulk_of_odd_size", 1, "multiples of 16"},
	{"bulk_past_source", 1, "out of bounds"},
	{"bulk_outside", 1, "out of bounds"},
	{"bulk_twice", 1, "an arrival|copy"},
	{"nobody_arrives", 1, "what nobody does"},
	{"sends_not_waited_for_c4", 4, "race: |copy|nobody has written"},
	{"sends_to_own_block_c4", 4, "the block that executes it"},
	{"sends_before_made_c4", 4, "barrier"},
	{"put_not_waited_for_pair", 2, "race: |nobody has written"},
	{"put_not_shown_pair", 2, "race: "},
	{"put_to_ended_pair", 2, "ended"},
	{"arrives_at_ended_pair", 2, "ended"},
	{"freed_by_one_pair", 2, "race: "},
	{"meets_without_fence", 3, "race: read"},
	{"meets_at_wrong_counter", 3, "race: read|race: write"},
	{"meets_one_thread", 3, "race: read|race: write"},
	{"met_not_shown", 3, "proxy_fence_global"},
	{"met_not_looked_for", 3, "proxy_fence_global"},
	{"met_without_fence", 3, "race: read"},
	{"boxes_not_shown", 3, "proxy_fence_global"},
	{"boxes_not_looked_for", 3, "proxy_fence_global"},
	{"boxes_without_fence", 3, "race: read"},
	{"ok_meets", 7, "what nobody does"}, // the device has room for 6 at once

	{"ok_ring", 1, ""},
	{"ok_ring", 3, ""},
	{"ok_stores", 1, ""},
	{"ok_copies", 1, ""},
	{"ok_bulk", 1, ""},
	{"ok_sends_c4", 4, ""},
	{"ok_sends_c4", 8, ""},
	{"ok_put_pair", 2, ""},
	{"ok_shared_pair", 4, ""},
	{"ok_meets", 3, ""},
	{"ok_copies_met", 3, ""},
	{"ok_boxes_met", 3, ""},
}

// nan: the fault shows in the results, of any build.
const nan = "NaN"

// TestCheckerHopper is TestChecker for kernels of compute capability 9.0.
func TestCheckerHopper(t *testing.T) {
	t.Setenv("WINDROW_EMULATED_CC", "9.0")
	r := newRig(t, true, "faulty_hopper")
	values := r.buffer(t, 64*256/2)
	ones := make([]byte, 64*256*2)
	for i := range 64 * 256 {
		binary.LittleEndian.PutUint16(ones[2*i:], 0x3f80)
	}
	if err := r.ctx.Upload(values, ones); err != nil {
		t.Fatal(err)
	}
	boxes := map[bool]driver.Ptr{false: r.boxes(t, values, 64), true: r.boxes(t, values, 32)}
	for _, seed := range []string{"", "1", "2"} {
		t.Setenv("WINDROW_EMULATED_SEED", seed)
		for _, f := range hopperFaults {
			matrix := boxes[f.kernel == "ok_shared_pair" || f.kernel == "freed_by_one_pair"]
			size, maps := 8192/4, strings.Contains(f.kernel, "boxes_") // which copy by a map what they wrote
			if maps {
				size = len(ones) / 4
			}
			data, counts, out := r.buffer(t, size), r.buffer(t, 2), r.buffer(t, 128*8)
			if maps {
				matrix = r.boxes(t, data, 64)
				if err := r.ctx.Upload(data, ones); err != nil {
					t.Fatal(err)
				}
			}
			err := r.run(f.kernel, f.blocks, 160, 24<<10, uint64(matrix), uint64(data), uint64(counts), uint64(out))
			got := "nothing"
			if err != nil {
				got = err.Error()
			} else if r.anyNaN(t, out, 128*8) {
				got = nan
			}
			found := f.reported == "" && got == "nothing"
			for _, part := range strings.Split(f.reported, "|") {
				found = found || f.reported != "" && strings.Contains(got, part)
			}
			if !found {
				t.Errorf("%s of %d blocks, seed %q: reported %s, want %q", f.kernel, f.blocks, seed, got, f.reported)
			} else if seed == "" && err != nil {
				t.Log(err)
			}
			for _, p := range []driver.Ptr{data, counts, out} {
				if err := r.ctx.Free(p); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// boxes is a tensor map of 64 rows of 256 numbers, in boxes of some rows.
func (r *rig) boxes(t testing.TB, values driver.Ptr, rows uint32) driver.Ptr {
	t.Helper()
	encoded, err := r.encode(t, mapCall{kind: 9, rank: 2, data: values, size: [2]uint64{256, 64}, pitch: 512, box: [2]uint32{64, rows}, step: [2]uint32{1, 1}, swizzle: 3})
	if err != nil {
		t.Fatal(err)
	}
	at := r.buffer(t, len(encoded)/4)
	if err := r.ctx.Upload(at, encoded[:]); err != nil {
		t.Fatal(err)
	}
	return at
}

func (r *rig) anyNaN(t testing.TB, p driver.Ptr, n int) bool {
	for _, w := range r.words(t, p, n) {
		if math.IsNaN(float64(math.Float32frombits(w))) {
			return true
		}
	}
	return false
}

// TestClusters launches grids that are and are not of whole clusters.
func TestClusters(t *testing.T) {
	t.Setenv("WINDROW_EMULATED_CC", "9.0")
	r := newRig(t, true, "faulty_hopper")
	for blocks, whole := range map[int]bool{3: false, 4: true, 6: false, 8: true} {
		data, counts, out := r.buffer(t, 8192/4), r.buffer(t, 2), r.buffer(t, 128*8)
		err := r.run("ok_sends_c4", blocks, 160, 24<<10, 0, uint64(data), uint64(counts), uint64(out))
		if whole && err != nil || !whole && (err == nil || !strings.Contains(err.Error(), "whole clusters of 4")) {
			t.Errorf("%d blocks: %v", blocks, err)
		}
	}
}
