package cpu

import (
	"math"

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
		if len(list) < k {
			list = append(list, 0)
		}
		copy(list[i+1:], list[i:])
		list[i] = e
	}
	largest := at(list[0])
	sum := 0.0
	var few [16]float64
	shares := few[:0] // in the order of the list
	for _, e := range list {
		shares = append(shares, shareOf(at(e), largest))
	}
	if renormalise {
		for _, x := range shares {
			sum += x
		}
	} else {
		for e := range logits {
			sum += shareOf(at(int32(e)), largest)
		}
	}
	for i := range list { // by number: an insertion, as they are few
		e, x := list[i], shares[i]
		j := i
		for ; j > 0 && list[j-1] > e; j-- {
			list[j], shares[j] = list[j-1], shares[j-1]
		}
		list[j], shares[j] = e, x
	}
	for i, e := range list {
		dst[i], dst[k+i] = float32(e), float32(shares[i]/sum)
	}
}

// shareOf is e^(x-largest), 1 where both are the same infinity.
func shareOf(x, largest float32) float64 {
	if x == largest {
		return 1
	}
	return math.Exp(float64(x) - float64(largest))
}
