package launch

import (
	"cmp"
	"fmt"
	"strconv"

	"windrow/cuda/driver"
)

// Target is where the rows of a projection go: [rows, out] in f32, in bf16, or
// both.
type Target struct {
	F32, BF16 driver.Ptr
	Add       bool // to what f32 holds
}

// Linear is a weight with an optional bias [out] in f32.
type Linear struct {
	Weight *Weight
	Bias   driver.Ptr
}

// Inputs are what a projection multiplies: rows [rows, in] in bf16, or, where
// norm is set, one row in f32 that the kernel norms by those weights first.
type Inputs struct {
	X, Norm driver.Ptr
	Eps     float32
}

// Tuning forces what is otherwise chosen by what measured fastest: it changes
// the speed of projections and, but for wide, never their bits.
type Tuning struct {
	shared  int        // bytes of shared memory of a block, if not 0
	group   int        // strips of a pass, if not 0
	blocks  int        // of a launch, or clusters of kernels/few.cuh, if not 0
	Stream  bool       // whatever the rows
	Apart   bool       // rotation and attention, whatever the rows
	Tiled   TiledForm  // if not zero
	wide    wideForm   // likewise
	sliced  slicedTile // likewise, by its rows and width
	stages  int        // of the rings of all of them, at most, if not 0
	noFew   bool       // few rows as without kernels/few.cuh and held.cuh
	cluster int        // blocks of a cluster of that, at least
	chunk   int        // granules of a copy of that, if not 0
	held    use        // of kernels/held.cuh

	deltaRun     int  // rows that a warp of delta_rows takes in turn, if not 0
	deltaFew     int  // rows up to which DeltaNet is one launch, if not 0
	deltaWide    use  // of its blocks of 32 columns
	grouped      int  // tile of kernels/grouped_wide.cuh, if not 0
	groupedApart bool // without that
	expertsApart bool // few rows of a mixture: down in a launch of its own
	expertsTight bool // what down of few rows makes has no room of its own
	routeEach    int  // experts of a group of kernels/route.cu, if not 0
	rotateHeads  int  // that a warp of kernels/rotate.cu takes, if not 0
}

// use says whether kernels are used where they can be.
type use int

const (
	ifFaster use = iota
	always
	never
)

// streamShape is how a launch of kernels/stream.cuh is cut.
type streamShape struct {
	warps  int
	tiles  int // of 8 rows, of a slice
	group  int // strips of a pass
	strips int // of a block
	slices int // of rows
	blocks int
	stages int // of a warp's ring
	whole  int // bytes of the only row, where it lies whole in shared memory
	shared int
}

// reservedShared is what the driver takes of a block's shared memory.
const reservedShared = 1 << 10

// streamWarps is how many warps split the inputs: the order of sums depends on
// it, so it is chosen by format and device alone.
func (d *Device) streamWarps(f format) int {
	if f == bf16Format {
		return 8
	}
	if f.leastShared(16) > d.Info.SharedPerBlock-reservedShared {
		return 8
	}
	return 16
}

// leastShared is what a block needs: two stages of two strips and eight rows a
// warp, and the warps' sums.
func (f format) leastShared(warps int) int { return warps * (2*(2*f.unit()+8*64*2) + 2*16*8*4) }

// leastWhole is what a block needs beside a whole row: two stages of two strips a
// warp, and the warps' sums.
func (f format) leastWhole(warps int) int { return warps * 2 * (2*f.unit() + 16*4) }

// wholeRow is the bytes of one row of that many inputs in a block's shared
// memory; 0 where two stages of two strips a warp would not fit beside it.
func (d *Device) wholeRow(f format, in int) int {
	n, warps := 2*f.inputs*Ceil(in, f.inputs), d.streamWarps(f)
	if f.leastWhole(warps)+n > d.Info.SharedPerBlock-reservedShared {
		return 0
	}
	return n
}

// TakesNorm reports whether projections of so many rows by these weights, gated ones of gate and up,
// norm them themselves: of one row, or of several by kernels/held.cuh, in one launch.
func (d *Device) TakesNorm(w []Linear, gated bool, rows int) bool {
	if rows > 1 {
		p := projectionOf(nil, w, gated)
		if p.err != nil {
			return false
		}
		s, ok := d.held(p.format, p.total, rows, p.in, gated, true)
		return ok && s.normed > 1
	}
	for _, l := range w {
		if d.wholeRow(l.Weight.format(), l.Weight.In) == 0 {
			return false
		}
	}
	return true
}

// streamShapeOf cuts a projection of rows of that many inputs to total strips of
// 16 outputs.
func (d *Device) streamShapeOf(f format, total, rows, in int, gated bool) streamShape {
	s := streamShape{warps: d.streamWarps(f), tiles: 2}
	if rows == 1 {
		s.whole = d.wholeRow(f, in)
	}
	if f == bf16Format {
		s.tiles = 4
	}
	for ; s.tiles > 1 && rows <= 4*s.tiles; s.tiles /= 2 {
	}
	for ; ; s.tiles /= 2 {
		s.slices = Ceil(rows, 8*s.tiles)
		s.strips = Ceil(total*s.slices, cmp.Or(d.Tuning.blocks, d.Info.SMs))
		if gated {
			s.strips += s.strips % 2
		}
		s.blocks = Ceil(total, s.strips) * s.slices
		limit := d.streamLimit(f, s)
		best := 0
		for _, g := range []int{2, 3, 6} {
			if force := d.Tuning.group; gated && g%2 != 0 || force != 0 && g != force && g != 2 {
				continue
			}
			stage, fixed := s.warps*(g*f.unit()+8*s.tiles*64*2), s.warps*2*16*8*s.tiles*4 // sums
			if s.whole > 0 {
				stage, fixed = s.warps*g*f.unit(), s.warps*g*16*4+s.whole
			}
			stages := min((limit-fixed)/stage, 8)
			// A pass costs its strips, there or not, and half a strip.
			if cost := Ceil(s.strips, g) * (2*g + 1); stages >= 2 && (best == 0 || cost < best || g == d.Tuning.group) {
				best, s.group, s.stages, s.shared = cost, g, stages, stages*stage+fixed
			}
		}
		if best > 0 || s.tiles == 1 {
			return s
		}
	}
}

// streamKernel is the kernel of a shape.
func streamKernel(f format, s streamShape) kernel {
	tiles := strconv.Itoa(s.tiles)
	if s.whole > 0 {
		tiles = "alone"
	}
	return kernel{f.file, fmt.Sprintf("%s_%s_%d", f.file, tiles, s.group), s.shared}
}

// streamLimit is the shared memory of a block, by what measured fastest in a step
// of an H100: all for several rows by bf16, and where a block has many strips; else less, for one
// row 100 KiB by 4-bit weights and in proportion by others. Of one row by bf16 it is an H200's.
func (d *Device) streamLimit(f format, s streamShape) int {
	most := d.Info.SharedPerBlock - reservedShared
	limit, least := most, f.leastShared(s.warps)
	if s.whole > 0 {
		least = f.leastWhole(s.warps) + s.whole
	}
	switch {
	case d.Tuning.shared != 0:
		limit = d.Tuning.shared
	case f == bf16Format && s.whole > 0:
		limit = 180 << 10 // docs/adr/0049-rings-are-short.md
	case f == bf16Format || s.strips > 16 && s.tiles == 1:
	case s.whole > 0:
		limit = (100 << 10) * f.unit() / 640
	default:
		limit = 160 << 10
	}
	return min(max(limit, least), most)
}

// Project computes dst[i] = x·w[i]ᵀ + bias for up to three weights of one
// format that share x, bf16 [rows, in]. A row's bits depend on nothing but the
// row, the weights and the device.
func (d *Device) Project(dst []Target, x driver.Ptr, w []Linear, rows int) {
	d.enqueueProjection(dst, Inputs{X: x}, w, false, rows)
}

// ProjectGated computes dst = silu(x·gateᵀ) ⊙ (x·upᵀ) for weights of one
// format and shape.
func (d *Device) ProjectGated(dst Target, x driver.Ptr, gate, up Linear, rows int) {
	d.enqueueProjection([]Target{dst}, Inputs{X: x}, []Linear{gate, up}, true, rows)
}

// ProjectNormed is project, or ProjectGated for gate and up, of rows that are
// normed first, with the bits of RMSNorm and then those. TakesNorm says whether
// the weights can.
func (d *Device) ProjectNormed(dst []Target, x Inputs, w []Linear, gated bool, rows int) {
	d.enqueueProjection(dst, x, w, gated, rows)
}

// projection is up to three weights of one format that share their inputs, and
// where their products go: what kernels/strips.cuh calls by that name.
type projection struct {
	format
	in, total               int // total: strips of 16 outputs
	add                     int
	gated                   bool
	weights, bias, f32, b16 [3]driver.Ptr
	out                     [3]int
	err                     error
}

func projectionOf(dst []Target, w []Linear, gated bool) projection {
	p := projection{format: w[0].Weight.format(), in: w[0].Weight.In, gated: gated}
	for i, l := range w {
		if l.Weight.format() != p.format || l.Weight.In != p.in || gated && l.Weight.Out != w[0].Weight.Out {
			p.err = fmt.Errorf("project: %v [%d, %d] beside %v [%d, %d]", l.Weight.DType, l.Weight.Out, l.Weight.In, w[0].Weight.DType, w[0].Weight.Out, p.in)
			return p
		}
		p.weights[i], p.bias[i], p.out[i] = l.Weight.operand(), l.Bias, l.Weight.Out
		p.total += Ceil(l.Weight.Out, 16)
	}
	for i, t := range dst {
		p.f32[i], p.b16[i] = t.F32, t.BF16
		if t.Add {
			p.add |= 1 << i
		}
	}
	return p
}

// args are the arguments that the kernels begin with; more of them follow.
func (p *projection) args(x driver.Ptr, rows int, more ...int) []uint64 {
	list := []uint64{
		uint64(p.weights[0]), uint64(p.weights[1]), uint64(p.weights[2]),
		uint64(p.f32[0]), uint64(p.f32[1]), uint64(p.f32[2]),
		uint64(p.b16[0]), uint64(p.b16[1]), uint64(p.b16[2]),
		uint64(p.bias[0]), uint64(p.bias[1]), uint64(p.bias[2]),
		uint64(p.out[0]), uint64(p.out[1]), uint64(p.out[2]), uint64(p.add), flag(p.gated),
		uint64(x), uint64(p.in), uint64(rows), uint64(p.granule), uint64(p.shift),
	}
	for _, v := range more {
		list = append(list, uint64(v))
	}
	return list
}

// enqueueProjection enqueues one launch, of the kernels that should take the least time.
func (d *Device) enqueueProjection(dst []Target, x Inputs, w []Linear, gated bool, rows int) {
	if d.err != nil {
		return
	}
	p := projectionOf(dst, w, gated)
	if d.err = p.err; d.err != nil {
		return
	}
	f, total := p.format, p.total
	if s, ok := d.held(f, total, rows, p.in, gated, x.Norm != 0); ok {
		d.launch(heldKernel(f, s), dim{x: s.blocks}, 32*(fewWorkers+fewFinishers), append(p.args(x.X, rows, s.stages, s.strips, s.more, s.slot), uint64(x.Norm), f32(x.Eps))...)
		return
	}
	if s, ok := d.few(f, total, rows, p.in, gated); ok && x.Norm == 0 {
		d.launch(fewRowsKernel(f, s), dim{x: s.clusters * s.cluster}, 32*(fewWorkers+fewFinishers), p.args(x.X, rows, s.stages, s.strips, s.more, s.chunk)...)
		return
	}
	if s, ok := d.tiled(f, total, rows, p.in); ok && x.Norm == 0 {
		d.launch(tiledKernel(f, s), dim{x: s.blocks}, s.threads(), p.args(d.mapOf(mapKey{x.X, rows, p.in, 8 * s.Tiles}), rows, s.stages, s.slices, d.streamWarps(f))...)
		return
	}
	if s, ok := d.one(f, total, rows, p.in, gated); ok {
		d.launch(oneKernel(f, s), dim{x: s.blocks}, 32*oneWarps, append(p.args(x.X, rows, s.stages, s.strips, s.pass, s.more), uint64(x.Norm), f32(x.Eps))...)
		return
	}
	if t, ok := d.sliced(&p, rows); ok && x.Norm == 0 {
		d.enqueueSliced(t, &p, x.X, rows, d.streamWarps(f))
		return
	}
	s := d.streamShapeOf(f, total, rows, p.in, gated)
	if x.Norm != 0 && (s.whole == 0 || rows > 1) {
		d.err = fmt.Errorf("project: %d rows of %d inputs cannot be normed on the way", rows, p.in)
		return
	}
	d.launch(streamKernel(f, s), dim{x: s.blocks}, 32*s.warps, append(p.args(x.X, rows, s.stages, s.strips, s.slices), uint64(x.Norm), f32(x.Eps))...)
}

// format is how the tensor-core kernels take the weight.
func (m *Weight) format() format {
	if m.Packed != nil {
		return m.Packed.format
	}
	return bf16Format
}

// operand is where the tensor-core kernels read the weight.
func (m *Weight) operand() driver.Ptr {
	if m.Packed != nil {
		return m.Packed.Data
	}
	return m.Raw
}
