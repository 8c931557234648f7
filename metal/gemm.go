package metal

// prefill tiles: rows and outputs of a threadgroup of four simdgroups.
const (
	prefillRows   = 64
	prefillBlocks = 2
)

// prefill multiplies many rows; nothing is promised of a row's bits.
func (p projection) prefill(e encoder) {
	params, blocks := p.params(projectBlock)
	d := p.dispatch("prefill", &params)
	d.threadgroup = 4 * keptBytes
	// Rows come first: groups that share weights run side by side.
	d.groups = size3{(p.rows + prefillRows - 1) / prefillRows, (blocks + prefillBlocks - 1) / prefillBlocks, 1}
	d.threads = size3{4 * 32, 1, 1}
	e.dispatch(d)
}
