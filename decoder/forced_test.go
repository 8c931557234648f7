package decoder

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// prophet is a machine that says now and then what must come next: it knows the text,
// and it may lie.
type prophet struct {
	machine
	text []int32 // what ar generates
	at   int
	lies float64
	seed uint64
	most int
}

func (p *prophet) Advance(token int32) bool {
	ok := p.machine.Advance(token)
	if ok {
		p.at++
	}
	return ok
}

func (p *prophet) Clone() Constraint {
	y := *p
	return &y
}

func (p *prophet) Forced() (ids []int32) {
	r := rand.New(rand.NewPCG(p.seed, uint64(p.at)))
	if r.IntN(3) == 0 {
		return nil
	}
	for _, id := range p.text[min(p.at, len(p.text)):] {
		if len(ids) > r.IntN(p.most) {
			break
		}
		if r.Float64() < p.lies {
			id = int32(r.IntN(15))
		}
		ids = append(ids, id)
	}
	return ids
}

// TestForced: what a constraint forces is drafted and never changes the output, true or
// not, at any window, adaptive and without masks, greedy and sampled; and where it is
// true there are fewer forwards.
func TestForced(t *testing.T) {
	type count struct{ forwards, tokens, drafts, accepted int }
	var truth, lies, blind count
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 78))
		m := newToy(t, seed)
		prompt := randomPrompt(r)
		o := toyOptions(AR, m)
		o.MaxTokens, o.StopIDs = 1+r.IntN(40), []int32{machineEnd}
		if seed%3 == 2 {
			o.Sampling = Sampling{Temperature: 0.9, TopP: 0.9, RepetitionPenalty: 1.2, Seed: seed}
		}
		rules := newMachine(r, m.vocab-2)
		o.Constraint = rules
		want := generate(t, m, prompt, o, Hooks{})
		for _, lie := range []float64{0, 0.3} {
			c := &lies
			if lie == 0 {
				c = &truth
			}
			o.Constraint = &prophet{machine: *rules, text: want.Tokens, lies: lie, seed: seed, most: 1 + r.IntN(20)}
			for _, window := range []int{2, 5, 12, 0, -1} {
				o.Mode, o.Window, o.Cost, o.Vocabulary.MaskID = Verified, window, nil, m.mask
				counts := c
				switch window {
				case 0: // adaptive
					o.Window = 8
					cost, err := NewCostModel([]CostPoint{{1, 1}, {4, 1.2}, {16, 2.5}, {32, 6}})
					if err != nil {
						t.Fatal(err)
					}
					o.Cost = cost
				case -1: // no masks
					o.Window, o.Vocabulary.MaskID = 8, -1
					if lie == 0 {
						counts = &blind
					}
				}
				got := generate(t, m, prompt, o, Hooks{})
				if !slices.Equal(got.Tokens, want.Tokens) || got.FinishReason != want.FinishReason {
					t.Fatalf("seed %d, window %d: verified %v (%s), ar %v (%s)", seed, window, got.Tokens, got.FinishReason, want.Tokens, want.FinishReason)
				}
				if window < 0 && got.Stats.Masks > 0 {
					t.Fatalf("seed %d: %d masks", seed, got.Stats.Masks)
				}
				counts.forwards += got.Stats.Forwards
				counts.tokens += got.Stats.Tokens
				counts.drafts += got.Stats.Drafts
				counts.accepted += got.Stats.Accepted
			}
		}
	}
	if blind.accepted != blind.drafts || blind.forwards*2 > blind.tokens {
		t.Errorf("what is true, without masks: %+v", blind)
	}
	if truth.accepted*10 < truth.drafts*8 || lies.accepted == lies.drafts || lies.accepted == 0 {
		t.Errorf("what is true %+v, what is not %+v: nothing is shown", truth, lies)
	}
}

// TestForcedReach: rejected drafts make forced ones fewer, accepted ones more.
func TestForcedReach(t *testing.T) {
	forced, masked := draft{by: ConstraintDrafter}, draft{}
	f := forcing{reach: mostReach}
	for i, s := range []struct {
		fed      []draft
		accepted int
		want     int
	}{
		{[]draft{forced, forced, forced}, 3, mostReach},
		{[]draft{forced, forced, forced}, 2, 2},
		{[]draft{masked, forced, forced}, 0, 2},
		{[]draft{masked, forced, forced}, 1, 1},
		{[]draft{masked, forced, masked}, 3, 2},
		{[]draft{forced, forced}, 2, 4},
		{[]draft{forced, forced, masked, forced}, 4, 4},
		{nil, 0, 4},
	} {
		if f.observe(s.fed, s.accepted); f.reach != s.want {
			t.Errorf("step %d: reach %d, want %d", i, f.reach, s.want)
		}
	}
}

// TestForcedUnseen: a control is told of steps as if nothing had been forced.
func TestForcedUnseen(t *testing.T) {
	forced := draft{by: ConstraintDrafter}
	m := func(c class) draft { return draft{class: c} }
	for _, s := range []struct {
		fed              []draft
		accepted, tokens int
		want             observation
	}{
		{nil, 0, 1, observation{tokens: 1}},
		{[]draft{forced, forced}, 2, 3, observation{tokens: 1}},
		{[]draft{forced, m(1), forced, m(2)}, 4, 5, observation{drafts: []class{1, 2}, accepted: 2, tokens: 3}},
		{[]draft{forced, m(1), forced, m(2)}, 1, 2, observation{drafts: []class{1, 2}, tokens: 1}},
		{[]draft{forced, m(1), forced, m(2)}, 2, 3, observation{drafts: []class{1}, accepted: 1, tokens: 2}},
		{[]draft{forced, m(1), forced, m(2)}, 0, 1, observation{tokens: 1}},
	} {
		got := seen(s.fed, s.accepted, 0, s.tokens)
		if !slices.Equal(got.drafts, s.want.drafts) || got.accepted != s.want.accepted || got.tokens != s.want.tokens {
			t.Errorf("%v, %d accepted: %+v, want %+v", s.fed, s.accepted, got, s.want)
		}
	}
	for feed, want := range []int{2, 4, 5} {
		if got := through([]draft{m(0), forced, m(1), forced, m(2)}, feed); got != want {
			t.Errorf("%d chosen: %d fed, want %d", feed, got, want)
		}
	}
}
