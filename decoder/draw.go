package decoder

import "math"

// A draw takes the token v with the least E(v)/p(v), where E(v) is an
// exponential variable made of the seed, the logical position of the token and
// v alone: the token comes out with probability p(v) (the exponential race,
// Gumbel's trick in another form). Nothing is kept from draw to draw, so a token
// depends on the seed, its position and its distribution, and neither on the
// window, nor on what was drafted, nor on a pause. In verified the checked row
// has ar's distribution to the bit, and so draws ar's token; a draft stands where
// it is that token. Drafts are drawn from their mask's distribution q with the
// same variables, which makes them stand with probability at least
// (1−d)/(1+d), d the total variation between p and q (Daliri, Musco, Suresh, arXiv
// 2408.07978); the optimum without shared variables is 1−d.
type drawKey uint64

// keyOf is the key of the token at a logical position.
func keyOf(seed uint64, position int) drawKey {
	return drawKey(scramble(scramble(seed) + uint64(position)*golden))
}

// golden is 2^64 over the golden ratio, odd: SplitMix64's increment.
const golden = 0x9e3779b97f4a7c15

// scramble is the finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
func scramble(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// uniform is the key's variable for a token, in (0, 1).
func (k drawKey) uniform(id int32) float64 {
	return (float64(scramble(uint64(k)+(uint64(uint32(id))+1)*golden)>>11) + 0.5) * 0x1p-53
}

// draw takes a token of d; the lowest id on a tie. A certain one needs no
// variable.
func (k drawKey) draw(d distribution) int32 {
	if len(d.weights) == 1 {
		return d.id(0)
	}
	best, least := d.id(0), math.Inf(1)
	for i, w := range d.weights {
		if w <= 0 {
			continue
		}
		id := d.id(i)
		u := k.uniform(id)
		// -ln u ≥ 1-u: most tokens are out of the race without a logarithm.
		if 1-u >= least*float64(w) {
			continue
		}
		if e := -math.Log(u) / float64(w); e < least {
			best, least = id, e
		}
	}
	return best
}
