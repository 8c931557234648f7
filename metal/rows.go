package metal

// rowThreads bounds the threads of a threadgroup that takes a row: 512 hold a
// row of 8192 elements in registers (rows.metal).
const rowThreads = 512

// threadsOfRow is the threads of a threadgroup that takes a row, 4 elements
// each at a time: the width alone decides, so that other rows change no bit.
func threadsOfRow(width int) int {
	return min((width+127)/128*32, rowThreads)
}

// size is the bytes of one element; 1 for packed weights.
func (e elem) size() int {
	switch e {
	case elemF32, elemU32:
		return 4
	case elemF16, elemBF16:
		return 2
	}
	return 1
}

// name is how the host names of kernels have it.
func (e elem) name() string {
	switch e {
	case elemF32:
		return "f32"
	case elemF16:
		return "f16"
	case elemBF16:
		return "bf16"
	case elemU32:
		return "u32"
	}
	return "bytes"
}

// wide reports whether rows of that width can be taken 4 elements at a time:
// each row of each view then starts at a multiple of 4 elements.
func wide(width int, views ...view) uint32 {
	ok := width%4 == 0
	for _, v := range views {
		ok = ok && v.offset%(4*v.elem.size()) == 0
	}
	return flag(ok)
}

// normParams is rows.metal's NormParams.
type normParams struct {
	width uint32
	eps   float32
	wide  uint32
}

// rmsNorm norms rows of x, f32 [rows, width], by w, f32 [width], into dst, f32
// or bf16 of x's shape: x / sqrt(mean(x²) + eps) · w. dst may be x.
func rmsNorm(e encoder, dst, x, w view, rows, width int, eps float32) {
	p := normParams{uint32(width), eps, wide(width, dst, x, w)}
	e.dispatch(dispatch{
		file: "rows", kernel: "rms_norm_" + dst.elem.name(),
		args:   []arg{bind(dst), bind(x), bind(w), params(&p)},
		groups: size3{rows, 1, 1}, threads: size3{threadsOfRow(width), 1, 1},
		cost: normCost(dst, rows, width),
	})
}

// rmsNormWanted norms rows want[0] to want[rows-1] (u32) of x into rows 0 to
// rows-1 of dst. dst must not be x.
func rmsNormWanted(e encoder, dst, x, w, want view, rows, width int, eps float32) {
	p := normParams{uint32(width), eps, wide(width, dst, x, w)}
	c := normCost(dst, rows, width)
	c.read += 4 * int64(rows)
	e.dispatch(dispatch{
		file: "rows", kernel: "rms_norm_wanted_" + dst.elem.name(),
		args:   []arg{bind(dst), bind(x), bind(w), bind(want), params(&p)},
		groups: size3{rows, 1, 1}, threads: size3{threadsOfRow(width), 1, 1},
		cost: c,
	})
}

func normCost(dst view, rows, width int) cost {
	n := int64(rows) * int64(width)
	return cost{read: 4*n + 4*int64(width), written: n * int64(dst.elem.size()), flops: 4 * n}
}

// columnsParams is rows.metal's ColumnsParams.
type columnsParams struct{ width, first, part, wide uint32 }

// putColumns sets columns first to first+part-1 of dst, f32 or bf16 [rows, width], to src,
// f32 [rows, part].
func putColumns(e encoder, dst, src view, rows, width, first, part int) {
	p := columnsParams{uint32(width), uint32(first), uint32(part), wide(width|first|part, dst, src)}
	n := int64(rows) * int64(part)
	e.dispatch(dispatch{
		file: "rows", kernel: "put_columns_" + dst.elem.name(),
		args:   []arg{bind(dst), bind(src), params(&p)},
		groups: size3{rows, 1, 1}, threads: size3{threadsOfRow(part), 1, 1},
		cost: cost{read: 4 * n, written: n * int64(dst.elem.size())},
	})
}

// convertParams is rows.metal's ConvertParams.
type convertParams struct{ n, wide uint32 }

// convertRows sets dst to n elements of src: f32 rounded to bf16, or bf16
// widened to f32.
func convertRows(e encoder, dst, src view, n int) {
	const threads = 256
	p := convertParams{uint32(n), wide(0, dst, src)}
	e.dispatch(dispatch{
		file: "rows", kernel: "convert_" + dst.elem.name() + "_" + src.elem.name(),
		args:   []arg{bind(dst), bind(src), params(&p)},
		groups: size3{(n + 4*threads - 1) / (4 * threads), 1, 1}, threads: size3{threads, 1, 1},
		cost: cost{read: int64(n) * int64(src.elem.size()), written: int64(n) * int64(dst.elem.size())},
	})
}
