package metal

import "math"

// routerParams is router.h.metal's RouterParams.
type routerParams struct{ rows, in, group, out uint32 }

// projectRouter computes dst = x·wᵀ, [rows, out], all in f32. A row's bits do not depend on
// the number of rows. What project says of the places of x and of weights holds here too.
func projectRouter(e encoder, dst, x view, rows int, w weight) {
	const simdgroups, outputs, unit = 4, 4, 4 // of a threadgroup; of a simdgroup, and its rows
	v := projection{dst: []view{dst}, x: x, rows: rows, w: []linear{{weight: w}}}
	kernel := "router_"
	if v.ragged() {
		kernel += "ragged_"
	}
	p := routerParams{uint32(rows), uint32(w.in), uint32(w.group), uint32(w.out)}
	if w.dtype.Affine() {
		w.data.elem = elemU32 // the alignment that is checked
	}
	e.dispatch(dispatch{
		file: "experts_" + w.dtype.String(), kernel: kernel + w.dtype.String(),
		args:   []arg{bind(x), bind(w.data), bind(w.scales), bind(w.biases), bind(dst), params(&p)},
		groups: size3{(w.out + simdgroups*outputs - 1) / (simdgroups * outputs), (rows + unit - 1) / unit, 1}, threads: size3{32 * simdgroups, 1, 1},
		cost: v.cost(),
	})
}

// routeParams is mixture.metal's RouteParams.
type routeParams struct{ rows, experts, chosen, renormalise uint32 }

// routeRows chooses experts for rows of logits, f32 [rows, experts]. routing, f32 [rows,
// 2·chosen], gets their numbers and then their weights.
func routeRows(e encoder, routing, logits view, rows, experts, chosen int, renormalise bool) {
	const simdgroups = 4 // of a threadgroup; each takes a row
	p := routeParams{uint32(rows), uint32(experts), uint32(chosen), flag(renormalise)}
	n := int64(rows) * int64(experts)
	e.dispatch(dispatch{
		file: "mixture", kernel: "route",
		args:   []arg{bind(routing), bind(logits), params(&p)},
		groups: size3{(rows + simdgroups - 1) / simdgroups, 1, 1}, threads: size3{32 * simdgroups, 1, 1},
		cost: cost{read: 4 * n, written: 8 * int64(rows*chosen), flops: 4 * n},
	})
}

// slotWords is what a slot of experts.h.metal has: expert, first pair, pairs.
const slotWords = 3

// slotsOf is how many experts that many rows can have at most.
func slotsOf(rows, experts, chosen int) int { return min(experts, rows*chosen) }

// sortParams is mixture.metal's SortParams.
type sortParams struct{ rows, experts, chosen, slots uint32 }

// maxExperts bounds the experts of a layer: their counts are in threadgroup memory.
const maxExperts = 4096

// sortPairs lists the pairs of a routing, f32 [rows, 2·chosen], by expert: in slots, u32
// [slotsOf, slotWords], the experts that have rows, and in list, u32 [rows·chosen], their
// pairs.
func sortPairs(e encoder, slots, list, routing view, rows, experts, chosen int) {
	p := sortParams{uint32(rows), uint32(experts), uint32(chosen), uint32(slotsOf(rows, experts, chosen))}
	pairs := int64(rows) * int64(chosen)
	e.dispatch(dispatch{
		file: "mixture", kernel: "sort_pairs",
		args:        []arg{bind(slots), bind(list), bind(routing), params(&p)},
		threadgroup: 4 * experts,
		groups:      size3{1, 1, 1}, threads: size3{min((experts+31)/32*32, rowThreads), 1, 1},
		cost: cost{read: 8 * pairs, written: 4*slotWords*int64(p.slots) + 4*pairs},
	})
}

// sumParams is mixture.metal's SumParams.
type sumParams struct{ width, chosen, shared, wide uint32 }

// addExperts adds to rows of dst, f32 [rows, width], what experts made of them, f32 [rows,
// chosen, width], by the weights of routing; and what the shared expert made, f32 [rows,
// width], by the sigmoid of logits, f32 [rows], where there is one.
func addExperts(e encoder, dst, made, routing, shared, logits view, rows, width, chosen int) {
	const threads = 128
	p := sumParams{uint32(width), uint32(chosen), flag(shared.buffer != nil), wide(width, dst, made, shared)}
	n := int64(rows) * int64(width)
	e.dispatch(dispatch{
		file: "mixture", kernel: "add_experts",
		args:   []arg{bind(dst), bind(made), bind(routing), bind(shared), bind(logits), params(&p)},
		groups: size3{(width + 4*threads - 1) / (4 * threads), rows, 1}, threads: size3{threads, 1, 1},
		cost: cost{read: 4 * n * int64(1+chosen+int(p.shared)), written: 4 * n, flops: 2 * n * int64(chosen+int(p.shared))},
	})
}

// distinctExperts is how many experts rows choose that choose without regard to one
// another.
func distinctExperts(rows, experts, chosen int) float64 {
	return float64(experts) * (1 - math.Pow(1-float64(chosen)/float64(experts), float64(rows)))
}
