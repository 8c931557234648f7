package kernels

import (
	"runtime"
	"unsafe"
)

// Many rows on the matrix unit. quantManySteps steps of quantManyBlocks blocks
// are decoded into bytes, and meet all tiles of 16 rows before the next ones are
// decoded: in L1 lie the bytes, the same steps of a tile of activations, and the
// sums of two steps; in L2 the results.
const (
	// quantManyFrom is the rows from which that is repaid: 64 rows of affine4 take
	// 1.03 times as long as 16 by 16, 96 rows 0.76, 512 rows 0.73 (Q8_0: 1.5, 1.3,
	// 0.8).
	quantManyFrom = 96
	// quantManySteps is the steps that are decoded at once: 8 KB of a block.
	quantManySteps = 4
	// quantManyBlocks is the blocks that a tile of activations meets while it is
	// in L1.
	quantManyBlocks = 2
)

// quantManyCall is what quantMany works through. The offsets of its own part
// are named in quant_many_amx_amd64.s. The assembly moves the addresses along, past
// their memory at the end, which must be held elsewhere.
type quantManyCall struct {
	quantCall
	mSteps, mBlocks, mTiles int     // of a block; of outputs; of 16 rows
	mA                      uintptr // decoded bytes, [blocks, steps, 16, 128]
	mANext                  int     // to the next block
	mB                      uintptr // activations of a tile
	mBNext                  int     // to the next tile
	mSX, mXS                uintptr // their scales and sums
	mSXNext                 int
	mW, mBias               uintptr // scales and biases of the weights
	mWNext                  int     // to the next block
	mC                      uintptr // results, [16, 16] each
	mCBlock, mCTile         int     // to the next block, to the next tile
	mResume                 int     // not 0: results go on from memory
	mAhead                  uintptr // rows of weights that are decoded next
	mARow, mARows, mALeft   int     // bytes between them; how many; until the last one
	mY                      uintptr // where the rows go, with the last steps; else 0
	mYRow, mYTile           int     // bytes between rows, and to the next tile
}

//go:noescape
func quantMany(t *quantManyCall)

// takesMany reports whether that many rows go through many.
func (q quantTiles) takesMany(rows int) bool { return q.span == tileSpan && rows >= quantManyFrom }

// many multiplies rows r0 to r1 with whole blocks.
func (q quantTiles) many(y []float32, ldy int, p *Packed, r0, r1 int, t *quantCall, m *quantMemory, blocks int) {
	const tile = tileSpan * tileSpan // values of a tile of results
	tiles, last := (r1-r0)/tileSpan, (r1-r0)%tileSpan
	all := (r1 - r0 + tileSpan - 1) / tileSpan
	at := func(x []float32, i int) uintptr { return uintptr(unsafe.Pointer(&x[i])) }
	// Where the steps from k on of a block begin.
	from := func(block, k int) uintptr { return m.blocks[block].next + uintptr(k/q.blockSteps()*t.astep) }
	for k := 0; k < t.steps; k += quantManySteps {
		steps, table := min(quantManySteps, t.steps-k), k*t.groups*tileSpan
		for i := 0; i < blocks; i += quantManyBlocks {
			n := min(quantManyBlocks, blocks-i)
			decode := *t
			decode.kind, decode.steps, decode.bufstep = kindDecode, steps, quantStep*tileSpan*steps
			decode.buf, decode.wstep = unsafe.Pointer(&m.decoded[0]), 4*m.table
			decode.blocks, decode.count = &m.blocks[i], n
			decode.w, decode.bias = unsafe.Pointer(&m.w[i*m.table+table]), unsafe.Pointer(&m.bias[i*m.table+table])
			if k > 0 {
				decode.sstride = 0 // they are widened already
			}
			for j := range n {
				m.blocks[i+j].a = from(i+j, k)
			}
			quantBlocks(&decode)

			ahead := from(0, k+steps)
			if i+n < blocks {
				ahead = from(i+n, k)
			}
			call := quantManyCall{
				quantCall: *t, mSteps: steps, mBlocks: n, mA: at(m.decoded, 0), mANext: decode.bufstep,
				mBNext: tileSpan * p.in, mSXNext: 4 * 2 * tileSpan * (p.in / q.group),
				mW: at(m.w, i*m.table+table), mBias: at(m.bias, i*m.table+table), mWNext: 4 * m.table,
				mCBlock: 4 * tile * all, mCTile: 4 * tile,
				mAhead: ahead, mARow: t.astride, mARows: tileSpan * n, mALeft: tileSpan * n,
			}
			if k+steps == t.steps {
				call.mYRow, call.mYTile = 4*ldy, 4*ldy*tileSpan
			}
			call.tstride, call.gstep = quantStep, min(q.group, 64)
			if k > 0 {
				call.mResume = 1
			}
			part := func(first, columns, tiles int) {
				q.activations(&call.quantCall, p, r0+first*tileSpan, columns)
				var cfg tileConfig
				cfg.quant(tileSpan, columns, min(q.group, 64))
				call.cfg, call.mTiles = &cfg, tiles
				call.mB = uintptr(call.b) + uintptr(k*quantStep*columns)
				scales := uintptr(4 * k * t.groups * columns)
				call.mSX, call.mXS = uintptr(call.sx)+scales, uintptr(call.xs)+scales
				call.mC = at(m.c, (i*all+first)*tile)
				if call.mYRow != 0 {
					call.mY = at(y, (r0+first*tileSpan)*ldy+i*tileSpan)
				}
				quantMany(&call)
			}
			if tiles > 0 {
				part(0, tileSpan, tiles)
			}
			if last > 0 {
				part(tiles, last, 1)
			}
		}
	}
	runtime.KeepAlive(y)
}

// blockSteps is the steps of a block of the format, if it has more than one.
func (q quantTiles) blockSteps() int {
	if q.format == formatQ4_K || q.format == formatQ6_K {
		return 2
	}
	return 1
}
