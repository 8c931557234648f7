package decoder

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"windrow/model"
)

// exact computes ar's distribution over whole outputs by walking every
// sequence of the toy model.
func exact(t *testing.T, m *toy, prompt []int32, o Options) map[string]float64 {
	all := map[string]float64{}
	var walk func(output []int32, mass float64)
	walk = func(output []int32, mass float64) {
		if n := len(output); n == o.MaxTokens || n > 0 && slices.Contains(o.StopIDs, output[n-1]) {
			all[fmt.Sprint(output)] += mass
			return
		}
		tokens := slices.Concat(prompt, output)
		positions := make([]int32, len(tokens))
		for i := range positions {
			positions[i] = int32(i)
		}
		keys := m.run(tokens, positions)
		s := newSampler(o.Sampling, o.Vocabulary, prompt)
		for _, x := range output {
			s.observe(x)
		}
		d, err := s.distribution(result(m.logits(keys[len(keys)-1]), model.Want{Logits: true}), nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range d.probs {
			if p > 0 {
				walk(append(slices.Clone(output), d.id(i)), mass*float64(p)/d.total)
			}
		}
	}
	walk(nil, 1)
	return all
}

// chiSquared compares counts with expectations, cells under 5 merged, as
// standard deviations above the mean of the chi-squared distribution (by
// Wilson and Hilferty's cube root). An output that cannot be is infinite.
func chiSquared(counts map[string]int, n int, probs map[string]float64) float64 {
	var stat, restWant float64
	var cells, restGot int
	for output := range counts {
		if probs[output] == 0 {
			return math.Inf(1)
		}
	}
	for output, p := range probs {
		want := p * float64(n)
		if want < 5 {
			restWant += want
			restGot += counts[output]
			continue
		}
		d := float64(counts[output]) - want
		stat += d * d / want
		cells++
	}
	if restWant > 0 {
		d := float64(restGot) - restWant
		stat += d * d / max(restWant, 1)
		cells++
	}
	df := float64(cells - 1)
	v := 2 / (9 * df)
	return (math.Cbrt(stat/df) - (1 - v)) / math.Sqrt(v)
}

// sample runs n generations, each with its own seed. spoil, if given, changes
// the stepper.
func sample(t *testing.T, m *toy, prompt []int32, o Options, n int, spoil func(stepper) stepper) map[string]int {
	counts := map[string]int{}
	for seed := range n {
		o.Sampling.Seed = uint64(seed)
		cache := model.NewCountingCache(64)
		m.keys = nil
		s, err := NewSequence(cache, prompt, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		if spoil != nil {
			s.stepper = spoil(s.stepper)
		}
		sum, err := s.run(context.Background(), m, Hooks{})
		if err != nil {
			t.Fatal(err)
		}
		counts[fmt.Sprint(sum.Tokens)]++
	}
	return counts
}

// forgetful is verified with a wrong rule: it does not know what its drafts
// were drawn from and takes q for uniform.
type forgetful struct{ *verified }

func (f forgetful) absorb(results []model.Result, emit emitter) (outcome, error) {
	for i := range f.fill {
		f.fill[i].q = distribution{probs: []float32{1, 1, 1, 1, 1, 1, 1}, total: 7}
	}
	return f.verified.absorb(results, emit)
}

// credulous accepts every draft: it takes q for 0.
type credulous struct{ *verified }

func (c credulous) absorb(results []model.Result, emit emitter) (outcome, error) {
	for i := range c.fill {
		c.fill[i].q = distribution{}
	}
	return c.verified.absorb(results, emit)
}

func TestSampledVerifiedHasARsDistribution(t *testing.T) {
	t.Parallel()
	const n = 20000
	prompt := []int32{1, 2, 3, 2}
	for i, c := range []struct {
		name  string
		s     Sampling
		tau   float32
		stops []int32
	}{
		{"temperature", Sampling{Temperature: 1}, 100, nil},
		{"filters", Sampling{Temperature: 0.7, TopK: 5, TopP: 0.95, MinP: 0.02}, 100, nil},
		{"penalties", Sampling{Temperature: 1.3, RepetitionPenalty: 1.5, PresencePenalty: 0.5, FrequencyPenalty: -0.7, LogitBias: map[int32]float32{2: 1, 4: -1}}, 2, []int32{5}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := &toy{t: t, vocab: 9, mask: 7, seed: uint64(40 + i), agree: 0.6, scale: 0.6}
			o := toyOptions(Verified, m)
			o.Window, o.MaxTokens, o.Sampling, o.EntropyThreshold, o.StopIDs = 3, 3, c.s, &c.tau, c.stops
			probs := exact(t, m, prompt, o)
			if z := chiSquared(sample(t, m, prompt, o, n, nil), n, probs); math.Abs(z) > 4 {
				t.Errorf("verified is %.1f standard deviations from ar over %d outputs", z, len(probs))
			} else {
				t.Logf("verified: %.1f standard deviations over %d outputs", z, len(probs))
			}
			ar := o
			ar.Mode = AR
			if z := chiSquared(sample(t, m, prompt, ar, n, nil), n, probs); math.Abs(z) > 4 {
				t.Errorf("ar is %.1f standard deviations from its own distribution", z)
			}
			// The test has teeth: wrong rules stand out.
			if z := chiSquared(sample(t, m, prompt, o, n, func(s stepper) stepper { return forgetful{s.(*verified)} }), n, probs); z < 8 {
				t.Errorf("accepting by a wrong q is only %.1f standard deviations off: the test is blind", z)
			}
			if z := chiSquared(sample(t, m, prompt, o, n, func(s stepper) stepper { return credulous{s.(*verified)} }), n, probs); z < 8 {
				t.Errorf("accepting all is only %.1f standard deviations off: the test is blind", z)
			}
		})
	}
}

// TestSeed: the same seed gives the same output in every mode, another seed
// another one.
func TestSeed(t *testing.T) {
	for _, mode := range []Mode{AR, WeDLM, Verified} {
		m := newToy(t, 5)
		o := toyOptions(mode, m)
		o.Sampling = Sampling{Temperature: 1, Seed: 11, RepetitionPenalty: 1.2, FrequencyPenalty: 0.3}
		first := generate(t, m, []int32{1, 2}, o, Hooks{})
		for range 5 {
			if again := generate(t, m, []int32{1, 2}, o, Hooks{}); !slices.Equal(first.Tokens, again.Tokens) {
				t.Errorf("%s: seed 11 gave %v, then %v", mode, first.Tokens, again.Tokens)
			}
		}
		o.Sampling.Seed = 12
		if other := generate(t, m, []int32{1, 2}, o, Hooks{}); slices.Equal(first.Tokens, other.Tokens) {
			t.Errorf("%s: seeds 11 and 12 both gave %v", mode, first.Tokens)
		}
	}
}
