package kernels

import (
	"unsafe"

	"github.com/klauspost/cpuid/v2"
)

var readWide = cpuid.CPU.Supports(cpuid.AVX512F)

// ReadLines reads streams × stride bytes at p, 256 bytes of each stream in
// turn, and prefetches ahead bytes before the loads; stride is a multiple of 256.
func ReadLines(p unsafe.Pointer, streams, stride, ahead int) {
	if readWide {
		readLines64(p, streams, stride, ahead)
	} else {
		readLines16(p, streams, stride, ahead)
	}
}

//go:noescape
func readLines64(p unsafe.Pointer, streams, stride, ahead int)

//go:noescape
func readLines16(p unsafe.Pointer, streams, stride, ahead int)
