package decoder

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"windrow/model"
)

// logs turns probabilities into logits.
func logs(probs ...float64) []float32 {
	z := make([]float32, len(probs))
	for i, p := range probs {
		z[i] = float32(math.Log(p))
	}
	return z
}

// TestDistribution has expectations worked by hand.
func TestDistribution(t *testing.T) {
	z := logs(.1, .4, .2, .25, .05)
	for _, c := range []struct {
		name   string
		s      Sampling
		logits []float32
		vocab  Vocabulary
		prompt []int32
		output []int32
		ahead  []int32
		want   []float64
	}{
		{name: "temperature 1", s: Sampling{Temperature: 1}, logits: z, want: []float64{.1, .4, .2, .25, .05}},
		{name: "temperature 1/2 squares", s: Sampling{Temperature: .5}, logits: z,
			want: []float64{.01 / .275, .16 / .275, .04 / .275, .0625 / .275, .0025 / .275}},
		{name: "top-k", s: Sampling{Temperature: 1, TopK: 2}, logits: z, want: []float64{0, .4 / .65, 0, .25 / .65, 0}},
		{name: "top-k tie keeps the lower id", s: Sampling{Temperature: 1, TopK: 1}, logits: logs(.2, .4, .4), want: []float64{0, 1, 0}},
		{name: "top-p keeps the crossing token", s: Sampling{Temperature: 1, TopP: .6}, logits: z, want: []float64{0, .4 / .65, 0, .25 / .65, 0}},
		{name: "top-p is of untempered probabilities", s: Sampling{Temperature: 10, TopP: .3}, logits: z, want: []float64{0, 1, 0, 0, 0}},
		{name: "top-p 1 is off", s: Sampling{Temperature: 1, TopP: 1}, logits: z, want: []float64{.1, .4, .2, .25, .05}},
		{name: "top-p is of what top-k leaves", s: Sampling{Temperature: 1, TopK: 2, TopP: .6}, logits: z, want: []float64{0, 1, 0, 0, 0}},
		{name: "min-p is of the largest", s: Sampling{Temperature: 2, MinP: .45}, logits: logs(.1, .4, .2, .3),
			want: func() []float64 {
				a, b, c := math.Sqrt(.4), math.Sqrt(.2), math.Sqrt(.3)
				return []float64{0, a / (a + b + c), b / (a + b + c), c / (a + b + c)}
			}()},
		{name: "all filters", s: Sampling{Temperature: 1, TopK: 4, TopP: .9, MinP: .55}, logits: z, want: []float64{0, .4 / .65, 0, .25 / .65, 0}},
		{name: "bars", s: Sampling{Temperature: 1}, logits: z, vocab: Vocabulary{Size: 4, MaskID: 1}, want: []float64{.1 / .55, 0, .2 / .55, .25 / .55, 0}},
		{name: "bias", s: Sampling{Temperature: 1, LogitBias: map[int32]float32{0: float32(math.Log(4)), 1: float32(math.Inf(-1)), 9: 5}}, logits: z,
			want: []float64{.4 / .9, 0, .2 / .9, .25 / .9, .05 / .9}},
		{name: "bias cannot lift a bar", s: Sampling{LogitBias: map[int32]float32{4: 100}}, logits: z, vocab: Vocabulary{Size: 4, MaskID: 1}, want: []float64{0, 0, 0, 1, 0}},
		{name: "presence and frequency count the output", s: Sampling{Temperature: 1, PresencePenalty: float32(math.Log(2)), FrequencyPenalty: float32(math.Log(3))}, logits: logs(.5, .25, .25),
			prompt: []int32{1}, output: []int32{0}, ahead: []int32{0, 2},
			want: []float64{.5 / 18 / (.5/18 + .25 + .25/6), .25 / (.5/18 + .25 + .25/6), .25 / 6 / (.5/18 + .25 + .25/6)}},
		{name: "repetition counts the prompt too, once", s: Sampling{Temperature: 1, RepetitionPenalty: 2}, logits: []float32{2, -1, 1},
			prompt: []int32{0, 1, 1}, output: []int32{0, 0},
			want: func() []float64 {
				a, b, c := math.Exp(1), math.Exp(-2), math.Exp(1)
				return []float64{a / (a + b + c), b / (a + b + c), c / (a + b + c)}
			}()},
		{name: "greedy after penalties", s: Sampling{PresencePenalty: 1}, logits: []float32{2, 1.5, 1.5}, output: []int32{0}, want: []float64{0, 1, 0}},
		{name: "a tiny temperature is greedy", s: Sampling{Temperature: 1e-40}, logits: z, want: []float64{0, 1, 0, 0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.vocab == (Vocabulary{}) {
				c.vocab.MaskID = -1
			}
			s := newSampler(c.s, c.vocab, c.prompt)
			for _, x := range c.output {
				s.observe(x)
			}
			before := slices.Clone(c.logits)
			for range 2 { // the second run would see what the first left behind
				d, err := s.distribution(model.Result{Logits: c.logits}, c.ahead, choices{})
				if err != nil {
					t.Fatal(err)
				}
				got := probabilities(d)
				for id, want := range c.want {
					if got := got[int32(id)]; math.Abs(got-want) > 1e-6 {
						t.Errorf("id %d has probability %v, want %v", id, got, want)
					}
				}
			}
			if !slices.Equal(before, c.logits) {
				t.Error("the engine's logits were changed")
			}
		})
	}
}

// probabilities are those of a distribution's tokens.
func probabilities(d distribution) map[int32]float64 {
	all, total := map[int32]float64{}, 0.0
	for _, w := range d.weights {
		total += float64(w)
	}
	for i, w := range d.weights {
		all[d.id(i)] = float64(w) / total
	}
	return all
}

func TestDistributionErrors(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	for _, c := range []struct {
		logits []float32
		want   string
	}{
		{nil, "no logits"},
		{[]float32{inf, inf}, "no token can be chosen"},
		{[]float32{nan, nan}, "no token can be chosen"},
		{[]float32{float32(math.Inf(1)), 0}, "no token can be chosen"},
	} {
		s := newSampler(Sampling{Temperature: 1}, Vocabulary{MaskID: -1}, nil)
		if _, err := s.distribution(model.Result{Logits: c.logits}, nil, choices{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("logits %v: error %v, want %q", c.logits, err, c.want)
		}
	}
}

// TestGreedyNeedsNoLogits: without penalties the engine's argmax is enough.
func TestGreedyNeedsNoLogits(t *testing.T) {
	for _, c := range []struct {
		s    Sampling
		want bool
	}{
		{Sampling{TopK: 5, TopP: .5, MinP: .1, RepetitionPenalty: 1}, false},
		{Sampling{Temperature: .1}, true},
		{Sampling{RepetitionPenalty: 1.1}, true},
		{Sampling{PresencePenalty: .1}, true},
		{Sampling{FrequencyPenalty: -.1}, true},
		{Sampling{LogitBias: map[int32]float32{1: 1}}, true},
	} {
		if got := newSampler(c.s, Vocabulary{}, nil).needsLogits(); got != c.want {
			t.Errorf("%+v needs logits: %v, want %v", c.s, got, c.want)
		}
	}
}

// TestNucleusEqualsSorting compares the heap with sorting everything.
func TestNucleusEqualsSorting(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		z := make([]float32, 1+r.IntN(200))
		for i := range z {
			z[i] = float32(r.IntN(40)) / 4 // with ties
		}
		o := Sampling{Temperature: 1, TopK: r.IntN(len(z) + 3), TopP: r.Float32()}
		d, err := newSampler(o, Vocabulary{MaskID: -1}, nil).distribution(model.Result{Logits: z}, nil, choices{})
		if err != nil {
			t.Fatal(err)
		}
		ids := make([]int32, len(z))
		for i := range ids {
			ids[i] = int32(i)
		}
		slices.SortStableFunc(ids, func(a, b int32) int { return int(z[b]*4) - int(z[a]*4) })
		if o.TopK > 0 && o.TopK < len(ids) {
			ids = ids[:o.TopK]
		}
		var mass, sum float64
		for _, id := range ids {
			mass += math.Exp(float64(z[id]))
		}
		n := 0
		for n < len(ids) && (n == 0 || sum < float64(o.TopP)*mass) {
			sum += math.Exp(float64(z[ids[n]]))
			n++
		}
		if o.TopP == 0 {
			n = len(ids)
		}
		want := slices.Clone(ids[:n])
		slices.Sort(want)
		var got []int32
		for i := range d.weights {
			got = append(got, d.id(i))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("top-k %d, top-p %v of %v: %v, want %v", o.TopK, o.TopP, z, got, want)
		}
	}
}

// TestWindowPenalties: in wedlm a mask row's penalties count the filled slots
// that the row sees, also to its right.
func TestWindowPenalties(t *testing.T) {
	o := DefaultOptions()
	o.Mode, o.Window, o.MaxTokens, o.EntropyThreshold = WeDLM, 2, 2, nil
	o.Sampling.PresencePenalty, o.Vocabulary.MaskID = 1, 2
	entropy := []float32{2, 1} // by position: slot 1 is filled first
	eng := brokenEngine(func(b *model.Batch) ([]model.Result, error) {
		var results []model.Result
		for _, w := range b.Want {
			results = append(results, model.Result{Entropy: entropy[b.Positions[w.Row]-1], Logits: []float32{1, .5, 9}})
		}
		return results, nil
	})
	sum, err := Generate(t.Context(), eng, model.NewCountingCache(20), []int32{0}, o, nil, Hooks{})
	if err != nil || !slices.Equal(sum.Tokens, []int32{1, 0}) {
		t.Errorf("tokens %v, error %v; want 1 0: slot 1 took 0, which slot 0 then avoids", sum.Tokens, err)
	}
}
