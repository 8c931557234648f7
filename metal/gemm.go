package metal

// prefillTile is that of a simdgroup; a threadgroup is four of them, two by two,
// which share what they multiply.
var prefillTile = projectTile{outputs: 32, rows: 32}

// leastPrefill is the threadgroups from which on prefill has kernels of its own:
// 16 simdgroups for each core of the largest GPUs. Below it windows keep more
// of the GPU busy, four simdgroups to a tile that prefill gives to one.
const leastPrefill = 160

// prefillGroups is the threadgroups of a prefill.
func (p projection) prefillGroups() size3 {
	_, blocks := p.params(prefillTile.outputs)
	// Rows come first: groups that share weights run side by side.
	return size3{(p.rows + 2*prefillTile.rows - 1) / (2 * prefillTile.rows), (blocks + 1) / 2, 1}
}

// prefill multiplies many rows; nothing is promised of a row's bits.
func (p projection) prefill(e encoder) {
	params, _ := p.params(prefillTile.outputs)
	d := p.dispatch("prefill", &params)
	d.threadgroup = 2 * prefillTile.bytes()
	d.groups, d.threads = p.prefillGroups(), size3{4 * 32, 1, 1}
	e.dispatch(d)
}
