package launch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Sizes that kernels/held.cuh has, too.
const (
	heldMostStages = 8
	heldTiles      = 9   // of 64 inputs by 8 rows that a warp has registers for
	heldNormed     = 128 // inputs of a warp, of several rows that it norms
)

// heldUnits are those of a warp of which there are kernels, of one tile of rows, and of two.
var heldUnits = [...][]int{{2, 3, 4, 5, 6, 8}, {2, 3, 4, 5, 6}}

// heldLines is how a launch of kernels/held.cuh is cut.
type heldLines struct {
	tiles  int // of 8 rows
	normed int // rows in f32 that a block norms
	units  int // of 64 inputs, of a warp at most
	slot   int // bytes of a warp's part of a strip, at most
	stages int // of its ring, such a part each
	blocks int
	strips int // of a block
	more   int // blocks, the first ones, that have a strip more, or a gate's and an up's
	shared int
}

// held chooses how kernels/held.cuh makes a projection of up to 16 rows by 4-bit weights that round; ok is
// false where warps have no registers for their part of the rows, or other kernels are faster.
func (d *Device) held(f format, total, rows, in int, gated, normed bool) (s heldLines, ok bool) {
	wanted := d.Tuning.held == always || d.Tuning.held == ifFaster && d.Tuning.cluster == 0 && d.heldPays(total, rows, in)
	if !wanted || !d.takesFew(f, rows, in) {
		return s, false
	}
	s.tiles = Ceil(rows, 8)
	if normed {
		s.normed = rows
	}
	least := in / 64
	for i := range fewWorkers {
		begin, end := i*(in/64)/fewWorkers, (i+1)*(in/64)/fewWorkers
		least, s.units = min(least, end-begin), max(s.units, end-begin)
		s.slot = max(s.slot, (end-begin)*512+(Ceil(end, 2)-begin/2)*(f.granule-1024))
	}
	if least < s.units-1 || !slices.Contains(heldUnits[s.tiles-1], s.units) || s.normed > 1 && !d.heldNorms(total, rows, in) {
		return s, false
	}
	limit := min(cmp.Or(d.Tuning.shared, d.Info.SharedPerBlock), d.Info.SharedPerBlock) - reservedShared
	fixed := fewPlaces*fewWorkers*s.tiles*32*4*4 + 8*(2*fewPlaces+fewWorkers*heldMostStages) + fewWorkers*max(0, s.tiles*s.units-heldTiles)*1024
	switch {
	case s.normed > 1:
		fixed += 8 * (in*2 + fewWorkers*4 + 4) // normed rows, parts of their sums, scales
	case s.normed == 1:
		fixed += in*2 + fewWorkers*4
	}
	// As measured: few copies at a time, but some 48 KiB of a block's (docs/adr/0052-rows-stay-in-registers.md).
	stages := max(2, Ceil(48<<10, fewWorkers*s.slot))
	s.stages = min((limit-fixed)/(fewWorkers*s.slot), cmp.Or(d.Tuning.stages, stages), heldMostStages)
	// A multiprocessor has one block: of two, some would have two and others none.
	s.shared = max(s.stages*fewWorkers*s.slot+fixed, d.Info.SharedPerBlock/2+1<<10)
	each := 1
	if gated {
		each = 2
	}
	s.blocks = asFew(total/each, min(total/each, cmp.Or(d.Tuning.blocks, d.Info.SMs)))
	s.strips, s.more = dealt(total, each, s.blocks)
	return s, s.stages >= 2
}

// heldPays reports whether kernels/held.cuh is faster than what else there is, as measured on an H200
// (docs/adr/0052-rows-stay-in-registers.md): but where two strips a block have many rows of many inputs.
func (d *Device) heldPays(total, rows, in int) bool {
	return rows <= 8 || in <= 2048 || total <= d.Info.SMs || total > 2*d.Info.SMs
}

// heldNorms reports whether blocks have a kernel to norm several rows, and it is faster than a launch of its own:
// where they have few strips, as measured (docs/adr/0060-rows-nobody-wants-are-not-asked-for.md).
func (d *Device) heldNorms(total, rows, in int) bool {
	return in == fewWorkers*heldNormed && rows <= 8 && total <= 3*d.Info.SMs
}

// heldKernel is the kernel of a shape.
func heldKernel(f format, s heldLines) kernel {
	file := strings.Replace(f.file, "stream_", "held_", 1)
	name := fmt.Sprintf("%s_%d_%d", file, s.tiles, s.units)
	switch {
	case s.normed > 1:
		name += "_rows"
	case s.normed == 1:
		name += "_normed"
	}
	return kernel{file + "_hopper", name, s.shared}
}
