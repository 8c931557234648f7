package emulator_test

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"windrow/cuda/driver"
)

// mapCall is what cuTensorMapEncodeTiled is called with.
type mapCall struct {
	offset              uintptr // of the map from an address on 64 bytes
	kind, rank          uintptr
	data                driver.Ptr
	size                [2]uint64
	pitch               uint64
	box, step           [2]uint32
	interleave, swizzle uintptr
}

// encode returns the map's bytes.
func (r *rig) encode(t testing.TB, c mapCall) (m [128]byte, err error) {
	t.Helper()
	f, err := r.ctx.Symbol("cuTensorMapEncodeTiled")
	if err != nil {
		t.Fatal(err)
	}
	room := make([]byte, 256)
	at := room[-uintptr(unsafe.Pointer(&room[0]))%64+c.offset:]
	status := driver.Call(f, uintptr(unsafe.Pointer(&at[0])), c.kind, c.rank, uintptr(c.data), uintptr(unsafe.Pointer(&c.size)), uintptr(unsafe.Pointer(&c.pitch)),
		uintptr(unsafe.Pointer(&c.box)), uintptr(unsafe.Pointer(&c.step)), c.interleave, c.swizzle, 3, 0)
	if status != 0 {
		return m, fmt.Errorf("status %d", status)
	}
	return [128]byte(at), nil
}

// matrix is a call for 100 rows of 72 numbers, in boxes of 32 rows.
func (r *rig) matrix(data driver.Ptr) mapCall {
	return mapCall{kind: 9, rank: 2, data: data, size: [2]uint64{72, 100}, pitch: 144, box: [2]uint32{64, 32}, step: [2]uint32{1, 1}, swizzle: 3}
}

// TestTensorMapRefusals asks for maps as a real driver refuses them, and for
// some that it makes but that the kernels do not use.
func TestTensorMapRefusals(t *testing.T) {
	t.Setenv("WINDROW_EMULATED_CC", "9.0")
	r := newRig(t, false, "faulty")
	data := r.buffer(t, 100*72/2)
	if _, err := r.encode(t, r.matrix(data)); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*mapCall){
		"a map on 32 bytes":           func(c *mapCall) { c.offset = 32 },
		"f16":                         func(c *mapCall) { c.kind = 6 },
		"three dimensions":            func(c *mapCall) { c.rank = 3 },
		"an address on 8 bytes":       func(c *mapCall) { c.data += 8 },
		"no rows":                     func(c *mapCall) { c.size[1] = 0 },
		"2^33 rows":                   func(c *mapCall) { c.size[1] = 1 << 33 },
		"a row too many":              func(c *mapCall) { c.size[1]++ },
		"rows on 8 bytes":             func(c *mapCall) { c.pitch = 136 },
		"rows that overlap":           func(c *mapCall) { c.pitch = 128 },
		"a box of 257 rows":           func(c *mapCall) { c.box[1] = 257 },
		"a box of no rows":            func(c *mapCall) { c.box[1] = 0 },
		"lines of more than 128":      func(c *mapCall) { c.box[0] = 72 },
		"lines of 24 bytes":           func(c *mapCall) { c.box[0] = 12 },
		"every other row":             func(c *mapCall) { c.step[1] = 2 },
		"interleaved":                 func(c *mapCall) { c.interleave = 1 },
		"no swizzle":                  func(c *mapCall) { c.swizzle = 0 },
		"memory that is the host's":   func(c *mapCall) { c.data = driver.Ptr(uintptr(unsafe.Pointer(new([64]byte)))) &^ 15 },
		"the rest of a smaller block": func(c *mapCall) { c.data += 16 },
	} {
		c := r.matrix(data)
		change(&c)
		if _, err := r.encode(t, c); err == nil || !strings.Contains(err.Error(), "status 1") {
			t.Errorf("%s: %v, want status 1", what, err)
		}
	}
	t.Setenv("WINDROW_EMULATED_CC", "8.0")
	if _, err := r.encode(t, r.matrix(data)); err == nil {
		t.Error("a tensor map on 8.0")
	}
}

// TestLeftOut asks for a kernel whose file the library was not built with.
func TestLeftOut(t *testing.T) {
	t.Setenv("WINDROW_EMULATED_CC", "9.0")
	r := newRigWith(t, false, "faulty_hopper")
	if _, err := r.module.Function("ok_ring"); err == nil || !strings.Contains(err.Error(), "Left out: faulty_hopper") {
		t.Errorf("%v, want the file that was left out", err)
	}
}
