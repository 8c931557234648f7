package launch

import (
	"math"

	"windrow/cuda/driver"
)

// gemmPart is one weight of a prefill projection: dst[rows, out] = x · wᵀ + bias.
type gemmPart struct {
	dst  Target
	w    driver.Ptr // bf16 [out, in]
	bias driver.Ptr // f32 [out], or 0
	out  int
}

// gemmTile is a pair of kernels with tiles of one shape, rows by cols sums. A
// cluster makes tall by broad tiles, and split blocks share the k of each.
type gemmTile struct {
	name               string
	plain, gated       kernel // name is "" where there is none
	rows, cols         int
	tall, broad, split int
	hopper             bool    // of gemm_hopper.cu
	step, edge         float64 // microseconds of 64 inputs of a tile, and of the rest of a tile, on an H100
}

// The tiles of gemm.cu, for every device.
var (
	gemmWide   = ownTile("wide", 98304, 256, 1.50, 5)
	gemmDeep   = ownTile("deep", 147456, 256, 1.29, 5)
	gemmNarrow = ownTile("narrow", 65536, 128, 0.96, 3)
)

// ownTile is a tile of the kernels gemm_… and gated_… of a name.
func ownTile(name string, shared, cols int, step, edge float64) gemmTile {
	return gemmTile{
		name: name, plain: kernel{"gemm", "gemm_" + name, shared}, gated: kernel{"gemm", "gated_" + name, shared},
		rows: 128, cols: cols, tall: 1, broad: 1, split: 1, step: step, edge: edge,
	}
}

const gemmThreads = 256

// cluster is how many blocks start together.
func (t gemmTile) cluster() int { return t.tall * t.broad * t.split }

// clusters is how many of them a product of outs outputs needs.
func (t gemmTile) clusters(rows int, outs ...int) int {
	n := 0
	for _, out := range outs {
		n += Ceil(out, t.cols*t.broad)
	}
	return n * Ceil(rows, t.rows*t.tall)
}

// time is how many microseconds a product should take on an H100 of so many
// multiprocessors: waves over the device, each of one tile a block.
func (t gemmTile) time(sms, in, rows int, outs ...int) float64 {
	waves := Ceil(t.clusters(rows, outs...), max(1, sms/t.cluster()))
	return float64(waves) * (float64(Ceil(in, 64))/float64(t.split)*t.step + t.edge)
}

// fastest picks the tile that should take the least time.
func (d *Device) fastest(tiles []gemmTile, in, rows int, outs ...int) gemmTile {
	best, least := tiles[0], math.Inf(1)
	for _, t := range tiles {
		if time := t.time(d.Info.SMs, in, rows, outs...); time < least {
			best, least = t, time
		}
	}
	return best
}

// gemmTiles lists the tiles of gemm.cu that the device has shared memory for.
func (d *Device) gemmTiles() []gemmTile {
	if d.Info.SharedPerBlock >= gemmDeep.plain.shared {
		return []gemmTile{gemmDeep, gemmNarrow}
	}
	return []gemmTile{gemmWide, gemmNarrow}
}

// gemm enqueues one to three products that share x (bf16 [rows, in]); in and
// every out are multiples of 8. All parts add to their targets, or none does.
func (d *Device) gemm(t gemmTile, x driver.Ptr, parts []gemmPart, in, rows int) {
	var a [19]uint64
	var outs [3]int
	a[0] = d.gemmOperand(t, x, rows, in, t.xBox())
	for i, p := range parts {
		a[1+i] = d.gemmOperand(t, p.w, p.out, in, mapRows)
		a[4+i], a[7+i], a[10+i] = uint64(p.dst.F32), uint64(p.dst.BF16), uint64(p.bias)
		a[13+i], outs[i] = uint64(p.out), p.out
	}
	a[16], a[17], a[18] = flag(parts[0].dst.Add), uint64(rows), uint64(in)
	d.gemmLaunch(t, t.plain, t.clusters(rows, outs[:]...), a[:])
}

// gemmGated enqueues dst[rows, out] = silu(x · gateᵀ) * (x · upᵀ), with the
// biases of both. A tile has cols/2 outputs: those of gate and those of up.
func (d *Device) gemmGated(t gemmTile, dst Target, x driver.Ptr, gate, up gemmPart, in, rows int) {
	a := [10]uint64{
		d.gemmOperand(t, x, rows, in, t.xBox()), d.gemmOperand(t, gate.w, gate.out, in, t.cols/2), d.gemmOperand(t, up.w, up.out, in, t.cols/2),
		uint64(dst.F32), uint64(dst.BF16), uint64(gate.bias), uint64(up.bias), uint64(rows), uint64(gate.out), uint64(in),
	}
	d.gemmLaunch(t, t.gated, t.clusters(rows, 2*gate.out), a[:])
}

func (d *Device) gemmLaunch(t gemmTile, k kernel, clusters int, args []uint64) {
	threads := gemmThreads
	if t.hopper { // its blocks stay for all their tiles
		threads = hopperThreads
		clusters = min(clusters, max(1, d.Info.SMs/t.cluster()))
	}
	d.launch(k, dim{x: clusters * t.cluster()}, threads, args...)
}
