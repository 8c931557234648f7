package metal

import (
	"fmt"
	"math"

	"windrow/backend"
)

// deltaPart is delta.metal's Part.
type deltaPart struct{ first, stride, width uint32 }

// deltaInput is a raw projection, f32 [rows, width], and where its parts lie.
type deltaInput struct {
	view
	part deltaPart
}

// delta is the operands of gated DeltaNet of one sequence. Rows' views are at the span's
// first row.
type delta struct {
	backend.StateShape
	logRows                        int
	q, k, v, z, b, a               deltaInput
	taps, logDecay, timeStep, norm view // f32
	eps                            float32
	// from is where the state is read; without a buffer there is none yet. to is where it
	// is written.
	from, to stateView
	// What from has covers folded indices, and its log those up to base; rows before
	// index settle are added for good.
	base, folded, settle, rows int
}

// stateView is a layer's states in memory of the device, all f32: state [value heads, key
// dim, value dim]; of the log keys [rows, keys], deltas [rows, values], decays [rows, value
// heads]; raw [raw rows, channels].
type stateView struct{ state, keys, deltas, decays, raw view }

// deltaWork is what a sequence's rows need besides: f32, of rows that many elements each.
type deltaWork struct{ queries, keys, values, gates, made view }

// deltaScratch is the bytes of a deltaWork.
func deltaScratch(s backend.StateShape, rows int) int {
	return 4 * rows * (2*s.Keys() + 2*s.Values() + 2*s.ValueHeads)
}

// workAt cuts a deltaWork out of memory.
func workAt(v view, s backend.StateShape, rows int) (w deltaWork) {
	v.elem = elemF32
	for _, p := range []struct {
		to    *view
		width int
	}{{&w.queries, s.Keys()}, {&w.keys, s.Keys()}, {&w.values, s.Values()}, {&w.made, s.Values()}, {&w.gates, 2 * s.ValueHeads}} {
		*p.to = v
		v = v.at(4 * rows * p.width)
	}
	return w
}

// deltaRowsParams is delta.metal's DeltaRowsParams.
type deltaRowsParams struct {
	rows, base, settle, moved              uint32
	keyHeads, valueHeads, keyDim, valueDim uint32
	conv, rawRows                          uint32
	scale, eps                             float32
	q, k, v, b, a                          deltaPart
}

// deltaColumnsParams is delta.metal's DeltaColumnsParams.
type deltaColumnsParams struct {
	rows, base, folded, settle                      uint32
	keyHeads, valueHeads, keyDim, valueDim, logRows uint32
	tiled, fresh, store                             uint32
}

// deltaFinishParams is delta.metal's DeltaFinishParams.
type deltaFinishParams struct {
	rows, base, settle                              uint32
	keyHeads, valueHeads, keyDim, valueDim, logRows uint32
	eps                                             float32
	z                                               deltaPart
}

// deltaDims are the key dimensions that kernels are made for, those below them too.
var deltaDims = []int{32, 128, 256}

// deltaKernel is the kernel of a key dimension; "" where there is none.
func deltaKernel(keyDim int) string {
	for _, n := range deltaDims {
		if keyDim <= n {
			return fmt.Sprintf("delta_columns_%d", n)
		}
	}
	return ""
}

// deltaNet sets rows of dst, f32 or bf16 [rows, values], to gated DeltaNet (backend.Delta)
// of a sequence's rows. A row's bits do not depend on how rows were cut into forwards.
func deltaNet(e encoder, dst view, w deltaWork, d delta) {
	fresh := d.from.state.buffer == nil
	inPlace := !fresh && d.from.state == d.to.state
	moved := 0
	if !fresh && !inPlace {
		moved = d.base - min(d.base, max(0, d.settle-d.Conv+1))
	}
	const simdgroups = 4 // of a threadgroup; each takes a head of a row
	all, n, state := int64(d.rows), int64(d.rows)*int64(d.Values()), int64(d.Size())
	log := 4 * int64(d.LogSize())
	kept := int64(min(d.rows, d.base+d.rows-d.settle))

	rows := deltaRowsParams{
		rows: uint32(d.rows), base: uint32(d.base), settle: uint32(d.settle), moved: uint32(moved),
		keyHeads: uint32(d.KeyHeads), valueHeads: uint32(d.ValueHeads), keyDim: uint32(d.KeyDim), valueDim: uint32(d.ValueDim),
		conv: uint32(d.Conv), rawRows: uint32(d.RawRows(d.logRows)), scale: float32(1 / math.Sqrt(float64(d.KeyDim))), eps: backend.DeltaEps,
		q: d.q.part, k: d.k.part, v: d.v.part, b: d.b.part, a: d.a.part,
	}
	e.dispatch(dispatch{
		file: "delta", kernel: "delta_rows",
		args: []arg{
			bind(w.queries), bind(w.keys), bind(w.values), bind(w.gates), bind(d.q.view), bind(d.k.view), bind(d.v.view), bind(d.b.view), bind(d.a.view),
			bind(d.from.raw), bind(d.to.raw), bind(d.taps), bind(d.logDecay), bind(d.timeStep), params(&rows),
		},
		groups: size3{((moved+d.rows)*d.KeyHeads + simdgroups - 1) / simdgroups, 1, 1}, threads: size3{32 * simdgroups, 1, 1},
		cost: cost{
			read:    4*all*int64(d.Channels()+2*d.ValueHeads) + 4*int64(d.Conv)*int64(d.Channels()),
			written: 4 * kept * int64(d.Channels()),
			flops:   2 * all * int64(d.Conv+4) * int64(d.Channels()),
		},
	})

	columns := deltaColumnsParams{
		rows: uint32(d.rows), base: uint32(d.base), folded: uint32(d.folded), settle: uint32(d.settle),
		keyHeads: uint32(d.KeyHeads), valueHeads: uint32(d.ValueHeads), keyDim: uint32(d.KeyDim), valueDim: uint32(d.ValueDim),
		logRows: uint32(d.logRows), tiled: flag(d.Tiled), fresh: flag(fresh), store: flag(!inPlace || d.folded != d.settle),
	}
	if fresh {
		columns.folded = columns.base // 0
	}
	folds := int64(d.base) - int64(columns.folded)
	c := cost{read: folds * log, written: kept * log, flops: (7*all + 3*folds) * state}
	if !fresh {
		c.read += 4 * state
	}
	if columns.store != 0 {
		c.written += 4 * state
	}
	e.dispatch(dispatch{
		file: "delta", kernel: deltaKernel(d.KeyDim),
		args: []arg{
			bind(w.made), bind(w.queries), bind(w.keys), bind(w.values), bind(w.gates), bind(d.from.state), bind(d.from.keys), bind(d.from.deltas), bind(d.from.decays),
			bind(d.to.state), bind(d.to.deltas), params(&columns),
		},
		groups: size3{(d.ValueDim + 31) / 32, d.ValueHeads, 1}, threads: size3{128, 1, 1},
		cost: c,
	})

	finish := deltaFinishParams{
		rows: uint32(d.rows), base: uint32(d.base), settle: uint32(d.settle),
		keyHeads: uint32(d.KeyHeads), valueHeads: uint32(d.ValueHeads), keyDim: uint32(d.KeyDim), valueDim: uint32(d.ValueDim),
		logRows: uint32(d.logRows), eps: d.eps, z: d.z.part,
	}
	e.dispatch(dispatch{
		file: "delta", kernel: "delta_finish_" + dst.elem.name(),
		args: []arg{
			bind(dst), bind(w.made), bind(d.z.view), bind(d.norm), bind(w.keys), bind(w.gates), bind(d.to.keys), bind(d.to.decays), params(&finish),
		},
		groups: size3{(d.rows*d.ValueHeads + simdgroups - 1) / simdgroups, 1, 1}, threads: size3{32 * simdgroups, 1, 1},
		cost: cost{read: 4 * n, written: n * int64(dst.elem.size()), flops: 10 * n},
	})
}
