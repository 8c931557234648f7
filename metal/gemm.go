package metal

// prefillTile is that of a simdgroup; a threadgroup is four of them, two by two,
// which share what they multiply.
var prefillTile = projectTile{outputs: 32, rows: 32}

// leastPrefill is the threadgroups from which on prefill has kernels of its own:
// 16 simdgroups for each core of the largest GPUs. Below it windows keep more
// of the GPU busy, four simdgroups to a tile that prefill gives to one.
const leastPrefill = 160

// prefillGroups is the threadgroups of a prefill of that many rows.
func (p projection) prefillGroups(rows int) size3 {
	_, blocks := p.params(prefillTile.outputs)
	// Rows come first: groups that share weights run side by side.
	return size3{(rows + 2*prefillTile.rows - 1) / (2 * prefillTile.rows), (blocks + 1) / 2, 1}
}

// smallPrefill reports whether windows take a prefill. Up to promptRows it depends on the
// shape of the weights alone, as if they were so many: rows of a prompt are to have the
// same bits in forwards of any number of them.
func (p projection) smallPrefill() bool {
	g := p.prefillGroups(max(p.rows, promptRows))
	return g[0]*g[1] < leastPrefill
}

// prefill multiplies many rows, in an order of sums that the shape of the weights decides.
func (p projection) prefill(e encoder) {
	params, _ := p.params(prefillTile.outputs)
	d := p.dispatch("prefill", &params)
	d.threadgroup = 2 * prefillTile.bytes()
	d.groups, d.threads = p.prefillGroups(p.rows), size3{4 * 32, 1, 1}
	e.dispatch(d)
}
