package launch

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"

	"windrow/cuda/driver"
)

// slicedTile is a tile of kernels/sliced_hopper.cu: up to so many rows by width sums, of which
// gated ones have half for gate and half for up. Its ring has so many stages of 128 inputs.
type slicedTile struct {
	rows, width, stages int
}

// String gives rows and sums.
func (t slicedTile) String() string { return fmt.Sprintf("%dx%d", t.rows, t.width) }

// slicedTiles are those that there are kernels of.
var slicedTiles = []slicedTile{{64, 32, 8}, {64, 64, 6}, {64, 128, 4}, {128, 32, 5}, {128, 64, 4}, {128, 128, 3}}

// From so many rows on projections by bf16 weights are made by kernels/sliced_hopper.cu, whose bits
// are those of kernels/stream.cuh: all, and those to as many strips of 16 outputs as a head has.
const (
	slicedRows     = 33
	slicedRowsHead = 17
	slicedStrips   = 4096
	// Up to so many rows of prompts are, to all outputs and to those of a head.
	slicedPromptRows = 128
	slicedPromptHead = 64
)

// outputs is how many a tile has.
func (t slicedTile) outputs(gated bool) int {
	if gated {
		return t.width / 2
	}
	return t.width
}

// threads is how many a block has: a warpgroup copies what the others multiply, 64 rows each.
func (t slicedTile) threads() int { return 2*t.rows + 128 }

// kernel is that of a tile.
func (t slicedTile) kernel(gated bool) kernel {
	name := "sliced"
	if gated {
		name += "_gated"
	}
	return kernel{"sliced_hopper", fmt.Sprintf("%s_%d_%d_pair", name, t.rows, t.width), t.stages*((t.rows+t.width)*256+16) + 1024}
}

// box is how many rows a block of a pair copies for both: tiles have as many rows each.
func (t slicedTile) box(rows int) int { return 8 * Ceil(rows, 16*Ceil(rows, t.rows)) }

// time is how many microseconds a projection should take on an H200: by waves over the device,
// each of one tile a block, whose stages wait for what a multiprocessor gets from L2, some 118
// GB/s. The numbers are fitted to the 8B model's projections. Of tiles that take as long, those
// are the faster that are the fewest for the rows: each reads all weights.
func (t slicedTile) time(sms, clusters, in, rows int) float64 {
	step := 0.03 + float64((2*t.box(rows)+t.width)*128)/118e3 // of 64 inputs
	return float64(Ceil(clusters, max(1, sms/2)))*float64(Ceil(in, 64))*step + 3.2 + 0.1*float64(Ceil(rows, t.rows))
}

// clusters is how many pairs of tiles a projection has.
func (t slicedTile) clusters(p *projection, rows int) (n int) {
	outs := p.out[:]
	if p.gated {
		outs = outs[:1]
	}
	for _, out := range outs {
		n += Ceil(out, 2*t.outputs(p.gated))
	}
	return n * Ceil(rows, t.rows)
}

// sliced chooses a tile for a projection of some rows in a step; ok is false where it is not for
// these kernels.
func (d *Device) sliced(p *projection, rows int) (t slicedTile, ok bool) {
	enough := rows >= slicedRows || rows >= slicedRowsHead && p.total >= slicedStrips || d.Tuning.sliced.rows != 0
	if d.Tuning.Stream || !enough || !d.takesTiled() {
		return t, false
	}
	return d.slicedTile(p, rows)
}

// slicedTile is the tile that should take the least time; ok is false where there is none: copies
// want whole sixteens of bytes, stores whole eights of outputs.
func (d *Device) slicedTile(p *projection, rows int) (best slicedTile, ok bool) {
	if p.format != bf16Format || p.in%8 != 0 {
		return best, false
	}
	for _, out := range p.out {
		if out%8 != 0 {
			return best, false
		}
	}
	least := math.Inf(1)
	for _, t := range slicedTiles {
		if force := d.Tuning.sliced; force.rows != 0 && (force.rows != t.rows || force.width != t.width) || p.gated && t.width < 64 {
			continue
		}
		if time := t.time(d.Info.SMs, t.clusters(p, rows), p.in, rows); time < least {
			best, least, ok = t, time, true
		}
	}
	return best, ok
}

// enqueueSliced enqueues a projection by a tile, its inputs in so many slices. Blocks stay for all
// their tiles.
func (d *Device) enqueueSliced(t slicedTile, p *projection, x driver.Ptr, rows, slices int) {
	outputs, box := t.outputs(p.gated), t.box(rows)
	maps := [4]uint64{uint64(d.mapOf(mapKey{x, rows, p.in, box}))}
	for i, w := range p.weights {
		if w != 0 {
			maps[1+i] = uint64(d.mapOf(mapKey{w, p.out[i], p.in, outputs}))
		}
	}
	var args []uint64
	if p.gated {
		args = append(maps[:3:3], uint64(p.f32[0]), uint64(p.b16[0]), uint64(p.bias[0]), uint64(p.bias[1]), uint64(p.add), uint64(rows), uint64(p.out[0]))
	} else {
		args = append(maps[:], uint64(p.f32[0]), uint64(p.f32[1]), uint64(p.f32[2]), uint64(p.b16[0]), uint64(p.b16[1]), uint64(p.b16[2]),
			uint64(p.bias[0]), uint64(p.bias[1]), uint64(p.bias[2]), uint64(p.out[0]), uint64(p.out[1]), uint64(p.out[2]), uint64(p.add), uint64(rows))
	}
	args = append(args, uint64(p.in), uint64(box), uint64(bits.Len(uint(slices))-1))
	most := cmp.Or(d.Tuning.blocks, max(1, d.Info.SMs/2))
	d.launch(t.kernel(p.gated), dim{x: 2 * min(t.clusters(p, rows), most)}, t.threads(), args...)
}

// prefillSliced enqueues a projection of a few rows of prompts, or of others that the host
// makes by gemm_hopper.cu's tile t, with the bits of that; false where it does not.
func (d *Device) prefillSliced(t gemmTile, dst []Target, x driver.Ptr, w []Linear, gated bool, rows int) bool {
	if !t.hopper || rows > slicedPromptRows || d.err != nil {
		return false
	}
	p := projectionOf(dst, w, gated)
	s, ok := d.slicedTile(&p, rows)
	if p.err != nil || !ok || rows > slicedPromptHead && p.total >= slicedStrips {
		return false
	}
	d.enqueueSliced(s, &p, x, rows, t.split)
	return true
}
