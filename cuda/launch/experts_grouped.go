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
	groupedPartTiles = []int{1, 2}
)

// groupedTilesOf bounds the tiles of rows that experts have.
func groupedTilesOf(pairs, experts int) int { return Ceil(pairs, 8*groupedPartTiles[0]) + experts }

// groupsWide reports whether kernels/grouped_wide.cuh has kernels of experts in prompts, and
// whether it has them in decode passes.
func groupsWide(gate, down *Weight) (prompts, decode bool) {
	prompts = gate.Packed != nil && down.Packed != nil
	return prompts, prompts && gate.format().rounds && down.format().rounds
}

// GroupsWide is that of a mixture, for its router, which lists tiles.
func (e *Experts) GroupsWide() (prompts, decode bool) { return groupsWide(e.Gate.Of, e.Down.Of) }

// groupedTile is the tile, in 8 rows, in which kernels/grouped_wide.cuh takes the rows that
// chose an expert of a prompt, by how many those are in the mean: that which most experts' rows
// fit into. 0: kernels/grouped.cuh takes them.
func (d *Device) groupedTile(wide bool, pairs, experts int) int {
	if !wide || d.Tuning.groupedApart || !d.takesTiled() {
		return 0
	}
	if d.Tuning.grouped > 0 {
		return d.Tuning.grouped
	}
	switch mean := pairs / experts; {
	case mean <= 11:
		return 2
	case mean <= 24:
		return 4
	case mean <= 44:
		return 6
	}
	return 9
}

// groupedPartTile is that of a pass whose experts run as in decode passes. 0: kernels/experts.cuh
// takes it. So it does with few rows: an expert has one or two of them.
func (d *Device) groupedPartTile(wide bool, bucket, pairs, experts int) int {
	if !wide || d.Tuning.groupedApart || !d.takesTiled() || bucket <= fewRows {
		return 0
	}
	if d.Tuning.groupedParts > 0 {
		return d.Tuning.groupedParts
	}
	if pairs <= 3*experts {
		return 1
	}
	return 2
}

// expertsGrouped makes silu(gate·x) ⊙ up·x of all pairs in bf16, or, where up is nil,
// the products with gate in f32. each is how many pairs share a row of x.
func (d *Device) expertsGrouped(dst, x driver.Ptr, gate, up *ExpertList, each int, p *expertsPass) {
	wide, _ := p.GroupsWide()
	if t := d.groupedTile(wide, p.bucket*p.Chosen, p.Gate.Count); t > 0 {
		d.expertsWide("grouped_wide", t, dst, x, gate, up, 1, each, p)
		return
	}
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
		args = append(args, uint64(each))
	}
	suffix := f.file[len("stream"):]
	d.launch(kernel{"grouped" + suffix, name + suffix, stages * stage}, dim{x: Ceil(w.Out, outputs), y: Ceil(p.bucket*p.Chosen, groupedRows) + p.Gate.Count}, 32*warps,
		append(args, uint64(p.tiles))...)
}

// expertsWide is expertsGrouped by kernels/grouped_wide.cuh, by tiles of so many times 8 rows.
func (d *Device) expertsWide(family string, tile int, dst, x driver.Ptr, gate, up *ExpertList, parts, each int, p *expertsPass) {
	w := gate.Of
	f := w.format()
	warpgroups := 2
	if f.inputs == 128 { // of 4 bits: rings of three have room
		warpgroups = 3
	}
	name, outputs, args := "_down", 128*warpgroups, []uint64{gate.address(0)}
	if up != nil {
		name, outputs, args = "_gated", 64*warpgroups, append(args, up.address(0))
	}
	const slots = 4 // of a warp's ring
	stage, fixed := 8*tile*256, 2<<10+4*warpgroups*slots*2*(128/f.inputs)*f.granule
	stages := min(8, (d.Info.SharedPerBlock-reservedShared-fixed)/stage)
	suffix := f.file[len("stream"):]
	k := kernel{"grouped_wide" + suffix + "_hopper", fmt.Sprintf("%s%s%s_%d", family, name, suffix, tile), stages*stage + fixed}
	items := Ceil(w.Out, outputs) * (Ceil(p.bucket*p.each, 8*tile) + p.slots)
	d.launch(k, dim{x: min(d.Info.SMs, items)}, 128*warpgroups+128, append(args, uint64(x), uint64(dst), uint64(p.tables), uint64(p.pairs), uint64(w.In), uint64(w.Out), uint64(f.granule),
		uint64(f.shift), uint64(stages), uint64(parts), uint64(each), uint64(p.tiles), 1)...)
}
