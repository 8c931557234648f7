package cuda

import (
	"fmt"

	"windrow/backend"
	"windrow/cuda/driver"
)

// attention is the shape of an attention over one sequence's layer.
type attention struct {
	qHeads, kvHeads, dim int
	scale                float32 // of the scores
	kv                   backend.KVType
	layers               int
}

// group is how many query heads use a key head.
func (a attention) group() int { return a.qHeads / a.kvHeads }

// attendTakes tells whether the tensor-core kernels take a shape: bf16 or int8
// keys and values in heads of 64 or 128.
func attendTakes(a attention) bool {
	return (a.kv == backend.KVBF16 || a.kv == backend.KVInt8) && (a.dim == 64 || a.dim == 128) && a.kvHeads > 0 && a.qHeads%a.kvHeads == 0
}

// Sizes that attend.cu shares.
const (
	chunkSlots      = 64 // of a unit, the least that a block of decode attention takes: a page
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
func attendKernel(a attention, teams int) kernel {
	n := a.dim
	stage, p := chunkSlots*(2*n+16), teamQueries*(2*chunkSlots+16)
	if a.kv == backend.KVInt8 {
		groups := (n + backend.KVGroup - 1) / backend.KVGroup
		stage, p = chunkSlots*(n+16)+chunkSlots*groups*4, groups*p
	}
	team := teamQueries*(2*n+16) + p + 2*4*teamQueries*4
	return kernel{file: "attend", name: fmt.Sprintf("attend_%v_%d_%d", a.kv, n, teams), shared: 4*stage + teams*team}
}

var kernelMerge = kernel{file: "attend", name: "attend_merge"}

// attendSplit is how decode attention is cut into blocks: units of the context
// (1, 4 or 16) and query vectors (16, 32 or 64) of one. It changes no bit.
type attendSplit struct{ units, queries int }

// splitOf chooses few units while the multiprocessors would idle, many where the
// parts of the rows would cost more than the keys, and half as many queries
// where there are multiprocessors to spare. longest is the rows of the longest
// span: where there are many of more than 8 rows, a block takes up to 16 units whole.
func (d *device) splitOf(qHeads, spans, chunks, longest int) attendSplit {
	blocks := max(1, qHeads/4) * spans * chunks // of one unit, with the usual 4 query heads to a KV head
	switch {
	case blocks/attendMostUnits >= d.info.SMs*3/8 && chunks <= attendMostUnits && longest > 8:
		return attendSplit{attendMostUnits, min(attendQueries, powerOfTwo(2*longest))}
	case blocks/attendMostUnits >= d.info.SMs*3/2:
		return attendSplit{attendMostUnits, attendQueries}
	case blocks/attendFanout >= d.info.SMs*3/4:
		// Blocks of 16 rows in halves leave room for the start of the kernel behind.
		return attendSplit{attendFanout, max(attendQueries/2, min(attendQueries, powerOfTwo(2*longest)))}
	case blocks > d.info.SMs:
		return attendSplit{1, attendQueries}
	}
	return attendSplit{1, attendQueries / 2}
}

// teams is how many teams of a block's a span of longest rows needs.
func (s attendSplit) teams(longest, group int) int {
	return powerOfTwo((min(s.queries, longest*group) + teamQueries - 1) / teamQueries)
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

// prepareAttend makes room for the parts of attendDecode, and for contexts of up to
// most chunks, so that they need not move in the middle of a generation. It may
// allocate, so it is called outside a capture; it tells whether the room has moved.
func (d *device) prepareAttend(bucket, longest, spans, chunks, most, qHeads, dim int) (moved bool, err error) {
	room := d.attendPartsRoom(bucket, longest, spans, chunks, qHeads, dim)
	if room <= d.attendBytes {
		return false, nil
	}
	for c := 2 * chunks; c <= most; c *= 2 {
		if n := d.attendPartsRoom(bucket, longest, spans, c, qHeads, dim); n <= aheadRoom {
			room = max(room, n)
		}
	}
	return d.roomForParts(room)
}

// attendPartsRoom is the bytes of the parts of attendDecode.
func (d *device) attendPartsRoom(bucket, longest, spans, chunks, qHeads, dim int) int {
	return attendRoom(bucket, qHeads, dim, chunks, d.splitOf(qHeads, spans, chunks, longest).units)
}

func (d *device) roomForParts(bytes int) (moved bool, err error) {
	if bytes <= d.attendBytes {
		return false, nil
	}
	p, err := d.ctx.Alloc(bytes)
	if err != nil {
		return false, fmt.Errorf("cuda: room for attention: %w", err)
	}
	old := d.attendWork
	d.attendWork, d.attendBytes = p, bytes
	if old == 0 {
		return true, nil
	}
	return true, d.ctx.Free(old)
}

// freeParts gives the room of prepareAttend back.
func (d *device) freeParts() error {
	if d.attendWork == 0 {
		return nil
	}
	p := d.attendWork
	d.attendWork, d.attendBytes = 0, 0
	return d.ctx.Free(p)
}

// attendDecode sets the step's rows of out32 and out16 (0: not wanted), [bucket,
// qHeads·dim] in f32 and bf16, to the attention of q16, bf16 of that shape, over
// the layer's keys and values. No span may have more than longest rows, nor
// a context of more than chunks · chunkSlots slots; spans bounds their number.
// prepareAttend comes before it.
func (d *device) attendDecode(out32, out16, q16 driver.Ptr, a attention, step driver.Ptr, layer, bucket, longest, spans, chunks int) {
	d.attendBy(d.splitOf(a.qHeads, spans, chunks, longest), out32, out16, q16, a, step, layer, bucket, longest, spans, chunks)
}

// attendBy is attendDecode by a split.
func (d *device) attendBy(s attendSplit, out32, out16, q16 driver.Ptr, a attention, step driver.Ptr, layer, bucket, longest, spans, chunks int) {
	if need := attendRoom(bucket, a.qHeads, a.dim, chunks, s.units); need > d.attendBytes && d.err == nil {
		d.err = fmt.Errorf("cuda: attention needs %d bytes of room, has %d", need, d.attendBytes)
		return
	}
	parts, blocks, teams := (chunks+s.units-1)/s.units, s.blocks(longest, a.group()), s.teams(longest, a.group())
	marks := d.attendWork + driver.Ptr(4*bucket*a.qHeads*parts*a.dim)
	d.launch(attendKernel(a, teams), dim{a.kvHeads, parts * blocks, spans}, teams*attendThreads,
		uint64(out32), uint64(out16), uint64(q16), uint64(d.attendWork), uint64(marks), uint64(step),
		uint64(layer), uint64(a.qHeads), uint64(a.kvHeads), f32(float32(float64(a.scale)*log2e)), uint64(s.units), uint64(parts), uint64(blocks))
	if parts == 1 {
		return
	}
	vectors := bucket * a.qHeads
	merges := vectors
	if parts <= attendFanout {
		merges = (vectors*a.dim/4 + mergeThreads - 1) / mergeThreads
	}
	d.launch(kernelMerge, dim{x: merges}, mergeThreads,
		uint64(out32), uint64(out16), uint64(d.attendWork), uint64(marks), uint64(step),
		uint64(a.qHeads), uint64(a.dim), uint64(s.units), uint64(parts), uint64(vectors))
}
