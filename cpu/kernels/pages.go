package kernels

import "unsafe"

// PageSlots is the keys, and the values, of a page.
const PageSlots = 64

// PageAttention is attention of some queries of one KV head over whole pages of bf16
// whose values are transposed. Query i sees the first Seen[i] keys; a value that it
// does not see weighs exactly 0, so those of later rows must be finite.
type PageAttention struct {
	Dim, Queries int              // the head dimension, a multiple of 32, and how many queries
	Q            []float32        // [Queries, Dim], scaled
	Seen         []int32          // [Queries], each 1 to 64·len(Pages)
	Pages        []unsafe.Pointer // each to 64 keys [64, Dim] and then the values [Dim, 64]

	// Out is where a query's result [Dim] goes.
	Out func(query int) []float32
	// Scale sets x *= s: the table's.
	Scale func(x []float32, s float32)
}
