package launch

import (
	"testing"

	"windrow/backend"
	"windrow/cuda/driver"
)

// TestSpread counts the blocks that a multiprocessor has room for.
func TestSpread(t *testing.T) {
	d := &Device{Info: driver.DeviceInfo{SMs: 132, SharedPerBlock: 227 << 10}}
	for _, c := range []struct{ blocks, static, most, fit int }{
		{1, 0, 2, 1}, {132, 0, 2, 1}, {132, 35328, 3, 1}, {133, 35328, 3, 2}, {264, 0, 3, 2},
	} {
		k := d.spread(kernel{shared: 100}, c.static, c.blocks, c.most)
		if whole := k.shared + c.static; whole > d.Info.SharedPerBlock || (d.Info.SharedPerBlock+reservedShared)/(whole+reservedShared) != c.fit {
			t.Errorf("%+v: blocks of %d bytes", c, whole)
		}
	}
	for _, c := range []struct{ blocks, most int }{{133, 2}, {265, 3}, {9999, 3}} { // as many as they like
		if k := d.spread(kernel{shared: 100}, 0, c.blocks, c.most); k.shared != 100 {
			t.Errorf("%+v: %d bytes", c, k.shared)
		}
	}
	if k := d.spread(kernel{shared: 250 << 10}, 0, 1, 2); k.shared != 250<<10 {
		t.Errorf("less than the kernel has: %d bytes", k.shared)
	}
}

// TestDeltaWide has the shapes of published models on an H200.
func TestDeltaWide(t *testing.T) {
	d := &Device{Info: driver.DeviceInfo{SMs: 132}}
	for _, c := range []struct {
		heads, dim, spans int
		wide              bool
	}{
		{16, 128, 1, false}, // a block of 16 columns a multiprocessor: 2B
		{32, 128, 1, true},  // two: 4B, 9B, 35B, Next
		{48, 128, 1, false}, // three: 27B
		{64, 128, 1, true},  // four: 122B
		{16, 128, 2, true}, {48, 128, 2, true},
		{32, 112, 1, false}, // columns that 32 do not divide
	} {
		x := &Delta{DeltaShape: DeltaShape{backend.StateShape{KeyHeads: 16, ValueHeads: c.heads, KeyDim: 128, ValueDim: c.dim, Conv: 4}}}
		if got := d.deltaWide(deltaStep{Delta: x, spans: c.spans}); got != c.wide {
			t.Errorf("%+v: %t", c, got)
		}
	}
}
