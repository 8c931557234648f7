//go:build !amd64

package kernels

import (
	"sync/atomic"
	"unsafe"
)

// readSum keeps the compiler from dropping the loads.
var readSum atomic.Uint64

// ReadLines reads streams × stride bytes at p, 256 bytes of each stream in
// turn; stride is a multiple of 256. There is no prefetch.
func ReadLines(p unsafe.Pointer, streams, stride, _ int) {
	words := unsafe.Slice((*uint64)(p), streams*stride/8)
	var a, b, c, d uint64
	for i := 0; i < stride/8; i += 32 {
		for s := range streams {
			for w := words[s*stride/8+i:][:32]; len(w) >= 4; w = w[4:] {
				a ^= w[0]
				b ^= w[1]
				c ^= w[2]
				d ^= w[3]
			}
		}
	}
	if a^b^c^d == 1 {
		readSum.Add(1)
	}
}
