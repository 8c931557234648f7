package decoder

import "slices"

// distribution is a finite distribution over token ids. ids ascend, probs has
// the weight of each; ids nil means that probs is indexed by id. The weights
// add up to total, about 1: draws and ratios use it, so rounding never lets a
// draw fall off the end.
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

// at is the token under u of [0, 1) of the mass.
func (d distribution) at(u float64) int32 {
	if len(d.probs) == 1 {
		return d.id(0)
	}
	var sum float64
	last := 0
	for i, p := range d.probs {
		if p <= 0 {
			continue
		}
		sum += float64(p)
		last = i
		if u*d.total < sum {
			break
		}
	}
	return d.id(last)
}

// residual is max(0, p - q) normalised: what to draw from after a draft of q
// was rejected against p, so that the outcome has distribution p (Leviathan et
// al., arXiv 2211.17192). Where rounding leaves nothing of it, it is p.
func residual(p, q distribution) distribution {
	r := distribution{ids: p.ids, probs: make([]float32, len(p.probs))}
	for i := range p.probs {
		if rest := float64(p.probs[i])/p.total - q.prob(p.id(i)); rest > 0 {
			r.probs[i] = float32(rest)
			r.total += float64(r.probs[i])
		}
	}
	if r.total <= 0 {
		return p
	}
	return r
}
