package decoder

import (
	"fmt"
	"math"
	"slices"

	"windrow/model"
)

// sampler maps a row's result and the tokens before it to a distribution, the
// same way in every mode, and draws from it.
type sampler struct {
	o      Sampling
	vocab  Vocabulary
	next   int                // the logical position of the next token to be emitted
	prompt map[int32]struct{} // kept for the repetition penalty only
	output map[int32]int      // how often each id stands in the output
	z      []float32          // scratch: the adjusted logits of one row
	tell   *int               // Options.Logprobs
	constrained
}

func newSampler(o Sampling, vocab Vocabulary, prompt []int32) *sampler {
	s := &sampler{o: o, vocab: vocab, next: len(prompt), output: map[int32]int{}, prompt: map[int32]struct{}{}}
	if s.repetition() != 1 {
		for _, id := range prompt {
			s.prompt[id] = struct{}{}
		}
	}
	return s
}

// observe adds an emitted token to the output that penalties count.
func (s *sampler) observe(token int32) {
	s.output[token]++
	s.next++
	if s.at != nil && !s.at.Advance(token) && s.err == nil {
		s.err = fmt.Errorf("constraint: token %d is not allowed", token)
	}
}

// needsLogits reports whether the result's argmax is not enough.
func (s *sampler) needsLogits() bool {
	return s.o.Temperature > 0 || s.penalises() || len(s.o.LogitBias) > 0
}

func (s *sampler) penalises() bool {
	return s.repetition() != 1 || s.o.PresencePenalty != 0 || s.o.FrequencyPenalty != 0
}

func (s *sampler) repetition() float32 {
	if s.o.RepetitionPenalty == 0 {
		return 1
	}
	return s.o.RepetitionPenalty
}

// draw takes the token that stands that many places behind the next one to be
// emitted (see drawKey).
func (s *sampler) draw(d distribution, ahead int) int32 {
	return keyOf(s.o.Seed, s.next+ahead).draw(d)
}

// distribution is what a row says of its next token. The output that
// penalties count is the emitted tokens and those of ahead. Where not all ids
// are allowed the row's argmax is one that is.
func (s *sampler) distribution(r model.Result, ahead []int32, allowed choices) (distribution, error) {
	if allowed.one {
		return point(allowed.only), nil
	}
	if !s.needsLogits() {
		return point(r.Argmax), nil
	}
	best, err := s.adjust(r.Logits, ahead, allowed.ids)
	if err != nil {
		return distribution{}, err
	}
	if s.o.Temperature == 0 {
		return point(best), nil
	}
	return s.filter(s.z[best]), nil
}

// adjust sets s.z to the logits after penalties, bias and bars, and returns
// the id of the largest, the lowest on a tie.
func (s *sampler) adjust(logits []float32, ahead []int32, allowed model.IDSet) (best int32, err error) {
	if len(logits) == 0 {
		return 0, fmt.Errorf("the engine gave no logits: sampling needs them")
	}
	s.z = append(s.z[:0], logits...)
	if s.penalises() {
		s.penalise(ahead)
	}
	for id, bias := range s.o.LogitBias {
		if int(id) < len(s.z) {
			s.z[id] += bias
		}
	}
	inf := float32(math.Inf(-1))
	if s.vocab.Size > 0 {
		for i := int(s.vocab.Size); i < len(s.z); i++ {
			s.z[i] = inf
		}
	}
	if m := s.vocab.MaskID; m >= 0 && int(m) < len(s.z) {
		s.z[m] = inf
	}
	if allowed != nil {
		for i := range s.z {
			if !allowed.Has(int32(i)) {
				s.z[i] = inf
			}
		}
	}
	for i, z := range s.z {
		if z > s.z[best] || s.z[best] != s.z[best] {
			best = int32(i)
		}
	}
	if z := float64(s.z[best]); math.IsNaN(z) || math.IsInf(z, 0) {
		return 0, fmt.Errorf("no token can be chosen: the largest of %d adjusted logits is %v", len(s.z), z)
	}
	return best, nil
}

func (s *sampler) penalise(ahead []int32) {
	for _, id := range ahead {
		s.output[id]++
	}
	r := s.repetition()
	repeat := func(id int32) {
		if int(id) >= len(s.z) {
			return
		}
		if s.z[id] > 0 {
			s.z[id] /= r
		} else {
			s.z[id] *= r
		}
	}
	for id := range s.prompt {
		repeat(id)
	}
	for id, n := range s.output {
		if _, too := s.prompt[id]; !too {
			repeat(id)
		}
		if int(id) < len(s.z) {
			s.z[id] -= s.o.PresencePenalty + s.o.FrequencyPenalty*float32(n)
		}
	}
	for _, id := range ahead {
		if s.output[id]--; s.output[id] == 0 {
			delete(s.output, id)
		}
	}
}

// filter turns s.z, whose largest is best, into a distribution: top-k, then
// top-p and min-p on the untempered probabilities of what is left, then
// temperature. The token that crosses top-p is kept.
func (s *sampler) filter(best float32) distribution {
	d := distribution{}
	minP := float64(s.o.MinP)
	topP := s.o.TopP > 0 && s.o.TopP < 1
	topK := s.o.TopK > 0 && s.o.TopK < len(s.z)
	if topP || topK {
		d.ids = s.nucleus(best, topP, topK)
	} else if minP > 0 {
		d.ids = []int32{}
		for i := range s.z {
			if weight(s.z[i], best, 1) >= minP {
				d.ids = append(d.ids, int32(i))
			}
		}
	}
	if minP > 0 {
		d.ids = slices.DeleteFunc(d.ids, func(id int32) bool { return weight(s.z[id], best, 1) < minP })
	}
	slices.Sort(d.ids)

	n := len(d.ids)
	if d.ids == nil {
		n = len(s.z)
	}
	d.weights = make([]float32, n)
	for i := range d.weights {
		d.weights[i] = float32(weight(s.z[d.id(i)], best, float64(s.o.Temperature)))
	}
	return d
}

// weight is exp((z - best)/temperature), 1 for the best.
func weight(z, best float32, temperature float64) float64 {
	return math.Exp((float64(z) - float64(best)) / temperature)
}

// nucleus returns the ids of the top K logits, cut where their untempered
// probabilities reach top-p. A heap gives them in order without sorting a
// vocabulary of 150,000.
func (s *sampler) nucleus(best float32, topP, topK bool) []int32 {
	k := len(s.z)
	if topK {
		k = s.o.TopK
	}
	h := newLogitHeap(s.z)
	var ids []int32
	var mass float64 // of all that top-k leaves
	if topK {
		for len(ids) < k && h.len() > 0 {
			ids = append(ids, h.pop())
			mass += weight(s.z[ids[len(ids)-1]], best, 1)
		}
		if !topP {
			return ids
		}
		var sum float64
		for i, id := range ids {
			if sum += weight(s.z[id], best, 1); sum >= float64(s.o.TopP)*mass {
				return ids[:i+1]
			}
		}
		return ids
	}
	for _, z := range s.z {
		mass += weight(z, best, 1)
	}
	for sum := 0.0; h.len() > 0 && (len(ids) == 0 || sum < float64(s.o.TopP)*mass); {
		ids = append(ids, h.pop())
		sum += weight(s.z[ids[len(ids)-1]], best, 1)
	}
	return ids
}
