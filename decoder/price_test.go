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
			most := 0
			if s.Elastic() && r.IntN(4) > 0 {
				s.Share(&Price{Row: r.Float64() * 1.2, Masks: r.IntN(20)})
				most = max(0, r.IntN(30)-10)
			} else {
				s.Share(nil)
			}
			for range r.IntN(2) {
				s.Plan(new(model.Batch), r.IntN(5)) // never run
				s.Worths(nil)
			}
			b := new(model.Batch)
			s.Plan(b, most)
			if most > 0 && len(b.Tokens) > most {
				t.Fatalf("seed %d: %d rows of %d", seed, len(b.Tokens), most)
			}
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

// TestWorths: what rows are worth to a sequence grows with them; at a price it feeds as many
// as are worth the most beyond that, and of so many at most those that it said.
func TestWorths(t *testing.T) {
	t.Parallel()
	asked := 0
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 12))
		m := newToy(t, seed)
		o := toyOptions(Verified, m)
		o.MaxTokens, o.Window, o.Experience = 60, 16, NewExperience()
		o.Cost = costs(t, CostPoint{1, 1}, CostPoint{16, 1.5})
		prompt := randomPrompt(r)
		m.keys, m.forwards, m.maxRows = nil, 0, 0
		s, err := NewSequence(model.NewCountingCache(len(prompt)+o.MaxTokens), prompt, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		for !s.Done() {
			if s.Share(nil); len(s.Worths(nil)) > 0 {
				t.Fatal("worths without a price")
			}
			p := &Price{Row: r.Float64(), Masks: 16}
			s.Share(p)
			w := s.Worths([]float64{7})[1:]
			if (len(w) > 0) != s.Elastic() {
				t.Fatalf("seed %d: %v", seed, w)
			}
			rows := func(most int) int {
				b := new(model.Batch)
				s.Plan(b, most)
				return len(b.Tokens)
			}
			if len(w) > 0 {
				asked++
				if !slices.IsSorted(w) {
					t.Fatalf("seed %d: %v", seed, w)
				}
				at := rows(0)
				for i := range w {
					if w[i]-p.Row*float64(i) > w[at-1]-p.Row*float64(at-1)+1e-9 {
						t.Fatalf("seed %d: %d rows at %v, worth %v", seed, at, p.Row, w)
					}
					if n := rows(1 + i); n > 1+i || w[n-1] != w[i] {
						t.Fatalf("seed %d: %d rows of %d, worth %v", seed, n, 1+i, w)
					}
				}
			}
			b := new(model.Batch)
			s.Plan(b, r.IntN(1+len(w)))
			results, err := m.Forward(context.Background(), b)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Absorb(results); err != nil {
				t.Fatal(err)
			}
		}
	}
	if asked < 500 {
		t.Fatalf("asked %d times: nothing is shown", asked)
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
