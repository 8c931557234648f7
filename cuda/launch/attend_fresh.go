package launch

import (
	"fmt"
	"slices"

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

// unitKernel is the kernel of a shape whose blocks take one unit, for so many teams a block
// and rows a span, with its dynamic shared memory (struct Unit of attend_unit.cu): it has one
// stage of keys and values.
func unitKernel(a Attention, teams, longest int) kernel {
	k := attendKernel(a, teams)
	return kernel{file: "attend_unit", name: fmt.Sprintf("attend_unit_%d_%d", a.Dim, teams),
		shared: k.shared - 2*ChunkSlots*(2*a.Dim+16) + 2*4*a.Dim + longest*8*unitPairs(a.Dim)}
}

// share is what attend_unit.cu divides by n with (struct Divisor).
func share(n int) uint64 { return uint64(1<<20/n + 1) }

// unitPairs is how many pairs of a head the kernels of one unit rotate.
func unitPairs(dim int) int {
	if dim == 256 {
		return 32 // as Qwen3.5 and Qwen3-Next have them
	}
	return dim / 2
}

// freshForm is how AttendFresh runs: by blocks of one unit for spans of few rows, else by
// those of attend.cu for spans of one.
type freshForm struct {
	split attendSplit
	unit  bool
}

// freshForm is the form for a shape; false: there is none. Those that there are have so few
// blocks that it matters how long each takes, not how many fit on a multiprocessor. One row
// of 8 KV heads and more, of all spans, is faster by attend.cu (an H200, qwen3-8b: 1.90 ms, not
// 1.94), of 2 and 4 by units (qwen3-30b-a3b: 1.71 ms, not 1.82).
func (d *Device) freshForm(a Attention, h Rotation, longest, spans, chunks int) (f freshForm, ok bool) {
	if d.Tuning.Apart || a.KV != backend.KVBF16 || !d.AttendTakes(a) || h.Pairs%2 != 0 {
		return f, false
	}
	f.split = d.splitOf(a.QHeads, spans, chunks, longest)
	f.split.queries = min(f.split.queries, teamQueries*mostTeams(a.Dim))
	parts := Ceil(chunks, f.split.units)
	blocks := a.KVHeads * spans * parts * f.split.blocks(longest, a.group())
	f.unit = f.split.units == 1 && parts > 1 && h.Pairs == unitPairs(a.Dim) && (h.QNorm == 0) == (h.KNorm == 0) && (longest > 1 || a.KVHeads*spans < 8)
	return f, blocks <= 4*d.Info.SMs && (f.unit || longest == 1 && a.group() <= teamQueries && freshKernel(a).shared <= d.Info.SharedPerBlock)
}

// TakesFresh reports whether AttendFresh takes spans of up to longest rows.
func (d *Device) TakesFresh(a Attention, h Rotation, longest, spans, chunks int) bool {
	_, ok := d.freshForm(a, h, longest, spans, chunks)
	return ok
}

// AttendFresh is RotateStore and AttendDecode in one launch, with the same bits, where
// TakesFresh says so: q [bucket, QHeads·Dim] f32 (gated: [bucket, QHeads·2·Dim]) and k and
// v [bucket, KVHeads·Dim] are as the projections made them, and stay so. PrepareAttend
// comes before it.
func (d *Device) AttendFresh(out32, out16, q, k, v driver.Ptr, a Attention, h Rotation, step driver.Ptr, layer, bucket, longest, spans, chunks int) {
	f, _ := d.freshForm(a, h, longest, spans, chunks)
	d.freshBy(f, out32, out16, q, k, v, a, h, step, layer, bucket, longest, spans, chunks)
}

// freshBy is AttendFresh by a form.
func (d *Device) freshBy(f freshForm, out32, out16, q, k, v driver.Ptr, a Attention, h Rotation, step driver.Ptr, layer, bucket, longest, spans, chunks int) {
	units := f.split.units
	parts, marks := d.partsOf(a, bucket, chunks, units)
	gates := q
	if !a.Gated {
		gates = 0
	}
	scale := f32(float32(float64(a.Scale) * log2e))
	in := []uint64{uint64(q), uint64(k), uint64(v), flag(a.Gated), uint64(d.attendWork), uint64(marks), uint64(h.QNorm), uint64(h.KNorm), f32(h.Eps), uint64(step)}
	if f.unit {
		teams, blocks := f.split.teams(longest, a.group()), f.split.blocks(longest, a.group())
		span, positions, pages := stepArrays(step, bucket, spans)
		arrays := []uint64{uint64(span), uint64(positions), uint64(pages), uint64(h.Angles.Near), uint64(h.Angles.Nearest), uint64(h.Angles.List)}
		k := d.spread(unitKernel(a, teams, longest), 0, a.KVHeads*parts*blocks*spans, 2) // of more than one steps are slower so
		d.launch(k, dim{a.KVHeads, parts * blocks, spans}, teams*attendThreads,
			slices.Concat(in, arrays, []uint64{uint64(layer), uint64(a.group()), uint64(a.KVHeads), scale, uint64(longest), uint64(parts), uint64(blocks), share(a.group()), share(blocks)})...)
	} else {
		d.launch(d.spread(freshKernel(a), 0, a.KVHeads*parts*spans, 2), dim{a.KVHeads, parts, spans}, attendThreads,
			slices.Concat([]uint64{uint64(out32), uint64(out16)}, in, []uint64{uint64(h.Angles.List), uint64(h.Pairs), uint64(layer), uint64(a.QHeads), uint64(a.KVHeads), scale, uint64(units), uint64(parts)})...)
	}
	if parts > 1 {
		d.merge(out32, out16, gates, marks, a, step, bucket, units, parts)
	}
}
