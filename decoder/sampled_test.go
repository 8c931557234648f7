package decoder

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
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
		d, err := s.distribution(m.result(keys[len(keys)-1], true), nil, choices{})
		if err != nil {
			t.Fatal(err)
		}
		for id, p := range probabilities(d) {
			if p > 0 {
				walk(append(slices.Clone(output), id), mass*p)
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

// forgetful is verified that draws with the keys of the first tokens again and
// again: what it draws depends on what it drew.
type forgetful struct{ *verified }

func (f forgetful) absorb(results []model.Result, emit emitter) (outcome, error) {
	f.s.next = 0
	return f.verified.absorb(results, emit)
}

// credulous accepts every draft: its rows are made certain of them.
type credulous struct{ *verified }

func (c credulous) absorb(results []model.Result, emit emitter) (outcome, error) {
	results = slices.Clone(results)
	for i, d := range c.fill[1:] {
		results[i].Logits = slices.Clone(results[i].Logits)
		results[i].Logits[d.token] = 1e6
	}
	return c.verified.absorb(results, emit)
}

// TestSampledVerifiedEqualsAR: under one seed sampled verified gives ar's very
// tokens, at any window, fixed or adaptive, with any filters and penalties.
func TestSampledVerifiedEqualsAR(t *testing.T) {
	t.Parallel()
	var drafts, accepted int
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 21))
		m := newToy(t, seed)
		o := randomOptions(r, AR, m)
		o.Sampling = Sampling{Temperature: 0.1 + 1.5*r.Float32(), Seed: r.Uint64()}
		if r.IntN(2) == 0 {
			o.Sampling.TopP, o.Sampling.TopK, o.Sampling.MinP = 0.5+r.Float32()/2, r.IntN(12), r.Float32()/10
		}
		if r.IntN(2) == 0 {
			o.Sampling.RepetitionPenalty, o.Sampling.FrequencyPenalty = 1+r.Float32(), r.Float32()-0.5
		}
		prompt := randomPrompt(r)
		want := generate(t, m, prompt, o, Hooks{})
		for range 3 {
			o.Mode, o.Window, o.Cost = Verified, 1+r.IntN(16), nil
			if r.IntN(2) == 0 {
				o.Cost = costs(t, CostPoint{1, 1}, CostPoint{8, 1 + r.Float64()}, CostPoint{32, 2 + 3*r.Float64()})
			}
			got := generate(t, m, prompt, o, Hooks{})
			if !slices.Equal(got.Tokens, want.Tokens) || got.FinishReason != want.FinishReason {
				t.Fatalf("seed %d, options %+v:\nverified %v %s\nar       %v %s", seed, o, got.Tokens, got.FinishReason, want.Tokens, want.FinishReason)
			}
			drafts, accepted = drafts+got.Stats.Drafts, accepted+got.Stats.Accepted
		}
	}
	if accepted < 1000 || accepted == drafts {
		t.Errorf("%d of %d drafts were accepted: nothing is shown", accepted, drafts)
	}
}

// TestDraw: a draw has its distribution, over positions as over seeds, and
// draws of neighbouring positions are independent.
func TestDraw(t *testing.T) {
	d := distribution{ids: []int32{0, 3, 4, 100, 151000}, weights: []float32{0.5, 0.25, 0.15, 0.0999, 0.0001}}
	const n = 200_000
	for name, key := range map[string]func(i int) drawKey{
		"positions": func(i int) drawKey { return keyOf(7, i) },
		"seeds":     func(i int) drawKey { return keyOf(uint64(i), 7) },
	} {
		counts, pairs := map[string]int{}, map[string]int{}
		probs, pairProbs := map[string]float64{}, map[string]float64{}
		for i, p := range d.weights {
			probs[fmt.Sprint(d.ids[i])] = float64(p)
			for j, q := range d.weights {
				pairProbs[fmt.Sprint(d.ids[i], d.ids[j])] = float64(p) * float64(q)
			}
		}
		last := key(0).draw(d)
		for i := range n {
			next := key(i + 1).draw(d)
			counts[fmt.Sprint(next)]++
			if i%2 == 0 {
				pairs[fmt.Sprint(last, next)]++
			}
			last = next
		}
		if z := chiSquared(counts, n, probs); math.Abs(z) > 4 {
			t.Errorf("%s: %.1f standard deviations from the distribution: %v", name, z, counts)
		}
		if z := chiSquared(pairs, n/2, pairProbs); math.Abs(z) > 4 {
			t.Errorf("%s: pairs are %.1f standard deviations from independence: %v", name, z, pairs)
		}
	}
	// A token without weight is never drawn, and a certain one always.
	for i := range 1000 {
		if id := keyOf(uint64(i), i).draw(distribution{weights: []float32{0, 1e-30, 0}}); id != 1 {
			t.Fatalf("drew %d, which has no weight", id)
		}
	}
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
			m := &toy{t: t, vocab: 8, mask: 6, seed: uint64(40 + i), agree: 0.6, scale: 0.6}
			o := toyOptions(Verified, m)
			o.Window, o.MaxTokens, o.Sampling, o.EntropyThreshold, o.StopIDs = 4, 4, c.s, &c.tau, c.stops
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
				t.Errorf("drawing with keys used before is only %.1f standard deviations off: the test is blind", z)
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
