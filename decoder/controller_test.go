package decoder

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/model"
)

// TestRandomControlsEqualAR: whatever is fed, verified says what ar says.
func TestRandomControlsEqualAR(t *testing.T) {
	t.Parallel()
	var drafts, dropped int
	for seed := range uint64(1200) {
		r := rand.New(rand.NewPCG(seed, 5))
		m := newToy(t, seed)
		o := randomOptions(r, Verified, m)
		prompt := randomPrompt(r)
		ar := o
		ar.Mode = AR
		want := generate(t, m, prompt, ar, Hooks{})

		_, rows := CacheSize(len(prompt), o)
		cache := model.NewCountingCache(len(prompt) + o.MaxTokens)
		m.keys, m.forwards, m.maxRows = nil, 0, 0
		s, err := NewSequence(cache, prompt, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		control := &randomControl{r: r}
		s.stepper.(*verified).control = control
		got, err := s.run(context.Background(), m, Hooks{})
		if err != nil {
			t.Fatal(err)
		}
		m.verifyEnd(cache, prompt, got.Tokens)
		if !slices.Equal(got.Tokens, want.Tokens) || got.FinishReason != want.FinishReason || m.maxRows > rows {
			t.Fatalf("seed %d, options %+v, at most %d rows of %d:\nverified %v %s\nar       %v %s", seed, o, m.maxRows, rows, got.Tokens, got.FinishReason, want.Tokens, want.FinishReason)
		}
		drafts += got.Stats.Drafts
		dropped += control.dropped
	}
	if drafts < 1000 || dropped < 1000 {
		t.Fatalf("%d drafts fed, %d dropped: nothing is shown", drafts, dropped)
	}
}

type randomControl struct {
	r       *rand.Rand
	dropped int
}

func (c *randomControl) choose(drafts []class, most int, _ *Price, _ int) (int, int) {
	feed := c.r.IntN(len(drafts) + 1)
	c.dropped += len(drafts) - feed
	return feed, c.r.IntN(most + 1)
}

func (c *randomControl) observe(observation)                          {}
func (c *randomControl) drafted([]class)                              {}
func (c *randomControl) chance(class) float64                         { return .5 }
func (c *randomControl) prefers(others, _ []class) bool               { return len(others) > 0 && c.r.IntN(2) == 0 }
func (c *randomControl) pays(float64, int, int, float64, *Price) bool { return c.r.IntN(4) > 0 }
func (c *randomControl) likely(float64, int) (float64, bool)          { return 0, false }
func (c *randomControl) proposed(int, class, float64)                 {}
func (c *randomControl) hope(int) float64                             { return 2 * c.r.Float64() }

// TestAdaptiveOnToy: the real controls, on many cost tables: verified says what
// ar says, wedlm keeps to its contract, both twice the same.
func TestAdaptiveOnToy(t *testing.T) {
	t.Parallel()
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 6))
		m := newToy(t, seed)
		o := randomOptions(r, []Mode{Verified, WeDLM}[seed%2], m)
		o.Window = 1 + r.IntN(40)
		prompt := randomPrompt(r)
		ar := o
		ar.Mode = AR
		o.Cost = costs(t, CostPoint{1, 1}, CostPoint{2 + r.IntN(6), .5 + r.Float64()}, CostPoint{8 + r.IntN(30), 1 + 4*r.Float64()})
		got := generate(t, m, prompt, o, Hooks{})
		if want := generate(t, m, prompt, ar, Hooks{}); o.Mode == Verified && !slices.Equal(got.Tokens, want.Tokens) {
			t.Fatalf("seed %d, options %+v:\nverified %v\nar       %v", seed, o, got.Tokens, want.Tokens)
		}
		again := generate(t, m, prompt, o, Hooks{})
		again.Stats.PrefillSeconds, again.Stats.DecodeSeconds = got.Stats.PrefillSeconds, got.Stats.DecodeSeconds
		if !slices.Equal(got.Tokens, again.Tokens) || got.Stats != again.Stats {
			t.Fatalf("seed %d: %+v, then %+v", seed, got, again)
		}
	}
}

// scriptedText is an engine whose drafts stand as told: ease is the chance that the
// mask at a position says what the text says, vague that it is unsure. It adds
// up what its decode forwards cost.
type scriptedText struct {
	ease, vague func(pos int) float64
	cost        *CostModel
	seconds     float64
}

func (s *scriptedText) Forward(_ context.Context, b *model.Batch) ([]model.Result, error) {
	b.Spans[0].Cache.Stage(len(b.Tokens))
	if b.Spans[0].Cache.Base() > 0 {
		s.seconds += s.cost.Seconds(len(b.Tokens))
	}
	chance := func(pos, kind uint64) float64 { return float64(mix(pos, kind)%1000) / 1000 }
	letter := func(pos int) int32 { return int32(mix(uint64(pos)) % 50) }
	var results []model.Result
	for _, w := range b.Want {
		row := w.Row
		pos := int(b.Positions[row])
		r := model.Result{Argmax: letter(pos + 1), Entropy: .1}
		if b.Tokens[row] == 99 {
			r.Argmax = letter(pos)
			if chance(uint64(pos), 1) >= s.ease(pos) {
				r.Argmax = 60
			}
			if chance(uint64(pos), 2) < s.vague(pos) {
				r.Entropy = 3
			}
		}
		results = append(results, r)
	}
	return results, nil
}

func always(p float64) func(int) float64 { return func(int) float64 { return p } }

// decode returns the seconds that 400 tokens cost.
func (s *scriptedText) decode(t *testing.T, mode Mode, window int, adaptive bool) (float64, Stats) {
	t.Helper()
	o := DefaultOptions()
	o.Mode, o.Window, o.MaxTokens, o.Vocabulary.MaskID = mode, window, 400, 99
	if adaptive {
		o.Cost = s.cost
	}
	s.seconds = 0
	sum, err := Generate(context.Background(), s, model.NewCountingCache(500), []int32{1}, o, nil, Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	return s.seconds, sum.Stats
}

// machines are cost tables from one that reads memory only to one that
// computes only.
func machines(t *testing.T) map[string]*CostModel {
	return map[string]*CostModel{
		"flat":      costs(t, CostPoint{1, 1}, CostPoint{32, 1.02}),
		"device":    costs(t, CostPoint{1, 1}, CostPoint{16, 1.15}, CostPoint{32, 1.4}),
		"cpu":       costs(t, CostPoint{1, 1}, CostPoint{4, 1.3}, CostPoint{8, 1.6}, CostPoint{16, 2.3}, CostPoint{32, 4.2}),
		"staircase": costs(t, CostPoint{1, 1}, CostPoint{2, 1.9}, CostPoint{16, 2}, CostPoint{17, 3.9}, CostPoint{32, 4}),
		"linear":    costs(t, CostPoint{1, 1}, CostPoint{32, 32}),
	}
}

// TestAdaptiveVerified compares the adaptive window with ar and with the
// best fixed window, in time by the table.
func TestAdaptiveVerified(t *testing.T) {
	half := func(pos int) float64 { return float64(1 - pos/200%2) } // 200 tokens easy, 200 hard
	for _, text := range []struct {
		name        string
		ease, vague func(int) float64
		toBest      float64 // most of the best fixed window's time
	}{
		{"all accepted", always(1), always(0), 1.1},
		{"none accepted", always(0), always(0), 1.05},
		{"none sure", always(0), always(.9), 1.05},
		{"most accepted", always(.9), always(0), 1.15},
		{"half accepted", always(.5), always(0), 1.15},
		{"few accepted", always(.2), always(.5), 1.15},
		{"phases", half, always(0), 1},
	} {
		for name, cost := range machines(t) {
			t.Run(text.name+"/"+name, func(t *testing.T) {
				s := &scriptedText{ease: text.ease, vague: text.vague, cost: cost}
				ar, _ := s.decode(t, AR, 0, false)
				best, at := ar, 0
				for w := 2; w <= 20; w++ {
					if x, _ := s.decode(t, Verified, w, false); x < best {
						best, at = x, w
					}
				}
				auto, stats := s.decode(t, Verified, 32, true)
				what := fmt.Sprintf("auto %.1f (%.1f masks, %d to %d), ar %.1f, best fixed window %d %.1f", auto, stats.MeanMasks(), stats.LeastMasks, stats.MostMasks, ar, at, best)
				t.Log(what)
				if auto > 1.05*ar {
					t.Errorf("slower than ar: %s", what)
				}
				if auto > text.toBest*best+1 { // +1: ar's first token costs no forward
					t.Errorf("far from the best window: %s", what)
				}
			})
		}
	}
}

// TestAdaptiveWeDLM compares the adaptive window with every fixed one.
func TestAdaptiveWeDLM(t *testing.T) {
	for _, text := range []struct {
		name  string
		vague func(int) float64
		most  float64 // of the best fixed window's time
	}{
		{"all sure", always(0), 1.1},
		{"none sure", always(1), 1.05},
		{"half sure", always(.5), 1.15},
		{"phases", func(pos int) float64 { return float64(pos / 200 % 2) }, 1.05},
	} {
		for name, cost := range machines(t) {
			t.Run(text.name+"/"+name, func(t *testing.T) {
				s := &scriptedText{ease: always(1), vague: text.vague, cost: cost}
				best, at := 0.0, 0
				for w := 1; w <= 20; w++ {
					if x, _ := s.decode(t, WeDLM, w, false); at == 0 || x < best {
						best, at = x, w
					}
				}
				auto, stats := s.decode(t, WeDLM, 32, true)
				what := fmt.Sprintf("auto %.1f (%.1f masks, %d to %d), best fixed window %d %.1f", auto, stats.MeanMasks(), stats.LeastMasks, stats.MostMasks, at, best)
				t.Log(what)
				if auto > text.most*best {
					t.Errorf("far from the best window: %s", what)
				}
			})
		}
	}
}

// TestLedger: the promise holds whatever is earned, and good phases save up no
// more than the bound.
func TestLedger(t *testing.T) {
	l := newLedger(3)
	for range 1000 {
		l.book(16, 3)
	}
	if l.balance != 6 {
		t.Errorf("saved %v, want the bound 6", l.balance)
	}
	l = newLedger(3)
	var tokens, spent float64
	for range 1000 {
		extra := 0.0
		for l.allows(extra + .25) {
			extra += .25
		}
		l.book(1, 1+extra)
		tokens, spent = tokens+1, spent+1+extra
		if spent > tokens*(1+slack)+credit+1e-9 {
			t.Fatalf("%v spent on %v tokens", spent, tokens)
		}
	}
	if spent < 1020 {
		t.Errorf("%v spent: the credit is not used", spent)
	}
}

// BenchmarkAdaptiveChoice is what a step with news costs beside its forward.
func BenchmarkAdaptiveChoice(b *testing.B) {
	c, err := NewCostModel([]CostPoint{{1, 1}, {8, 1.6}, {16, 2.3}, {32, 4.2}})
	if err != nil {
		b.Fatal(err)
	}
	v := newVerifiedControl(c, maxAdaptive, 2*maxAdaptive, nil)
	r := rand.New(rand.NewPCG(1, 1))
	drafts := []class{}
	for b.Loop() {
		feed, masks := v.choose(drafts, maxAdaptive, nil, 0)
		o := observation{drafts: drafts[:feed], accepted: r.IntN(feed + 1), masks: masks}
		o.tokens = 1 + o.accepted
		v.observe(o)
		drafts = []class{}
		for i := 1; i < masks && o.accepted == feed; i++ {
			drafts = append(drafts, entropyClass(r.Float32()))
		}
		v.drafted(drafts)
	}
}
