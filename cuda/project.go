package cuda

import (
	"fmt"
	"math"

	"windrow/cuda/driver"
)

// target is where the rows of a projection go: [rows, out] in f32, in bf16, or
// both.
type target struct {
	f32, bf16 driver.Ptr
	add       bool // to what f32 holds
}

// linear is a weight with an optional bias [out] in f32.
type linear struct {
	w    *matrix
	bias driver.Ptr
}

// Constants of kernels/project.cuh.
const (
	projectThreads = 256
	tileOutputs    = 256
	mostTiles      = 1 << 14 // of a launch: it has a counter for each
	mostRows       = 128     // of a launch
)

// rowTiles are the numbers of tiles of 8 rows that kernels exist for.
var rowTiles = []int{1, 2, 3, 4, 6, 8, 16}

// tuning is what changes the speed of projections and, but for the numbers of
// blocks, never their bits.
type tuning struct {
	blocks   int  // a multiprocessor
	few, all int  // bytes of shared memory of a block: to 32 rows, and beyond
	most     int  // blocks of a launch, if not 0
	stream   int  // bytes of shared memory for kernels/stream.cuh, which is used where this is not 0
	group    int  // of strips in those kernels, if not 0
	wide     bool // instructions of warpgroups for more than 32 rows, where there are kernels
}

// defaultTuning leaves room for the next kernel's block beside this one's
// where rows are few.
var defaultTuning = tuning{blocks: 1, few: 100 << 10, all: 200 << 10}

// limit is the shared memory of a block.
func (t tuning) limit(rows int) int {
	if rows > 32 {
		return t.all
	}
	return t.few
}

// workspace holds the parts of tiles that several blocks share, and a counter
// of each tile's parts, which is zero between launches.
type workspace struct {
	partials, tickets driver.Ptr
	blocks            int
	tuning            tuning
}

// room allocates the workspace, once.
func (w *workspace) room(d *device) error {
	if w.tuning.blocks == 0 {
		w.tuning = defaultTuning
	}
	blocks := d.info.SMs * w.tuning.blocks
	if w.blocks >= blocks {
		return nil
	}
	w.free(d)
	var err error
	if w.partials, err = d.ctx.Alloc(blocks * 2 * tileOutputs * mostRows * 4); err != nil {
		return err
	}
	if w.tickets, err = d.ctx.Alloc(mostTiles * 4); err != nil {
		d.ctx.Free(w.partials)
		return err
	}
	w.blocks = blocks
	return d.ctx.Upload(w.tickets, make([]byte, mostTiles*4))
}

func (w *workspace) free(d *device) {
	if w.blocks > 0 {
		d.ctx.Free(w.partials)
		d.ctx.Free(w.tickets)
		w.blocks = 0
	}
}

// ring is the shape of a launch: tiles of 8 rows, units on their way, and
// bytes of shared memory.
type ring struct{ tiles, stages, shared int }

// leastStages is one unit at work, one whose sums are made, one on its way.
const leastStages = 3

// ringOf finds a kernel for that many rows, and its ring. ok is false where
// the device has too little shared memory for it.
func (f format) ringOf(rows, shared int, t tuning) (r ring, ok bool) {
	for _, r.tiles = range rowTiles {
		if 8*r.tiles >= rows {
			break
		}
	}
	unit := 16*f.granule + r.tiles*8*f.inputs*2
	fixed := 2*f.sums*r.tiles*8*4 + 16
	limit := min(t.limit(rows), shared-1024)
	r.stages = min(max((limit-fixed)/unit, leastStages), 8)
	r.shared = r.stages*unit + fixed
	return r, r.shared <= shared-1024
}

// project computes dst[i] = x·w[i]ᵀ + bias for up to three weights of one
// format that share x, bf16 [rows, in]. A row's bits depend on nothing but the
// row, the weights and the device.
func (d *device) project(dst []target, x driver.Ptr, w []linear, rows int) {
	d.projectSlices(dst, x, w, false, rows)
}

// projectGated computes dst = silu(x·gateᵀ) ⊙ (x·upᵀ) for weights of one
// format and shape.
func (d *device) projectGated(dst target, x driver.Ptr, gate, up linear, rows int) {
	d.projectSlices([]target{dst}, x, []linear{gate, up}, true, rows)
}

// projectSlices takes as many rows at a time as a kernel holds.
func (d *device) projectSlices(dst []target, x driver.Ptr, w []linear, gated bool, rows int) {
	if d.err != nil {
		return
	}
	if err := d.work.room(d); err != nil {
		d.err = err
		return
	}
	f := w[0].w.format()
	most := mostRows
	for most > 8 {
		if _, ok := f.ringOf(min(most, rows), d.info.SharedPerBlock, d.work.tuning); ok {
			break
		}
		most /= 2
	}
	for first := 0; first < rows; first += most {
		var to [3]target
		for i, t := range dst {
			to[i] = t.past(first * w[i].w.out)
		}
		d.projectOnce(to, x+driver.Ptr(first*w[0].w.in*2), w, gated, f, min(most, rows-first))
	}
}

// past is the target that many elements on.
func (t target) past(elements int) target {
	if t.f32 != 0 {
		t.f32 += driver.Ptr(4 * elements)
	}
	if t.bf16 != 0 {
		t.bf16 += driver.Ptr(2 * elements)
	}
	return t
}

func (d *device) projectOnce(dst [3]target, x driver.Ptr, w []linear, gated bool, f format, rows int) {
	if d.work.tuning.stream != 0 {
		d.streamOnce(dst, x, w, gated, f, rows)
		return
	}
	var weights, bias [3]driver.Ptr
	var out [3]int
	add, tiles := 0, 0
	in := w[0].w.in
	for i, l := range w {
		if l.w.format() != f || l.w.in != in || gated && l.w.out != w[0].w.out {
			d.err = fmt.Errorf("project: %v [%d, %d] beside %v [%d, %d]", l.w.dt, l.w.out, l.w.in, w[0].w.dt, w[0].w.out, in)
			return
		}
		weights[i], bias[i], out[i] = l.w.operand(), l.bias, l.w.out
		tiles += ceil(out[i], tileOutputs)
		if dst[i].add {
			add |= 1 << i
		}
	}
	if gated {
		tiles = ceil(out[0], tileOutputs/2)
	}
	units := tiles * ceil(in, f.inputs)
	blocks := min(d.info.SMs*d.work.tuning.blocks, units)
	if most := d.work.tuning.most; most > 0 {
		blocks = min(blocks, most)
	}
	if tiles > mostTiles || uint64(units+1)*uint64(blocks+1) > math.MaxUint32 {
		d.err = fmt.Errorf("project: %d outputs of %d inputs are too many", tiles*tileOutputs, in)
		return
	}
	r, _ := f.ringOf(rows, d.info.SharedPerBlock, d.work.tuning)
	k := kernel{f.file, fmt.Sprintf("%s_%d", f.file, r.tiles), r.shared}
	if d.work.tuning.wide && d.projectsWide(f, r.tiles) {
		k = wideKernel(f, r)
	}
	d.launch(k, dim{x: blocks}, projectThreads,
		uint64(weights[0]), uint64(weights[1]), uint64(weights[2]),
		uint64(dst[0].f32), uint64(dst[1].f32), uint64(dst[2].f32),
		uint64(dst[0].bf16), uint64(dst[1].bf16), uint64(dst[2].bf16),
		uint64(bias[0]), uint64(bias[1]), uint64(bias[2]),
		uint64(out[0]), uint64(out[1]), uint64(out[2]), uint64(add), flag(gated),
		uint64(x), uint64(in), uint64(rows), uint64(f.granule), uint64(f.shift), uint64(r.stages),
		uint64(d.work.partials), uint64(d.work.tickets))
}

// wideKernel is the one for warpgroups. Its ring is aligned to 1024 bytes.
func wideKernel(f format, r ring) kernel {
	return kernel{f.file + "_hopper", fmt.Sprintf("%s_hopper_%d", f.file, r.tiles), r.shared + 1024}
}

// projectsWide tells whether the driver translates the kernel for warpgroups.
func (d *device) projectsWide(f format, tiles int) bool {
	if !f.wide || tiles <= 4 || d.info.Major != 9 || d.info.Minor != 0 {
		return false
	}
	_, err := d.function(wideKernel(f, ring{tiles: tiles}))
	return err == nil
}

// format is how the tensor-core kernels take the weight.
func (m *matrix) format() format {
	if m.packed != nil {
		return m.packed.format
	}
	return bf16Format
}

// operand is where the tensor-core kernels read the weight.
func (m *matrix) operand() driver.Ptr {
	if m.packed != nil {
		return m.packed.data
	}
	return m.raw
}
