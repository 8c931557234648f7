package decoder

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/model"
)

// TestPricesChangeNoText: whatever rows are said to cost, from step to step, and
// whatever other texts have shown, verified says what ar says.
func TestPricesChangeNoText(t *testing.T) {
	t.Parallel()
	known := NewExperience()
	masks := 0
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 9))
		m := newToy(t, seed)
		o := randomOptions(r, Verified, m)
		prompt := randomPrompt(r)
		ar := o
		ar.Mode = AR
		want := generate(t, m, prompt, ar, Hooks{})

		o.Window, o.Experience = 1+r.IntN(24), known
		o.Cost = costs(t, CostPoint{1, 1}, CostPoint{2 + r.IntN(30), .5 + 4*r.Float64()})
		m.keys, m.forwards, m.maxRows = nil, 0, 0
		s, err := NewSequence(model.NewCountingCache(len(prompt)+o.MaxTokens), prompt, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		for !s.Done() {
			if s.Elastic() && r.IntN(4) > 0 {
				s.Share(&Price{Row: r.Float64() * 1.2, Masks: r.IntN(20)})
			} else {
				s.Share(nil)
			}
			for range r.IntN(2) {
				s.Plan(new(model.Batch), 0) // never run
			}
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
		masks += got.Stats.Masks
		if !slices.Equal(got.Tokens, want.Tokens) || got.FinishReason != want.FinishReason {
			t.Fatalf("seed %d, options %+v:\nverified %v %s\nar       %v %s", seed, o, got.Tokens, got.FinishReason, want.Tokens, want.FinishReason)
		}
	}
	if masks < 1000 {
		t.Fatalf("%d masks fed: nothing is shown", masks)
	}
}

// TestOffers: the dearer a row, the fewer are fed, and those that are left bring more
// each; where texts were seen to give nothing, nothing is fed.
func TestOffers(t *testing.T) {
	e := NewExperience()
	check := func(what string) []Offer {
		t.Helper()
		offers := e.Offers(16)
		for i, o := range offers {
			if o.Rows < 1-1e-9 || o.Tokens < 1-1e-9 || o.Tokens > o.Rows+1e-9 {
				t.Errorf("%s: %+v", what, o)
			}
			if i == 0 {
				continue
			}
			if last := offers[i-1]; o.Rows > last.Rows+1e-6 || o.Tokens-o.Row*o.Rows < last.Tokens-o.Row*last.Rows-1e-6 {
				t.Errorf("%s: %+v after %+v", what, o, last)
			}
		}
		if o := offers[len(offers)-1]; o.Rows > 1+1e-9 {
			t.Errorf("%s: a row costs more than it can bring, and %+v", what, o)
		}
		return offers
	}
	if o := check("nothing seen")[0]; o.Tokens < 5 {
		t.Errorf("rows for nothing: %+v", o)
	}
	for range 300 {
		e.drafted(slices.Repeat([]float64{.02}, 16))
	}
	if o := check("no draft stood")[8]; o.Tokens > 1.1 {
		t.Errorf("drafts that fall: %+v", o)
	}
	e.observe(observation{tokens: 20 * longHalfLife}, nil)
	if o := check("long ago")[0]; o.Tokens < 4 {
		t.Errorf("forgotten: %+v", o)
	}
}

func BenchmarkOffers(b *testing.B) {
	e := NewExperience()
	for b.Loop() {
		e.Offers(16)
	}
}
