package decoder

// distribution is a finite distribution over token ids. ids ascend, weights has
// what is proportional to the probability of each; ids nil means that weights is
// indexed by id. Draws need no more: a common factor changes no winner.
type distribution struct {
	ids     []int32
	weights []float32
}

// point is the distribution of a certain token: what greedy choice draws from.
func point(id int32) distribution {
	return distribution{ids: []int32{id}, weights: []float32{1}}
}

// id is the token of entry i.
func (d distribution) id(i int) int32 {
	if d.ids == nil {
		return int32(i)
	}
	return d.ids[i]
}
