package cuda

import (
	"fmt"

	"windrow/backend"
	"windrow/cuda/driver"
)

// flashRows is the rows of a block of prefill attention.
const flashRows = 128

// flashKernel is the prefill kernel of a shape, with its dynamic shared memory
// (struct Flash of attend_prefill.cu).
func flashKernel(a attention) kernel {
	n, line := a.dim, 2*a.dim+16
	shared := (flashRows + 2*chunkSlots) * line
	if a.kv == backend.KVInt8 {
		groups := (n + backend.KVGroup - 1) / backend.KVGroup
		shared += 2 * chunkSlots * (n + 16 + 4*groups)
	}
	return kernel{file: "attend_prefill", name: fmt.Sprintf("flash_%v_%d", a.kv, n), shared: shared}
}

// attendPrefill is attendDecode for spans of any number of rows, at most
// mostRows, in large tiles: a row's bits depend on its place in them. It needs no
// room.
func (d *device) attendPrefill(out32, out16, q16 driver.Ptr, a attention, step driver.Ptr, layer, bucket, spans, mostRows int) {
	d.launch(flashKernel(a), dim{a.qHeads, (min(mostRows, bucket) + flashRows - 1) / flashRows, spans}, attendThreads,
		uint64(out32), uint64(out16), uint64(q16), uint64(step),
		uint64(layer), uint64(a.qHeads), uint64(a.kvHeads), f32(float32(float64(a.scale)*log2e)))
}
