package kernels

import (
	"testing"
	"unsafe"
)

func TestDotsCallOffsets(t *testing.T) {
	var c dotsCall
	sameOffsets(t, "quant_dots_arm64.h", map[string]uintptr{
		"C": unsafe.Offsetof(c.c), "BUF": unsafe.Offsetof(c.buf), "W": unsafe.Offsetof(c.w), "BIAS": unsafe.Offsetof(c.bias),
		"X": unsafe.Offsetof(c.x), "XSTRIDE": unsafe.Offsetof(c.xstride), "SX": unsafe.Offsetof(c.sx), "XS": unsafe.Offsetof(c.xs),
		"XC": unsafe.Offsetof(c.zeroSums), "SSTRIDE": unsafe.Offsetof(c.sstride), "GROUPS": unsafe.Offsetof(c.groups),
		"UNITS": unsafe.Offsetof(c.units), "KIND": unsafe.Offsetof(c.kind),
	})
}
