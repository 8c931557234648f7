package metal

import (
	"fmt"
	"math/bits"

	"windrow/backend"
)

// Sizes that attend.h.metal shares.
const (
	attendBlock   = 8  // query vectors of a simdgroup
	attendBlocks  = 8  // of a threadgroup, at most
	attendUnit    = 64 // slots of the first parts
	attendStreams = 4  // simdgroups of a decode threadgroup, at least
	mergeThreads  = 128
	log2e         = 1.4426950408889634
)

// attendParams is attend.h.metal's AttendParams.
type attendParams struct {
	base, rows          uint32
	heads, group, dim   uint32
	qStride             uint32
	slots, window, keep uint32
	page, scalePage     uint32
	blocks, parts       uint32
	qType, kvType       uint32
	scale               float32
}

// mergeParams is attend.metal's MergeParams.
type mergeParams struct{ vectors, dim, qStride, parts uint32 }

// attendParts is how many parts the decode kernels make of that many slots
// (part_start of attend.h.metal).
func attendParts(slots int) int {
	last := uint(slots - 1)
	if last < 8*attendUnit {
		return int(last)/attendUnit + 1
	}
	power := bits.Len(last) - 1
	quarter := int(last>>(power-2)) - 4
	return 8 + (power-9)*4 + quarter + 1
}

// attendScratch is the bytes of the partial results of a decode span of that
// many rows, which with them has a context of that many indices.
func attendScratch(rows, heads, headDim, context int) int {
	return 4 * rows * heads * attendParts(context) * (headDim + 2)
}

// attend sets rows of dst, [rows, heads·headDim], to the attention of rows of q,
// [rows, heads·qStride], both bf16 or both f32, over one sequence's keys and values,
// in which the rows stand at the indices from base on. Scores are multiplied by
// scale; where q has gates, results are multiplied by their sigmoid. Views are at the span's first row.
//
// With decode, for few rows, a row's bits depend on its query and on what it sees
// alone. Scratch, of attendScratch bytes for base+rows indices, is used
// only then.
func attend(e encoder, dst, q view, kv kvView, scratch view, base, rows, heads, kvHeads, headDim int, scale float32, gated, decode bool) {
	group := heads / kvHeads
	vectors, held := rows*group, min(base+rows, kv.slots)
	tuned, slice := attendTuned(q, kv, headDim)
	p := attendParams{
		base: uint32(base), rows: uint32(rows), heads: uint32(heads), group: uint32(group), dim: uint32(headDim), qStride: uint32(qStride(headDim, gated)),
		slots: uint32(kv.slots), window: uint32(kv.window), keep: uint32(kv.keep),
		blocks: attendBlocks, parts: 1, qType: attendType(q.elem.name()), kvType: attendType(kv.name()),
		scale: float32(float64(scale) * log2e),
	}
	p.page, p.scalePage = kv.pageElements()
	name, sets, streams := "attend", 1, 1
	if decode {
		for p.blocks > 1 && int(p.blocks)/2*attendBlock >= vectors {
			p.blocks /= 2
		}
		p.parts, streams = uint32(attendParts(held)), max(1, attendStreams/int(p.blocks))
		sets = (int(p.parts) + streams - 1) / streams
	} else {
		name = "attend_prefill"
		scratch = view{}
	}
	kernel := name + "_any"
	if tuned {
		kernel = fmt.Sprintf("%s_%s_%s_%d", name, q.elem.name(), kv.name(), slice)
	}
	teams := (vectors + attendBlock*int(p.blocks) - 1) / (attendBlock * int(p.blocks))
	c := attendCost(q, kv, base, rows, heads, kvHeads, headDim)
	if gated {
		c.read += int64(rows) * int64(heads*headDim) * int64(q.elem.size())
	}
	written := c.written
	if decode {
		c.written = 0
	}
	e.dispatch(dispatch{
		file: name, kernel: kernel,
		args: []arg{
			bind(dst), bind(q), bind(kv.k), bind(kv.v), bind(kv.kScales), bind(kv.vScales), bind(scratch), bind(kv.table), params(&p),
		},
		threadgroup: attendTile(q, tuned, slice) + int(p.blocks)*streams*attendOwn(q, tuned, slice, decode),
		groups:      size3{kvHeads, sets * teams, (headDim + slice - 1) / slice}, threads: size3{32 * int(p.blocks) * streams, 1, 1},
		cost: c,
	})
	if !decode {
		return
	}
	m := mergeParams{vectors: uint32(rows * heads), dim: p.dim, qStride: p.qStride, parts: p.parts}
	e.dispatch(dispatch{
		file: "attend", kernel: "attend_merge_" + dst.elem.name(),
		args:   []arg{bind(dst), bind(scratch), bind(q), params(&m)},
		groups: size3{(rows*heads*headDim/2 + mergeThreads - 1) / mergeThreads, 1, 1}, threads: size3{mergeThreads, 1, 1},
		cost: cost{written: written},
	})
}

// attendTuned reports whether a kernel was made for the types and the head
// dimension, and which slice of it a threadgroup has. The kernel of any others
// multiplies in f32.
func attendTuned(q view, kv kvView, headDim int) (tuned bool, slice int) {
	const most = 128 // of a tile in f32
	mixed := q.elem == elemBF16 && kv.dtype == backend.KVF32
	if mixed || kv.dtype == backend.KVF16 || wide(headDim, kv.k, kv.v) == 0 {
		return false, most
	}
	switch {
	case headDim <= 64:
		return true, 64
	case headDim <= most:
		return true, most
	case headDim <= 2*most && q.elem == elemBF16:
		return true, 2 * most
	}
	return false, most
}

// attendOperand is the element type of the matrices that attention multiplies.
func attendOperand(q view, tuned bool) elem {
	if tuned {
		return q.elem
	}
	return elemF32
}

// attendTile is the bytes of a tile: lines of a slice and 16 bytes.
func attendTile(q view, tuned bool, slice int) int {
	return attendLines(q, tuned, slice) * (slice*attendOperand(q, tuned).size() + 16)
}

// attendLines is the slots of a tile.
func attendLines(q view, tuned bool, slice int) int {
	if slice*attendOperand(q, tuned).size() > 256 {
		return 32
	}
	return 64
}

// attendOwn is the bytes of a simdgroup's own lines: a step of slots, a diagonal
// matrix and 16 bytes, in f32, for each vector of a block.
func attendOwn(q view, tuned bool, slice int, decode bool) int {
	step := 32
	if decode {
		step = max(16, attendLines(q, tuned, slice)/4)
	}
	return attendBlock * (step + attendBlock + 4) * 4
}

// attendType is an element type in attend.h.metal.
func attendType(name string) uint32 {
	switch name {
	case "f32":
		return 0
	case "f16":
		return 1
	case "bf16":
		return 2
	}
	return 3 // int8
}

// attendCost is what attention must at least move: queries, each line of keys
// and values that the span sees, results. Partial results, which decode writes and
// reads again at once, are not counted.
func attendCost(q view, kv kvView, base, rows, heads, kvHeads, headDim int) cost {
	l := backend.Layout{Slots: kv.slots, Window: kv.window, Keep: kv.keep}
	seen := func(from, index int) int { return index + 1 - from + min(kv.keep, from) }
	first := l.Visible(base)
	var pairs int64
	for r := range rows {
		pairs += int64(seen(l.Visible(base+r), base+r))
	}
	n := int64(rows) * int64(heads*headDim) * int64(q.elem.size())
	lines := int64(seen(first, base+rows-1)) * int64(kvHeads)
	return cost{
		read:    n + 2*lines*int64(kv.lineBytes(headDim)),
		written: n,
		flops:   4 * pairs * int64(heads) * int64(headDim),
	}
}
