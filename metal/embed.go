package metal

// embedParams is embed.metal's EmbedParams.
type embedParams struct{ in, group, wide uint32 }

// embedRows sets row r of dst, f32 [rows, table.in], to row tokens[r] (u32) of
// a table of any type.
func embedRows(e encoder, dst view, table weight, tokens view, rows int) {
	p := embedParams{uint32(table.in), uint32(table.group), flag(table.in%8 == 0 && table.data.offset%4 == 0)}
	row := int64(4 + table.dtype.RowBytes(table.in)) // with its token
	if table.dtype.Affine() {
		table.data.elem = elemU32 // the alignment that is checked
		row += 4 * int64(table.in/table.group)
	}
	e.dispatch(dispatch{
		file: "embed", kernel: "embed_" + table.dtype.String(),
		args:   []arg{bind(dst), bind(table.data), bind(table.scales), bind(table.biases), bind(tokens), params(&p)},
		groups: size3{rows, 1, 1}, threads: size3{threadsOfRow((table.in + 3) / 4), 1, 1}, // a thread takes 16 or 32 elements
		cost: cost{read: int64(rows) * row, written: 4 * int64(rows) * int64(table.in)},
	})
}
