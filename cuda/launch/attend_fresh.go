package launch

import (
	"fmt"

	"windrow/backend"
	"windrow/cuda/driver"
)

// freshKernel is the kernel of a shape, with its dynamic shared memory (struct Fresh of
// attend.cu): what a team has, key and value, the norms' weights, cosines and sines.
func freshKernel(a Attention) kernel {
	n := a.Dim
	k := attendKernel(a, 1)
	return kernel{file: k.file, name: fmt.Sprintf("attend_fresh_%d", n), shared: k.shared + 2*2*n + 2*4*n + 4*n}
}

// TakesFresh reports whether AttendFresh takes spans of one row: with query heads for one
// team a KV head, and so few blocks that it matters how long each takes, not how many
// of them fit on a multiprocessor.
func (d *Device) TakesFresh(a Attention, pairs, spans, chunks int) bool {
	if d.Tuning.Apart || a.KV != backend.KVBF16 || !d.AttendTakes(a) || pairs%2 != 0 || a.group() > teamQueries {
		return false
	}
	blocks := a.KVHeads * spans * Ceil(chunks, d.splitOf(a.QHeads, spans, chunks, 1).units)
	return blocks <= 4*d.Info.SMs && freshKernel(a).shared <= d.Info.SharedPerBlock
}

// AttendFresh is RotateStore and AttendDecode of spans of one row in one launch, with the
// same bits, where TakesFresh says so: q [bucket, QHeads·Dim] f32 (gated: [bucket, QHeads·2·Dim]) and k and
// v [bucket, KVHeads·Dim] are as the projections made them, and stay so. PrepareAttend
// comes before it.
func (d *Device) AttendFresh(out32, out16, q, k, v driver.Ptr, a Attention, h Rotation, step driver.Ptr, layer, bucket, spans, chunks int) {
	d.freshBy(d.splitOf(a.QHeads, spans, chunks, 1).units, out32, out16, q, k, v, a, h, step, layer, bucket, spans, chunks)
}

// freshBy is AttendFresh by units a block.
func (d *Device) freshBy(units int, out32, out16, q, k, v driver.Ptr, a Attention, h Rotation, step driver.Ptr, layer, bucket, spans, chunks int) {
	parts, marks := d.partsOf(a, bucket, chunks, units)
	gates := q
	if !a.Gated {
		gates = 0
	}
	d.launch(freshKernel(a), dim{a.KVHeads, parts, spans}, attendThreads,
		uint64(out32), uint64(out16), uint64(q), uint64(k), uint64(v), flag(a.Gated), uint64(d.attendWork), uint64(marks),
		uint64(h.QNorm), uint64(h.KNorm), f32(h.Eps), uint64(step), uint64(h.Angles), uint64(h.Pairs), uint64(layer), uint64(a.QHeads), uint64(a.KVHeads),
		f32(float32(float64(a.Scale)*log2e)), uint64(units), uint64(parts))
	if parts > 1 {
		d.merge(out32, out16, gates, marks, a, step, bucket, units, parts)
	}
}
