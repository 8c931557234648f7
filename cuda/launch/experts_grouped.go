package launch

import (
	"fmt"

	"windrow/cuda/driver"
)

// groupedRows is how many rows of an expert a block of grouped.cuh takes, at most: with
// two stages of its ring, two blocks are at work on a multiprocessor.
const groupedRows = 64

// groupedTiles and groupedPartTiles are the tiles, in 8 rows, that kernels/grouped_wide.cuh
// has kernels of: of prompts, and with inputs in parts as in decode passes.
var (
	groupedTiles     = []int{2, 4, 6, 9}
	groupedPartTiles = []int{1, 2, 4}
)

// groupedTilesOf bounds the tiles of rows that experts have.
func groupedTilesOf(pairs, experts int) int { return Ceil(pairs, 8*groupedPartTiles[0]) + experts }

// Wide reports whether kernels/grouped_wide.cuh has kernels of a mixture's experts.
func (e *Experts) Wide() bool { return e.Gate.Of.Packed != nil && e.Down.Of.Packed != nil }

// groupedTile is the tile, in 8 rows, in which kernels/grouped_wide.cuh takes the rows that
// chose an expert, by how many those are in the mean: that which most experts' rows fit into.
// 0: other kernels take them, as few rows of a decode pass, of which an expert has one or two.
func (d *Device) groupedTile(wide, decode bool, rows Rows, chosen, experts int) int {
	few := FewForExperts(decode, rows)
	if !wide || few && rows.Count <= fewRows || d.Tuning.groupedApart || !d.takesTiled() {
		return 0
	}
	if d.Tuning.grouped > 0 {
		return d.Tuning.grouped
	}
	mean := float64(rows.Count*chosen) / float64(experts)
	switch {
	case few && (mean <= 3 || mean <= 4 && rows.Count <= 64): // a shared expert has all rows
		return 1
	case mean < 12:
		return 2
	case few || mean < 25:
		return 4
	case mean < 45:
		return 6
	}
	return 9
}

// expertsGrouped makes silu(gate·x) ⊙ up·x of all pairs in bf16, or, where up is nil, the
// products with gate in f32.
func (d *Device) expertsGrouped(p *expertsPass, dst, x driver.Ptr, gate, up *ExpertList) {
	const warps = 8
	w := gate.Of
	f := w.format()
	stage := groupedRows*f.inputs*2 + warps*2*f.granule
	stages := max(2, min(4, min(d.Info.SharedPerBlock-reservedShared, 110<<10)/stage))
	name, outputs, args := "grouped_down", warps*32, []uint64{gate.address(0)}
	if up != nil {
		name, outputs, args = "grouped_gated", warps*16, append(args, up.address(0))
	}
	args = append(args, uint64(x), uint64(dst), uint64(p.tables), uint64(p.pairs), uint64(w.In), uint64(w.Out), uint64(f.granule), uint64(f.shift), uint64(stages))
	if up != nil {
		args = append(args, uint64(p.each))
	}
	suffix := f.file[len("stream"):]
	d.launch(kernel{"grouped" + suffix, name + suffix, stages * stage}, dim{x: Ceil(w.Out, outputs), y: Ceil(p.bucket*p.each, groupedRows) + p.slots}, 32*warps,
		append(args, uint64(p.tiles))...)
}

// expertsWide is expertsGrouped by kernels/grouped_wide.cuh, in prompts and in decode passes.
func (d *Device) expertsWide(p *expertsPass, dst, x driver.Ptr, gate, up *ExpertList) {
	w := gate.Of
	f := w.format()
	warpgroups := 2
	if f.nibbles() { // rings of three have room
		warpgroups = 3
	}
	family, name, outputs, args := "grouped_wide", "_down", 128*warpgroups, []uint64{gate.address(0)}
	parts, each := downParts(f, w.In), 1
	if up != nil {
		name, outputs, args = "_gated", 64*warpgroups, append(args, up.address(0))
		parts, each = gatedParts(f, w.In), p.each
	}
	if p.few {
		family = "grouped_parts"
	}
	const slots = 4 // of a warp's ring
	row := 2 * 128  // bytes of a stage
	if p.few && f.sums && !f.rounds {
		row += 2 * 2 * 4 // sums of inputs
	}
	stage, fixed := 8*p.wideTile*row, 2<<10+4*warpgroups*slots*2*(128/f.inputs)*f.granule
	stages := min(8, (d.Info.SharedPerBlock-reservedShared-fixed)/stage) // there are barriers of 8
	suffix := f.file[len("stream"):]
	k := kernel{"grouped_wide" + suffix + "_hopper", fmt.Sprintf("%s%s%s_%d", family, name, suffix, p.wideTile), stages*stage + fixed}
	items := Ceil(w.Out, outputs) * (Ceil(p.bucket*p.each, 8*p.wideTile) + p.slots)
	d.launch(k, dim{x: min(d.Info.SMs, items)}, 128*warpgroups+128, append(args, uint64(x), uint64(dst), uint64(p.tables), uint64(p.pairs), uint64(w.In), uint64(w.Out), uint64(f.granule),
		uint64(f.shift), uint64(stages), uint64(parts), uint64(each), uint64(p.tiles))...)
}
