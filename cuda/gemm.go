package cuda

import (
	"math"

	"windrow/cuda/driver"
)

// gemmPart is one weight of a prefill projection: dst[rows, out] = x · wᵀ + bias.
type gemmPart struct {
	dst  target
	w    driver.Ptr // bf16 [out, in]
	bias driver.Ptr // f32 [out], or 0
	out  int
}

// gemmTile is a pair of kernels with tiles of one shape, rows by cols sums.
type gemmTile struct {
	name         string
	plain, gated kernel // gated.name is "" where there is none
	rows, cols   int
	sharing      int     // tiles of rows that are made together, by a cluster
	blocks       int     // blocks of a tile
	cost         float64 // time of a tile, relative to the other tiles of its route
}

// The tiles of gemm.cu, for every device.
var (
	gemmWide   = gemmTile{"wide", kernel{"gemm", "gemm_wide", 98304}, kernel{"gemm", "gated_wide", 98304}, 128, 256, 1, 1, 2}
	gemmNarrow = gemmTile{"narrow", kernel{"gemm", "gemm_narrow", 65536}, kernel{"gemm", "gated_narrow", 65536}, 128, 128, 1, 1, 1.15}
	gemmDeep   = gemmTile{"deep", kernel{"gemm", "gemm_deep", 147456}, kernel{"gemm", "gated_deep", 147456}, 128, 256, 1, 1, 1.9}
)

const gemmThreads = 256

// grid is how many blocks a product of outs outputs needs.
func (t gemmTile) grid(rows int, outs ...int) int {
	n := 0
	for _, out := range outs {
		n += ceil(out, t.cols)
	}
	return n * ceil(rows, t.rows*t.sharing) * t.sharing * t.blocks
}

// atOnce is how many of its blocks the device holds.
func (t gemmTile) atOnce(sms int) int {
	cluster := t.sharing * t.blocks
	return max(1, sms/cluster) * cluster
}

// gemmArguments are those of a plain kernel; w holds what the kernel takes for a weight.
func gemmArguments(x driver.Ptr, w [3]driver.Ptr, parts []gemmPart, in, rows int) []uint64 {
	var a [19]uint64
	a[0] = uint64(x)
	for i, p := range parts {
		a[1+i] = uint64(w[i])
		a[4+i], a[7+i], a[10+i] = uint64(p.dst.f32), uint64(p.dst.bf16), uint64(p.bias)
		a[13+i] = uint64(p.out)
	}
	a[16], a[17], a[18] = flag(parts[0].dst.add), uint64(rows), uint64(in)
	return a[:]
}

// gemm enqueues one to three products that share x (bf16 [rows, in]); in and
// every out are multiples of 8. All parts add to their targets, or none does.
func (d *device) gemm(t gemmTile, x driver.Ptr, parts []gemmPart, in, rows int) {
	var w [3]driver.Ptr
	var outs [3]int
	for i, p := range parts {
		w[i], outs[i] = p.w, p.out
	}
	d.launch(t.plain, dim{x: t.grid(rows, outs[:]...)}, gemmThreads, gemmArguments(x, w, parts, in, rows)...)
}

// gemmGated enqueues dst[rows, out] = silu(x · gateᵀ) * (x · upᵀ), with the
// biases of both.
func (d *device) gemmGated(t gemmTile, dst target, x driver.Ptr, gate, up gemmPart, in, rows int) {
	d.launch(t.gated, dim{x: t.grid(rows, 2*gate.out)}, gemmThreads,
		uint64(x), uint64(gate.w), uint64(up.w), uint64(dst.f32), uint64(dst.bf16), uint64(gate.bias), uint64(up.bias),
		uint64(rows), uint64(gate.out), uint64(in))
}

// fastest picks the tile whose waves over the device take the least time.
func (d *device) fastest(tiles []gemmTile, rows int, outs ...int) gemmTile {
	best, least := tiles[0], math.Inf(1)
	for _, t := range tiles {
		if time := float64(ceil(t.grid(rows, outs...), t.atOnce(d.info.SMs))) * t.cost; time < least {
			best, least = t, time
		}
	}
	return best
}

// gemmTiles lists the tiles of gemm.cu that the device has shared memory for.
func (d *device) gemmTiles() []gemmTile {
	if d.info.SharedPerBlock >= gemmDeep.plain.shared {
		return []gemmTile{gemmDeep, gemmNarrow}
	}
	return []gemmTile{gemmWide, gemmNarrow}
}
