package launch

import (
	"fmt"
	"slices"

	"windrow/backend"
	"windrow/cuda/driver"
)

// Attention is the shape of an attention over one sequence's layer.
type Attention struct {
	QHeads, KVHeads, Dim int
	Scale                float32 // of the scores
	KV                   backend.KVType
	Layers               int
	Gated                bool // behind each head of q lies as much of a gate
}

// group is how many query heads use a key head.
func (a Attention) group() int { return a.QHeads / a.KVHeads }

// AttendTakes reports whether the tensor-core kernels take a shape: bf16 or int8
// keys and values in heads of 64 or 128, or of 256 where a block has shared memory
// enough (160 KiB).
func (d *Device) AttendTakes(a Attention) bool {
	switch {
	case a.KV != backend.KVBF16 && a.KV != backend.KVInt8, a.KVHeads <= 0, a.QHeads%a.KVHeads != 0:
		return false
	case a.Dim == 256:
		return attendKernel(a, mostTeams(a.Dim)).shared <= d.Info.SharedPerBlock && flashPlain(a).shared <= d.Info.SharedPerBlock
	}
	return a.Dim == 64 || a.Dim == 128
}

// mostTeams is how many teams a block may have, by its shared memory and registers.
func mostTeams(dim int) int {
	if dim == 256 {
		return 2
	}
	return attendQueries / teamQueries
}

// Sizes that attend.cu shares.
const (
	ChunkSlots      = 64 // of a unit, the least that a block of decode attention takes: a page
	attendQueries   = 64 // query vectors of a block, at most
	teamQueries     = 16 // of a team of attendThreads
	attendThreads   = 128
	mergeThreads    = 128
	log2e           = 1.4426950408889634
	attendFanout    = 4  // units, or groups of units, that are joined at a time
	attendMostUnits = 16 // units of a block, at most
)

// attendKernel is the decode kernel of a shape for so many teams a block, with
// its dynamic shared memory (struct Layout of attend.cuh).
func attendKernel(a Attention, teams int) kernel {
	n := a.Dim
	stage, p := ChunkSlots*(2*n+16), teamQueries*(2*ChunkSlots+16)
	if a.KV == backend.KVInt8 {
		groups := (n + backend.KVGroup - 1) / backend.KVGroup
		stage, p = ChunkSlots*(n+16)+ChunkSlots*groups*4, groups*p
	}
	team := teamQueries*(2*n+16) + p + 2*4*teamQueries*4
	return kernel{file: "attend", name: fmt.Sprintf("attend_%v_%d_%d", a.KV, n, teams), shared: 4*stage + teams*team}
}

var kernelMerge = kernel{file: "attend", name: "attend_merge"}

// attendSplit is how decode attention is cut into blocks: units of the context
// (1, 4 or 16) and query vectors (16, 32 or 64) of one, and by which kernel. It changes
// no bit.
type attendSplit struct {
	units, queries int
	hopper         bool // attend_decode_hopper.cu: 4 or 16, and 64
}

// splitOf chooses few units while the multiprocessors would idle, many where the
// parts of the rows would cost more than the keys, and half as many queries
// where there are multiprocessors to spare. longest is the rows of the longest
// span: where there are many of more than 8 rows, a block takes up to 16 units whole.
func (d *Device) splitOf(qHeads, spans, chunks, longest int) attendSplit {
	blocks := max(1, qHeads/4) * spans * chunks // of one unit, with the usual 4 query heads to a KV head
	switch {
	case blocks/attendMostUnits >= d.Info.SMs*3/8 && chunks <= attendMostUnits && longest > 8:
		return attendSplit{units: attendMostUnits, queries: min(attendQueries, PowerOfTwo(2*longest))}
	case blocks/attendMostUnits >= d.Info.SMs*3/2:
		return attendSplit{units: attendMostUnits, queries: attendQueries}
	case blocks/attendFanout >= d.Info.SMs*3/4:
		// Blocks of 16 rows in halves leave room for the start of the kernel behind.
		return attendSplit{units: attendFanout, queries: max(attendQueries/2, min(attendQueries, PowerOfTwo(2*longest)))}
	case blocks > d.Info.SMs:
		return attendSplit{units: 1, queries: attendQueries}
	}
	return attendSplit{units: 1, queries: attendQueries / 2}
}

// teams is how many teams of a block's a span of longest rows needs.
func (s attendSplit) teams(longest, group int) int {
	if s.hopper {
		return s.queries / teamQueries
	}
	return PowerOfTwo((min(s.queries, longest*group) + teamQueries - 1) / teamQueries)
}

// blocks is how many blocks share the query vectors of a KV head of a span of
// longest rows.
func (s attendSplit) blocks(longest, group int) int {
	queries := teamQueries * s.teams(longest, group)
	return (longest*group + queries - 1) / queries
}

// attendRoom is the bytes of the parts of a pass.
func attendRoom(bucket, qHeads, dim, chunks, units int) int {
	return bucket * qHeads * ((chunks + units - 1) / units) * (4*dim + 8)
}

// aheadRoom bounds the room for contexts that have not been reached.
const aheadRoom = 64 << 20

// PrepareAttend makes room for the parts of AttendDecode, and for contexts of up to
// most chunks, so that they need not move in the middle of a generation. It may
// allocate, so it is called outside a capture; it reports whether the room has moved.
func (d *Device) PrepareAttend(bucket, longest, spans, chunks, most, qHeads, dim int) (moved bool, err error) {
	room := d.AttendPartsRoom(bucket, longest, spans, chunks, qHeads, dim)
	if room <= d.attendBytes {
		return false, nil
	}
	for c := 2 * chunks; c <= most; c *= 2 {
		if n := d.AttendPartsRoom(bucket, longest, spans, c, qHeads, dim); n <= aheadRoom {
			room = max(room, n)
		}
	}
	return d.roomForParts(room)
}

// AttendPartsRoom is the bytes of the parts of AttendDecode.
func (d *Device) AttendPartsRoom(bucket, longest, spans, chunks, qHeads, dim int) int {
	return attendRoom(bucket, qHeads, dim, chunks, d.splitOf(qHeads, spans, chunks, longest).units)
}

func (d *Device) roomForParts(bytes int) (moved bool, err error) {
	if bytes <= d.attendBytes {
		return false, nil
	}
	p, err := d.Context.Alloc(bytes)
	if err != nil {
		return false, fmt.Errorf("cuda: room for attention: %w", err)
	}
	old := d.attendWork
	d.attendWork, d.attendBytes = p, bytes
	if old == 0 {
		return true, nil
	}
	return true, d.Context.Free(old)
}

// freeParts gives the room of PrepareAttend back.
func (d *Device) freeParts() error {
	if d.attendWork == 0 {
		return nil
	}
	p := d.attendWork
	d.attendWork, d.attendBytes = 0, 0
	return d.Context.Free(p)
}

// AttendDecode sets the step's rows of out32 and out16 (0: not wanted), [bucket,
// QHeads·dim] in f32 and bf16, to the attention of q16, bf16 of that shape, over
// the layer's keys and values; gated, q16 and gates, the queries in f32, are [bucket,
// QHeads·2·dim], else gates is 0. No span may have more than longest rows, nor
// a context of more than chunks · ChunkSlots slots; spans bounds their number.
// PrepareAttend comes before it.
func (d *Device) AttendDecode(out32, out16, q16, gates driver.Ptr, a Attention, step driver.Ptr, layer, bucket, longest, spans, chunks int) {
	d.attendBy(d.decodeSplit(a, longest, spans, chunks), out32, out16, q16, gates, a, step, layer, bucket, longest, spans, chunks)
}

// partsOf is how many parts a row has whose blocks take units of chunks, and where their
// maxima and weights lie, behind their sums.
func (d *Device) partsOf(a Attention, bucket, chunks, units int) (parts int, marks driver.Ptr) {
	if need := attendRoom(bucket, a.QHeads, a.Dim, chunks, units); need > d.attendBytes && d.err == nil {
		d.err = fmt.Errorf("cuda: attention needs %d bytes of room, has %d", need, d.attendBytes)
	}
	parts = Ceil(chunks, units)
	return parts, d.attendWork + driver.Ptr(4*bucket*a.QHeads*parts*a.Dim)
}

// attendBy is AttendDecode by a split.
func (d *Device) attendBy(s attendSplit, out32, out16, q16, gates driver.Ptr, a Attention, step driver.Ptr, layer, bucket, longest, spans, chunks int) {
	s.queries = min(s.queries, teamQueries*mostTeams(a.Dim))
	parts, marks := d.partsOf(a, bucket, chunks, s.units)
	blocks, teams := s.blocks(longest, a.group()), s.teams(longest, a.group())
	k, threads := attendKernel(a, teams), teams*attendThreads
	args := []uint64{uint64(out32), uint64(out16), uint64(q16), uint64(gates), uint64(d.attendWork), uint64(marks), uint64(step),
		uint64(layer), uint64(a.QHeads), uint64(a.KVHeads), f32(float32(float64(a.Scale) * log2e)), uint64(s.units), uint64(parts), uint64(blocks)}
	if s.hopper { // without gates
		k, threads, args = attendHopperKernel(), attendHopperThreads, slices.Delete(args, 3, 4)
	}
	d.launch(k, dim{a.KVHeads, parts * blocks, spans}, threads, args...)
	if parts > 1 {
		d.merge(out32, out16, gates, marks, a, step, bucket, s.units, parts)
	}
}

// merge joins the parts of a pass's rows.
func (d *Device) merge(out32, out16, gates, marks driver.Ptr, a Attention, step driver.Ptr, bucket, units, parts int) {
	vectors := bucket * a.QHeads
	args := []uint64{uint64(out32), uint64(out16), uint64(gates), uint64(d.attendWork), uint64(marks), uint64(step), uint64(a.QHeads)}
	if units == 1 { // two threads for 4 columns
		of := kernel{file: "attend", name: fmt.Sprintf("attend_merge_units_%d", a.Dim)}
		d.launch(of, dim{x: Ceil(vectors*a.Dim/2, mergeThreads)}, mergeThreads, append(args, uint64(parts), uint64(vectors))...)
		return
	}
	blocks := vectors
	if parts <= attendFanout {
		blocks = Ceil(vectors*a.Dim/4, mergeThreads)
	}
	d.launch(kernelMerge, dim{x: blocks}, mergeThreads, append(args, uint64(a.Dim), uint64(units), uint64(parts), uint64(vectors))...)
}

// AttendHolds is the bytes of the room of PrepareAttend.
func (d *Device) AttendHolds() int { return d.attendBytes }
