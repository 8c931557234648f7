package metal

// gateParams is gate.metal's GateParams.
type gateParams struct{ n, wide uint32 }

// gateRows sets n elements of dst, f32 or bf16, to silu(gate) * up, both f32.
// dst may be either of them.
func gateRows(e encoder, dst, gate, up view, n int) {
	const threads = 256
	p := gateParams{uint32(n), wide(n, dst, gate, up)}
	e.dispatch(dispatch{
		file: "gate", kernel: "gate_rows_" + dst.elem.name(),
		args:   []arg{bind(dst), bind(gate), bind(up), params(&p)},
		groups: size3{(n + 4*threads - 1) / (4 * threads), 1, 1}, threads: size3{threads, 1, 1},
		cost: cost{read: 8 * int64(n), written: int64(n) * int64(dst.elem.size()), flops: 5 * int64(n)},
	})
}
