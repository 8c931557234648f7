package launch

import "windrow/cuda/driver"

// groupedRows is how many rows of an expert a block of grouped.cuh takes, at most: with
// two stages of its ring, two blocks are at work on a multiprocessor.
const groupedRows = 64

// groupedTilesOf bounds the tiles of rows that experts have.
func groupedTilesOf(pairs, experts int) int { return Ceil(pairs, groupedRows) + experts }

// expertsGrouped makes silu(gate·x) ⊙ up·x of all pairs in bf16, or, where up is nil,
// the products with gate in f32. each is how many pairs share a row of x. tiles is where
// the list of tiles lies in the tables, in words.
func (d *Device) expertsGrouped(dst, x driver.Ptr, gate, up *ExpertList, each, count int, tables, pairs driver.Ptr, tiles int) {
	const warps = 8
	w := gate.Of
	f := w.format()
	stage := groupedRows*f.inputs*2 + warps*2*f.granule
	stages := max(2, min(4, min(d.Info.SharedPerBlock-reservedShared, 110<<10)/stage))
	name, outputs, list := "grouped_down", warps*32, []uint64{gate.address(0)}
	if up != nil {
		name, outputs, list = "grouped_gated", warps*16, append(list, up.address(0))
	}
	args := append(list, uint64(x), uint64(dst), uint64(tables), uint64(pairs), uint64(w.In), uint64(w.Out), uint64(f.granule), uint64(f.shift), uint64(stages))
	if up != nil {
		args = append(args, uint64(each))
	}
	suffix := f.file[len("stream"):]
	d.launch(kernel{"grouped" + suffix, name + suffix, stages * stage}, dim{x: Ceil(w.Out, outputs), y: groupedTilesOf(count, gate.Count)}, 32*warps,
		append(args, uint64(tiles))...)
}
