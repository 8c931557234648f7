package decoder

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/model"
)

// TestForcedPrice: forced text is fed where it is worth what rows cost: all of it where
// they cost little, none where a row costs more than a token, and in between less of it
// where forced drafts were seen to fail. The output never depends on it.
func TestForcedPrice(t *testing.T) {
	t.Parallel()
	prices := []float64{0.01, 0.5, 0.9, 1.05}
	var fed, stood, tokens [2][4]int // by truth, price
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 79))
		m := newToy(t, seed)
		prompt := randomPrompt(r)
		o := toyOptions(AR, m)
		o.MaxTokens, o.StopIDs = 20+r.IntN(40), []int32{machineEnd}
		if seed%3 == 2 {
			o.Sampling = Sampling{Temperature: 0.9, TopP: 0.9, RepetitionPenalty: 1.2, Seed: seed}
		}
		rules := newMachine(r, m.vocab-2)
		o.Constraint = rules
		want := generate(t, m, prompt, o, Hooks{})
		o.Mode, o.Window = Verified, 8
		o.Cost = costs(t, CostPoint{1, 1}, CostPoint{16, 2.5})
		for lies, share := range []float64{0, 0.3} {
			for i := range len(prices) + 1 {
				o.Constraint = &prophet{machine: *rules, text: want.Tokens, lies: share, seed: seed, most: 12}
				m.keys, m.forwards, m.maxRows = nil, 0, 0
				s, err := NewSequence(model.NewCountingCache(len(prompt)+o.MaxTokens), prompt, o, nil)
				if err != nil {
					t.Fatal(err)
				}
				for !s.Done() {
					price := &Price{Row: r.Float64() * 1.3, Masks: r.IntN(9)} // any, from step to step
					if i < len(prices) {
						price = &Price{Row: prices[i]} // no masks: drafts are forced or looked up
					}
					s.Share(price)
					b := new(model.Batch)
					s.Plan(b, 0)
					results, err := m.Forward(context.Background(), b)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := s.Absorb(results); err != nil {
						t.Fatal(err)
					}
				}
				got := s.Summary()
				if !slices.Equal(got.Tokens, want.Tokens) || got.FinishReason != want.FinishReason {
					t.Fatalf("seed %d, price %d: verified %v (%s), ar %v (%s)", seed, i, got.Tokens, got.FinishReason, want.Tokens, want.FinishReason)
				}
				if by := got.Stats.Drafters[ConstraintDrafter]; i < len(prices) {
					fed[lies][i] += by.Drafts
					stood[lies][i] += by.Accepted
					tokens[lies][i] += got.Stats.Tokens
				}
			}
		}
	}
	t.Logf("at prices %v: %v of %v forced drafts stood", prices, stood, fed)
	for lies := range fed {
		x := &fed[lies]
		if x[3] != 0 || x[0] < tokens[lies][0]/3 || !slices.IsSortedFunc(x[:], func(a, b int) int { return b - a }) {
			t.Errorf("forced drafts at prices %v: %v", prices, *x)
		}
	}
	truth, lie := float64(fed[0][2])/float64(fed[0][0]), float64(fed[1][2])/float64(fed[1][0])
	if truth < 0.3 || lie > truth/2 {
		t.Errorf("at a price of 0.9 %.2f of what is true is fed, and %.2f of what is not", truth, lie)
	}
}

// TestForcedWorth: a fill is cut at the first forced draft that is not worth its row.
func TestForcedWorth(t *testing.T) {
	forced, masked := draft{by: ConstraintDrafter}, draft{}
	fill := []draft{masked, forced, forced, masked, forced, forced}
	f := forcing{reach: mostReach} // a chance of 0.95
	for _, c := range []struct {
		price *Price
		fed   int
		want  int
	}{
		{nil, 6, 6}, {&Price{Row: 0.5}, 6, 6}, {&Price{Row: 0.5}, 3, 3}, {&Price{Row: 0.96}, 6, 1}, {&Price{Row: 0.92}, 6, 2},
		{&Price{Row: 0.9}, 6, 4}, {&Price{Row: 0.85}, 6, 5}, {&Price{Row: 2}, 1, 1},
	} {
		if got := f.worth(fill, c.fed, c.price); got != c.want {
			t.Errorf("%d at %+v: %d are fed, want %d", c.fed, c.price, got, c.want)
		}
	}
	for range 40 {
		f.observe([]draft{forced}, 0)
	}
	if got := f.worth(fill, 6, &Price{Row: 0.5}); got != 1 {
		t.Errorf("where none stood %d are fed", got)
	}
}
