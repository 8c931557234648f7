package cpu

import (
	"unsafe"

	"windrow/backend"
	"windrow/cpu/kernels"
)

// scratch is one worker's memory, grown on demand and kept.
type scratch struct {
	kernels kernels.Scratch
	packed  kernels.Packed // of operations that a worker does for its own rows

	out, up []float32 // a chunk of outputs [rows, chunk], and the up half of a gated one

	// Of attention: a tile of keys and then of values; queries and accumulators;
	// scores, running maxima and sums.
	keys, queries, scores []float32
	seen                  []int32          // attendPages: how many keys each query sees
	pages                 []unsafe.Pointer // and the pages

	chosen []int32 // of the router: the best experts so far

	window [backend.MaxConv][]float32 // the rows that a convolution's taps take
	delta  kernels.DeltaRows
	gates  []float64 // of some rows: decays, and β

	_ [128]byte // no cache line is the next worker's, too
}
