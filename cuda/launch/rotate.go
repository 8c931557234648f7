package launch

import (
	"windrow/backend"
	"windrow/cuda/driver"
)

// rotateWarps is the warps of a block of rotate.cu; each takes heads of a row.
const rotateWarps = 8

// Rotation is the shape of RotateStore.
type Rotation struct {
	QHeads, KVHeads, Dim int  // dim is even, at most 256
	Gated                bool // behind each head of q lies as much of a gate, which stays
	Pairs                int  // at most dim/2, the others stay
	Angles               Table
	QNorm, KNorm         driver.Ptr // [dim] f32; 0: no norm
	Eps                  float32
	KV                   backend.KVType
	Layers               int
	// NarrowOnly leaves q in f32 as it was: only its bf16 form is wanted.
	NarrowOnly bool
}

// headStride is how far apart heads of queries lie.
func headStride(dim int, gated bool) int {
	if gated {
		return 2 * dim
	}
	return dim
}

// odd reports whether a lane takes one pair of elements at a time: heads that 4 does not divide, or
// odd numbers of pairs.
func (h Rotation) odd() bool { return h.Dim%4 != 0 || h.Pairs%2 != 0 }

// kernel is that whose warps take so many heads.
func (h Rotation) kernel(each int) kernel {
	switch {
	case h.odd():
		return kernel{file: "rotate", name: "rotate_store_odd"}
	case each > 1:
		return kernel{file: "rotate", name: "rotate_store_two"}
	}
	return kernel{file: "rotate", name: "rotate_store"}
}

// warps is how many take those of a row: of queries, of keys, and of values.
func (h Rotation) warps(each int) int { return Ceil(h.QHeads, each) + 2*Ceil(h.KVHeads, each) }

// rotateHeads is how many heads of a row a warp takes: two where those of a head each
// would be more than half of what is at work at once.
func (d *Device) rotateHeads(h Rotation, rows int) int {
	switch {
	case h.odd():
		return 1
	case d.Tuning.rotateHeads > 0:
		return d.Tuning.rotateHeads
	case rows*h.warps(1) > 32*d.Info.SMs:
		return 2
	}
	return 1
}

// RotateStore norms and rotates the step's rows of q [bucket, QHeads·dim] f32 (gated: [bucket, QHeads·2·dim])
// in place, and into qBF16 of the same shape unless that is 0, and stores the
// rows of k (normed and rotated) and v [bucket, KVHeads·dim] in the KV pages.
func (d *Device) RotateStore(q, k, v, qBF16 driver.Ptr, h Rotation, step driver.Ptr, layer, bucket int) {
	each := d.rotateHeads(h, bucket)
	d.launch(h.kernel(each), dim{x: Ceil(bucket*h.warps(each), rotateWarps)}, rotateWarps*32,
		uint64(q), uint64(k), uint64(v), uint64(qBF16), flag(!h.NarrowOnly || qBF16 == 0), uint64(h.QNorm), uint64(h.KNorm), f32(h.Eps),
		uint64(step), uint64(h.Angles.List), uint64(h.Pairs), uint64(layer), uint64(h.QHeads), uint64(h.KVHeads), uint64(h.Dim), uint64(headStride(h.Dim, h.Gated)), uint64(h.KV))
}
