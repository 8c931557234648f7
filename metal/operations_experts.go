package metal

import (
	"fmt"

	"windrow/backend"
)

// projectRouter multiplies with one weight, from activations in f32 whatever its type is.
func (f *forward) projectRouter(o *backend.Op, dst, src backend.Buffer, m backend.Matrix) error {
	w, err := f.matrixOf(o, m)
	if err != nil {
		return err
	}
	f.add(o, op{dst: []backend.Buffer{dst}, src: []backend.Buffer{src}, reads: asF32, writes: asF32, encode: func(e encoder, r *run, dst, src []view) {
		projectRouter(e, dst[0], src[0], r.rows, w)
	}})
	return nil
}

// route is the router's projection and the choice: activations stay in f32, as rounding
// would choose other experts.
func (f *forward) route(o *backend.Op) error {
	router := o.Weights[0].Weight
	experts, chosen, renormalise := router.Out(), o.Chosen, o.Renormalise
	logits := f.buffer(experts)
	if err := f.projectRouter(o, logits, o.Src[0], router); err != nil {
		return err
	}
	f.add(o, op{dst: o.Dst, src: []backend.Buffer{logits}, reads: asF32, writes: asF32, encode: func(e encoder, r *run, dst, src []view) {
		routeRows(e, dst[0], src[0], r.rows, experts, chosen, renormalise)
	}})
	return nil
}

// expertsAdd lists the pairs of rows and experts, multiplies them by the experts' gates and
// ups and then downs, and adds them up with the shared expert's.
func (f *forward) expertsAdd(o *backend.Op) error {
	h, routing, experts := o.Src[0], o.Src[1], o.Experts
	n, chosen := len(experts.Gate), o.Chosen
	if n > maxExperts {
		return &backend.UnsupportedError{Backend: f.b.Name(), What: fmt.Sprintf("mixture of %d experts, at most %d", n, maxExperts)}
	}
	pairs := []backend.Buffer{f.buffer(slotWords * chosen), f.buffer(chosen)}
	f.add(o, op{dst: pairs, src: []backend.Buffer{routing}, reads: asF32, writes: asF32, encode: func(e encoder, r *run, dst, src []view) {
		sortPairs(e, dst[0], dst[1], src[0], r.rows, n, chosen)
	}})
	inner, width := experts.Gate[0].Out(), f.widths[h]
	middle, made := f.buffer(chosen*inner), f.buffer(chosen*width)
	if err := f.gatedExperts(o, middle, h, pairs); err != nil {
		return err
	}
	downs, err := f.matricesOf(o, experts.Down)
	if err != nil {
		return err
	}
	if err := f.projectExperts(o, made, middle, pairs, downs, nil, 1); err != nil {
		return err
	}
	sum := []backend.Buffer{made, routing}
	if s := experts.Shared; s != nil {
		shared, out, logits := f.buffer(s.Gate.Out()), f.buffer(width), f.buffer(1)
		part := *o
		part.Dst, part.Src = []backend.Buffer{shared}, []backend.Buffer{h}
		part.Weights = []backend.Linear{{Weight: s.Gate}, {Weight: s.Up}}
		if err := f.gatedProject(&part); err != nil {
			return err
		}
		part.Dst, part.Src = []backend.Buffer{out}, []backend.Buffer{shared}
		if err := f.project(&part, part.Dst, []backend.Linear{{Weight: s.Down}}); err != nil {
			return err
		}
		if err := f.projectRouter(o, logits, h, s.Weight); err != nil {
			return err
		}
		sum = append(sum, out, logits)
	}
	f.add(o, op{dst: o.Dst, src: sum, reads: asF32, writes: asF32, adds: true, encode: func(e encoder, r *run, dst, src []view) {
		var shared, logits view
		if len(src) > 2 {
			shared, logits = src[2], src[3]
		}
		addExperts(e, dst[0], src[0], src[1], shared, logits, r.rows, width, chosen)
	}})
	return nil
}

// gatedExperts is gates and ups: together, but where they have formats of their own.
func (f *forward) gatedExperts(o *backend.Op, middle, h backend.Buffer, pairs []backend.Buffer) error {
	gates, err := f.matricesOf(o, o.Experts.Gate)
	if err != nil {
		return err
	}
	ups, err := f.matricesOf(o, o.Experts.Up)
	if err != nil {
		return err
	}
	together := true
	for i := range gates {
		together = together && gates[i].dtype == ups[i].dtype && gates[i].group == ups[i].group
	}
	if together {
		return f.projectExperts(o, middle, h, pairs, gates, ups, o.Chosen)
	}
	width := f.widths[middle]
	both := []backend.Buffer{f.buffer(width), f.buffer(width)}
	for i, list := range [][]weight{gates, ups} {
		if err := f.projectExperts(o, both[i], h, pairs, list, nil, o.Chosen); err != nil {
			return err
		}
	}
	f.add(o, op{dst: []backend.Buffer{middle}, src: both, reads: asF32, writes: asF32 | asBF16, encode: func(e encoder, r *run, dst, src []view) {
		gateRows(e, dst[0], src[0], src[1], r.rows*width)
	}})
	return nil
}

// projectExperts is a dispatch for each format and each set of buffers that the experts
// have. x has a row for per pairs.
func (f *forward) projectExperts(o *backend.Op, dst, x backend.Buffer, pairs []backend.Buffer, firsts, seconds []weight, per int) error {
	var groups []expertWeights
	for _, g := range groupExperts(firsts, seconds) {
		places, err := f.b.weights.copy(g.words, elemU32)
		if err != nil {
			return err
		}
		g.places = places
		groups = append(groups, g.expertWeights)
	}
	// One form for all: they write one buffer.
	reads, writes := asBF16, asF32
	for _, g := range groups {
		if f.b.operand(linear{weight: g.weight}) == asF32 {
			reads = asF32
		}
	}
	if seconds != nil {
		writes |= asBF16
	}
	chosen := o.Chosen
	f.add(o, op{dst: []backend.Buffer{dst}, src: []backend.Buffer{x}, lists: pairs, reads: reads, writes: writes, encode: func(e encoder, r *run, dst, src []view) {
		for _, g := range groups {
			projectExperts(e, dst[0], src[0], src[1], src[2], r.rows, chosen, per, g)
		}
	}})
	return nil
}

// matricesOf are weights of this backend.
func (f *forward) matricesOf(o *backend.Op, list []backend.Matrix) ([]weight, error) {
	all := make([]weight, len(list))
	for i, m := range list {
		var err error
		if all[i], err = f.matrixOf(o, m); err != nil {
			return nil, err
		}
	}
	return all, nil
}
