package metal

// embedParams is rows.metal's EmbedParams.
type embedParams struct{ width, wide uint32 }

// embedRows sets row r of dst, f32 [rows, table.in], to row tokens[r] (u32) of
// a table of any type.
func embedRows(e encoder, dst view, table weight, tokens view, rows int) {
	p := embedParams{width: uint32(table.in), wide: wide(table.in, dst, table.data)}
	n := int64(rows) * int64(table.in)
	e.dispatch(dispatch{
		file: "rows", kernel: "embed_" + table.dtype.String(),
		args:   []arg{bind(dst), bind(table.data), bind(tokens), params(&p)},
		groups: size3{rows, 1, 1}, threads: size3{threadsOfRow(table.in), 1, 1},
		cost: cost{read: int64(rows) * int64(4+table.dtype.RowBytes(table.in)), written: 4 * n},
	})
}
