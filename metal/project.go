package metal

import (
	"fmt"

	"windrow/backend"
)

// windowRows is how many rows the kernels of decode forwards take at a time.
const windowRows = 32

// splits is how many simdgroups share the inputs of a block of outputs in
// decode forwards. The order of a row's sums depends on it: it follows from the
// shape of the weights alone.
const splits = 4

// projectTile is the outputs and rows of a simdgroup's tile of project.h.metal:
// half of the outputs are of the gate where there is one.
type projectTile struct{ outputs, rows int }

// windowTiles are those of decode forwards, for up to so many rows each. The
// fewer rows, the more outputs take turns with them in registers: 32 outputs
// × 8 or 16 rows, or 16 × 32.
var windowTiles = [...]projectTile{{32, 8}, {32, 16}, {16, windowRows}}

// lineBytes is a line of threadgroup memory: 32 inputs of an output or of a row, or
// 32 sums of a row, in f32, and what spreads lines over its banks.
const lineBytes = (32 + 4) * 4

// bytes is the threadgroup memory of a simdgroup's tile, which its sums need less of.
func (t projectTile) bytes() int { return (t.outputs + t.rows) * lineBytes }

// project computes dst[i] = x·w[i]ᵀ + bias, [rows, out]. x, [rows, in], is f32
// or bf16; sums are f32, over weights of exact values. Weights of one format
// are one dispatch, three at most. In a decode forward a row's bits do not depend
// on the number of rows; more than windowRows are cut to windows then. In others they
// do not either, up to promptRows, but are not those of decode forwards.
//
// Packed affine words begin at a multiple of 4 bytes, and x of quantised weights
// at a multiple of 16; floats are read fastest where x does too, in is a
// multiple of 8 and the weights begin at a multiple of 4.
func project(e encoder, dst []view, x view, rows int, w []linear, decode bool) {
	for len(w) > 0 {
		n := 1
		for n < min(len(w), 3) && w[n].sharesDispatch(w[0]) && dst[n].elem == dst[0].elem {
			n++
		}
		projection{dst: dst[:n], x: x, rows: rows, w: w[:n], decode: decode}.encode(e)
		dst, w = dst[n:], w[n:]
	}
}

// projectAdd adds x·wᵀ + bias to dst, f32 [rows, out].
func projectAdd(e encoder, dst, x view, rows int, w linear, decode bool) {
	projection{dst: []view{dst}, x: x, rows: rows, w: []linear{w}, add: true, decode: decode}.encode(e)
}

// gatedProject computes dst = silu(x·gateᵀ) ⊙ (x·upᵀ), biases added, in f32 or
// bf16, for weights of one format and shape.
func gatedProject(e encoder, dst, x view, rows int, gate, up linear, decode bool) {
	projection{dst: []view{dst}, x: x, rows: rows, w: []linear{gate, up}, gated: true, decode: decode}.encode(e)
}

// sharesDispatch reports whether one dispatch can take both.
func (w *linear) sharesDispatch(v linear) bool {
	return w.dtype == v.dtype && w.in == v.in && w.group == v.group
}

// projection is one dispatch of up to three weights of one format.
type projection struct {
	dst        []view
	x          view
	rows       int
	w          []linear
	gated, add bool
	decode     bool
}

// projectParams is project.h.metal's ProjectParams.
type projectParams struct {
	rows, in, group uint32
	out, end        [3]uint32
	gated, add      uint32
	halves, biased  uint32
}

// encode chooses the kernel.
func (p projection) encode(e encoder) {
	switch {
	case p.ragged():
		p.window(e)
	case p.rows == 1 && p.decode && useMatvec.Load():
		p.matvec(e)
	case p.decode || p.smallPrefill():
		p.window(e)
	default:
		p.prefill(e)
	}
}

// ragged reports whether rows of floats or their places are no whole multiples of
// what is loaded at once: they have a kernel of their own. Quantised rows never
// are, in memory of forwards; of other places it would be a mistake.
func (p projection) ragged() bool {
	ragged := p.w[0].in%8 != 0 || p.x.offset%16 != 0
	for _, w := range p.w {
		ragged = ragged || w.data.offset%4 != 0 && !w.dtype.Quantized()
	}
	if ragged && p.w[0].dtype.Quantized() {
		panic(fmt.Sprintf("metal: projection of rows of %d from byte %d on", p.w[0].in, p.x.offset))
	}
	return ragged
}

// window multiplies windows of rows, in the first of windowTiles that takes all.
func (p projection) window(e encoder) {
	tile := windowTiles[len(windowTiles)-1]
	kernel := "ragged"
	if !p.ragged() {
		for i := len(windowTiles) - 2; i >= 0 && p.rows <= windowTiles[i].rows; i-- {
			tile = windowTiles[i]
		}
		kernel = fmt.Sprintf("project_%d", tile.rows)
	}
	simdgroups := min(splits, (p.w[0].in+stripInputs(p.w[0].dtype)-1)/stripInputs(p.w[0].dtype))
	params, blocks := p.params(tile.outputs)
	d := p.dispatch(kernel, &params)
	d.threadgroup = simdgroups * tile.bytes()
	// Windows come first: those that share weights run side by side.
	d.groups, d.threads = size3{(p.rows + tile.rows - 1) / tile.rows, blocks, 1}, size3{32 * simdgroups, 1, 1}
	e.dispatch(d)
}

// stripInputs is the inputs of a strip of weights.h.metal: eight runs.
func stripInputs(d backend.DType) int {
	switch d {
	case backend.Affine4, backend.Q4_0, backend.Q4_K, backend.Q6_K:
		return 128
	}
	return 64
}

// params fills the parameters for blocks of unit outputs, and counts these.
func (p projection) params(unit int) (projectParams, int) {
	w := p.w[0]
	v := projectParams{
		rows: uint32(p.rows), in: uint32(w.in), group: uint32(w.group),
		gated: flag(p.gated), add: flag(p.add), halves: flag(p.dst[0].elem == elemBF16),
	}
	blocks := 0
	for i, w := range p.w {
		v.out[i] = uint32(w.out)
		if w.bias.buffer != nil {
			v.biased |= 1 << i
		}
		if !p.gated {
			blocks += (w.out + unit - 1) / unit
			v.end[i] = uint32(blocks)
		}
	}
	if p.gated {
		blocks = (w.out + unit/2 - 1) / (unit / 2)
		v.end[0] = uint32(blocks)
	}
	for i := 1; i < 3; i++ {
		v.end[i] = max(v.end[i], v.end[i-1])
	}
	return v, blocks
}

func flag(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// dispatch is a launch of a kernel whose name begins so, without its size.
func (p projection) dispatch(kernel string, v *projectParams) dispatch {
	format := p.w[0].dtype.String()
	d := dispatch{file: "project_" + format, kernel: kernel + "_" + format + "_" + p.x.elem.name(), cost: p.cost()}
	d.args = append(make([]arg, 0, 17), bind(p.x))
	three := func(of func(w linear) view) {
		for i := range 3 {
			d.args = append(d.args, bind(of(p.w[min(i, len(p.w)-1)])))
		}
	}
	three(func(w linear) view {
		if w.dtype.Affine() {
			w.data.elem = elemU32 // the alignment that is checked
		}
		return w.data
	})
	three(func(w linear) view { return w.scales })
	three(func(w linear) view { return w.biases })
	three(func(w linear) view { return w.bias })
	for i := range 3 {
		d.args = append(d.args, bind(p.dst[min(i, len(p.dst)-1)]))
	}
	d.args = append(d.args, params(v))
	return d
}

// cost counts each weight, each row of x and each result once.
func (p projection) cost() cost {
	rows := int64(p.rows)
	c := cost{read: rows * int64(p.w[0].in) * int64(p.x.elem.size())}
	for i, w := range p.w {
		c.read += w.bytes()
		if w.bias.buffer != nil {
			c.read += 4 * int64(w.out)
		}
		c.flops += 2 * rows * int64(w.out) * int64(w.in)
		if i >= len(p.dst) {
			continue
		}
		n := rows * int64(w.out) * int64(p.dst[i].elem.size())
		c.written += n
		if p.add {
			c.read += n
		}
	}
	return c
}

// bytes is what the weight takes, scales and biases included.
func (w *weight) bytes() int64 {
	n := int64(w.out) * int64(w.dtype.RowBytes(w.in))
	if w.dtype.Affine() {
		n += int64(w.out) * int64(w.in/w.group) * 4
	}
	return n
}
