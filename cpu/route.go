package cpu

import (
	"math"
	"slices"

	"windrow/backend"
	"windrow/cpu/kernels"
)

// route chooses experts for each row. The router's products have activations in f32
// whatever its own type is, and the same order of sums for any number of rows.
func (f *forward) route(d, h *buffer, o *backend.Op) {
	router := o.Weights[0].Weight.(*matrix)
	m := &f.mixture
	experts := router.Out()
	m.logits.sized(f.rows, experts)
	exact := matrix{Weight: router.Weight, proj: router.exact}
	f.dispatch(h.data, f.rows, []target{{w: &exact, dst: &m.logits}})
	f.rowsEach(experts, func(worker, r int) {
		s := &f.b.scratch[worker]
		choose(d.data[r*d.width:(r+1)*d.width], m.logits.data[r*experts:(r+1)*experts], o.Renormalise, &s.chosen)
	})
}

// choose writes the k largest of softmax(logits), their numbers ascending and then
// their weights, to dst of length 2k. It may reorder nothing else.
func choose(dst, logits []float32, renormalise bool, scratch *[]int32) {
	k := len(dst) / 2
	list := kernels.Grown(scratch, k)[:0]
	// An insertion into the best so far, which are few: of equal ones the earlier stays
	// ahead. What is no number is less than all others.
	at := func(e int32) float32 {
		if x := logits[e]; x == x {
			return x
		}
		return float32(math.Inf(-1))
	}
	for e := range int32(len(logits)) {
		x := at(e)
		if len(list) == k && x <= at(list[k-1]) {
			continue
		}
		i := len(list)
		for i > 0 && x > at(list[i-1]) {
			i--
		}
		if len(list) == k {
			list = list[:k-1]
		}
		list = slices.Insert(list, i, e)
	}
	largest := at(list[0])
	sum := 0.0
	if renormalise {
		for _, e := range list {
			sum += shareOf(at(e), largest)
		}
	} else {
		for e := range logits {
			sum += shareOf(at(int32(e)), largest)
		}
	}
	slices.Sort(list)
	for i, e := range list {
		dst[i], dst[k+i] = float32(e), float32(shareOf(at(e), largest)/sum)
	}
}

// shareOf is e^(x-largest), 1 where both are the same infinity.
func shareOf(x, largest float32) float64 {
	if x == largest {
		return 1
	}
	return math.Exp(float64(x) - float64(largest))
}
