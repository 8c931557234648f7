package metal

// prefill tiles: rows and outputs of a threadgroup of four simdgroups.
const (
	prefillRows   = 64
	prefillBlocks = 2
)

// leastPrefill is the threadgroups from which on prefill has kernels of its own:
// 16 simdgroups for each core of the largest GPUs. Below it windows keep more
// of the GPU busy, four simdgroups to a tile that prefill gives to one.
const leastPrefill = 160

// prefillGroups is the threadgroups of a prefill.
func (p projection) prefillGroups() size3 {
	_, blocks := p.params(projectBlock)
	// Rows come first: groups that share weights run side by side.
	return size3{(p.rows + prefillRows - 1) / prefillRows, (blocks + prefillBlocks - 1) / prefillBlocks, 1}
}

// prefill multiplies many rows; nothing is promised of a row's bits.
func (p projection) prefill(e encoder) {
	params, _ := p.params(projectBlock)
	d := p.dispatch("prefill", &params)
	d.threadgroup = 4 * keptBytes
	d.groups, d.threads = p.prefillGroups(), size3{4 * 32, 1, 1}
	e.dispatch(d)
}
