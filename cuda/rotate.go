package cuda

import (
	"windrow/backend"
	"windrow/cuda/driver"
)

// Kernels of rotate.cu.
var (
	kernelRotateStore    = kernel{file: "rotate", name: "rotate_store"}
	kernelRotateStoreOdd = kernel{file: "rotate", name: "rotate_store_odd"}
)

// rotateWarps is the warps of a block of rotate.cu; each takes one head of a row.
const rotateWarps = 8

// rotation is the shape of RotateStore.
type rotation struct {
	qHeads, kvHeads, dim int        // dim is even, at most 256
	pairs                int        // at most dim/2, the others stay
	angles               driver.Ptr // of the rows' positions: addresses of a table's blocks
	qNorm, kNorm         driver.Ptr // [dim] f32; 0: no norm
	eps                  float32
	kv                   backend.KVType
	layers               int
	// narrowOnly leaves q in f32 as it was: only its bf16 form is wanted.
	narrowOnly bool
}

// rotateStore norms and rotates the step's rows of q [bucket, qHeads·dim] f32
// in place, and into qBF16 of the same shape unless that is 0, and stores the
// rows of k (normed and rotated) and v [bucket, kvHeads·dim] in the KV pages.
func (d *device) rotateStore(q, k, v, qBF16 driver.Ptr, h rotation, step driver.Ptr, layer, bucket int) {
	which := kernelRotateStore
	if h.dim%4 != 0 || h.pairs%2 != 0 {
		which = kernelRotateStoreOdd
	}
	heads := bucket * (h.qHeads + 2*h.kvHeads)
	d.launch(which, dim{x: (heads + rotateWarps - 1) / rotateWarps}, rotateWarps*32,
		uint64(q), uint64(k), uint64(v), uint64(qBF16), flag(!h.narrowOnly || qBF16 == 0), uint64(h.qNorm), uint64(h.kNorm), f32(h.eps),
		uint64(step), uint64(h.angles), uint64(h.pairs), uint64(layer), uint64(h.qHeads), uint64(h.kvHeads), uint64(h.dim), uint64(h.kv))
}
