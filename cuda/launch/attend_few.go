package launch

import (
	"fmt"

	"windrow/backend"
	"windrow/cuda/driver"
)

// Sizes that attend_few_hopper.cu has, too.
const (
	fewAttendBlocks = 8  // of a cluster: each has every eighth unit, and joins every eighth query vector
	fewAttendUnits  = 32 // of a context, at most: a block joins them one after another
	fewAttendRows   = 32 // of a span, at most
)

// fewAttend is how attention goes through kernels/attend_few_hopper.cu: teams of a block, tiles of as
// many query vectors of a KV head and span.
type fewAttend struct {
	teams, tiles int
	kernel       kernel
}

// fewAttendOf is the cut of spans of up to longest rows, in blocks of as many teams as there is shared
// memory for: what teams have, keys and values of rows, the norms' weights, cosines and
// sines, and of each unit and vector to join sums, maximum and weight. ok: of one at least.
func (d *Device) fewAttendOf(a Attention, pairs, longest, chunks int) (f fewAttend, ok bool) {
	vectors, most := longest*a.group(), mostTeams(a.Dim)
	if a.Dim == 256 {
		most = 1
	}
	for f.teams = min(PowerOfTwo(Ceil(vectors, teamQueries)), most); f.teams > 0; f.teams /= 2 {
		f.tiles = Ceil(vectors, teamQueries*f.teams)
		f.kernel = attendKernel(a, f.teams)
		f.kernel.file, f.kernel.name = "attend_few_hopper", fmt.Sprintf("attend_few_%d_%d_c8", a.Dim, f.teams)
		f.kernel.shared += madeRowsShared(a.Dim, pairs, longest) + chunks*(teamQueries*f.teams/fewAttendBlocks)*(4*a.Dim+8)
		if f.kernel.shared <= d.Info.SharedPerBlock-reservedShared {
			return f, true
		}
	}
	return f, false
}

// TakesFew reports whether AttendFew takes spans of up to longest rows: contexts are short, and all
// clusters are at work at once.
func (d *Device) TakesFew(a Attention, pairs, longest, spans, chunks int) bool {
	f, ok := d.fewAttends(a, pairs, longest, chunks)
	if !ok {
		return false
	}
	each := 1 // blocks that a multiprocessor has room for, by registers and shared memory
	if f.teams == 1 && 2*(f.kernel.shared+reservedShared) <= d.Info.SharedPerBlock {
		each = 2
	}
	clusters := f.tiles * a.KVHeads * spans
	switch most := each * d.Info.SMs / fewAttendBlocks; {
	case clusters > most:
		return false
	case clusters <= most*3/4:
		return true
	}
	// Clusters lie in groups of multiprocessors, and do not fill all of them.
	return clusters <= d.activeClusters(f.kernel, fewAttendBlocks, f.teams*attendThreads)
}

// fewAttends is fewAttendOf where there is a kernel of a shape on this device.
func (d *Device) fewAttends(a Attention, pairs, longest, chunks int) (f fewAttend, ok bool) {
	if d.Tuning.Apart || a.KV != backend.KVBF16 || !d.AttendTakes(a) || pairs%2 != 0 || longest > fewAttendRows || chunks > fewAttendUnits || !d.takesTiled() {
		return f, false
	}
	return d.fewAttendOf(a, pairs, longest, chunks)
}

// AttendFew is RotateStore and AttendDecode in one launch, with the same bits, where TakesFew says
// so: q [bucket, QHeads·Dim] f32 (gated: [bucket, QHeads·2·Dim]) and k and v [bucket,
// KVHeads·Dim] are as the projections made them, and stay so. No span may have more than
// longest rows, nor a context of more than chunks · ChunkSlots slots.
func (d *Device) AttendFew(out32, out16, q, k, v driver.Ptr, a Attention, h Rotation, step driver.Ptr, layer, longest, spans, chunks int) {
	f, _ := d.fewAttendOf(a, h.Pairs, longest, chunks)
	d.launch(f.kernel, dim{fewAttendBlocks * f.tiles, a.KVHeads, spans}, f.teams*attendThreads,
		uint64(out32), uint64(out16), uint64(q), uint64(k), uint64(v), flag(a.Gated),
		uint64(h.QNorm), uint64(h.KNorm), f32(h.Eps), uint64(step), uint64(h.Angles), uint64(h.Pairs), uint64(layer), uint64(a.QHeads), uint64(a.KVHeads),
		f32(float32(float64(a.Scale)*log2e)), uint64(longest), uint64(chunks))
}
