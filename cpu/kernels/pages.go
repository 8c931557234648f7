package kernels

import "unsafe"

// pageSlots is the keys of a page.
const PageSlots = 64

// pageAttention is attention of some queries of one KV head over whole pages of
// bf16, in the form in which kv.turned keeps them.
type PageAttention struct {
	Dim, Queries int
	Q            []float32                    // [queries, dim], scaled
	Seen         []int32                      // [queries]: each sees keys [0, seen)
	Pages        []unsafe.Pointer             // 64 keys [64, dim], then the values [dim, 64]
	Out          func(query int) []float32    // where a query's result goes
	Scale        func(x []float32, s float32) // multiplies
}
