package decoder

import "slices"

// distribution is a finite distribution over token ids. ids ascend, probs has
// the weight of each; ids nil means that probs is indexed by id. The weights
// add up to total, about 1.
type distribution struct {
	ids   []int32
	probs []float32
	total float64
}

// point is the distribution of a certain token: what greedy choice draws from.
func point(id int32) distribution {
	return distribution{ids: []int32{id}, probs: []float32{1}, total: 1}
}

// id is the token of entry i.
func (d distribution) id(i int) int32 {
	if d.ids == nil {
		return int32(i)
	}
	return d.ids[i]
}

// prob is the probability of a token.
func (d distribution) prob(id int32) float64 {
	i := int(id)
	if d.ids != nil {
		var found bool
		if i, found = slices.BinarySearch(d.ids, id); !found {
			return 0
		}
	}
	if i < 0 || i >= len(d.probs) || d.total <= 0 {
		return 0
	}
	return float64(d.probs[i]) / d.total
}
