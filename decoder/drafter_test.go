package decoder

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/model"
)

// oracle is a drafter that knows what ar says, and lies at times; like a smaller model
// it runs forwards, which may fail.
type oracle struct {
	t      *testing.T
	text   []int32 // prompt and output
	told   int     // tokens that it was told of
	prompt int
	lies   float64
	fails  float64
	r      *rand.Rand
	closed bool
}

func (o *oracle) Kind() DrafterKind { return ModelDrafter }
func (o *oracle) Seconds() float64  { return .05 }
func (o *oracle) Close()            { o.closed = true }

func (o *oracle) Follow(tokens []int32, rows []model.Result) {
	if o.told >= o.prompt && len(rows) != len(tokens) || o.told == 0 && rows != nil {
		o.t.Fatalf("told of %d tokens of %d rows, behind %d", len(tokens), len(rows), o.told)
	}
	if !slices.Equal(tokens, o.text[o.told:o.told+len(tokens)]) {
		o.t.Fatalf("told of %v behind %d, want a part of %v", tokens, o.told, o.text)
	}
	o.told += len(tokens)
}

var errOracle = errors.New("the drafter's forward was cut off")

func (o *oracle) Propose(_ context.Context, p *Proposal) error {
	for p.Pays() {
		if o.r.Float64() < o.fails {
			return errOracle
		}
		token := int32(o.r.IntN(15))
		if i := o.told + len(p.Ahead()); i < len(o.text) && o.r.Float64() >= o.lies {
			token = o.text[i]
		}
		r := model.Result{Argmax: token, Entropy: o.r.Float32()}
		w := p.Wants()
		if w.TopK > 0 {
			r.Top = []model.Candidate{{ID: token}}
		}
		if w.Logits {
			r.Logits = make([]float32, 17)
			for i := range r.Logits {
				r.Logits[i] = -3 * o.r.Float32()
			}
			r.Logits[token] = 5
		}
		if _, err := p.Draw(r, 1); err != nil {
			return err
		}
	}
	return nil
}

// TestDraftersEqualAR: whoever drafts, and however well, verified says what ar says:
// greedy and sampled, with penalties and stop ids, under constraints that force text,
// adaptive or not, at any price of a row, with masks and without.
func TestDraftersEqualAR(t *testing.T) {
	t.Parallel()
	var all Drafters
	for seed := range uint64(1200) {
		r := rand.New(rand.NewPCG(seed, 82))
		m := newToy(t, seed)
		o := randomOptions(r, Verified, m)
		o.MaxTokens = 1 + r.IntN(60)
		prompt := randomPrompt(r)
		if seed%2 == 0 { // text that repeats itself
			prompt = slices.Repeat(prompt, 3)
			m.agree, m.period = []float64{.8, 1}[r.IntN(2)], 1+uint64(r.IntN(9))
		}
		if seed%3 == 0 {
			o.Sampling = Sampling{Temperature: .5 + r.Float32(), TopP: .9, Seed: seed}
		}
		if r.IntN(3) == 0 {
			o.Sampling.RepetitionPenalty = 1 + r.Float32()
		}
		if seed%7 == 0 {
			n := r.IntN(4)
			o.Logprobs = &n
		}
		ar := o
		ar.Mode = AR
		want := generate(t, m, prompt, ar, Hooks{})
		if seed%5 == 0 {
			rules := newMachine(r, m.vocab-2)
			ar.Constraint, ar.StopIDs = rules, []int32{machineEnd}
			want = generate(t, m, prompt, ar, Hooks{})
			o.StopIDs = ar.StopIDs
			o.Constraint = &prophet{machine: *rules, text: want.Tokens, lies: .2, seed: seed, most: 1 + r.IntN(9)}
		}
		for _, draft := range []DraftChoice{DraftAuto, DraftMask, DraftLookup, DraftModel, DraftMTP, DraftNone} {
			for _, masks := range []bool{true, false} {
				o := o
				o.Draft = draft
				if !masks {
					if o.Vocabulary = (Vocabulary{Size: 15, MaskID: -1}); o.LacksMask() {
						continue
					}
				}
				if r.IntN(3) > 0 {
					o.Window = 1 + r.IntN(24)
					o.Cost = costs(t, CostPoint{1, 1}, CostPoint{2 + r.IntN(6), .8 + r.Float64()}, CostPoint{8 + r.IntN(30), 1 + 4*r.Float64()})
				}
				x := &oracle{t: t, text: slices.Concat(prompt, want.Tokens), prompt: len(prompt), lies: r.Float64(), fails: .1, r: r}
				o.NewDrafter = func() (Drafter, error) { return x, nil }
				var own *head
				if draft == DraftMTP {
					own = &head{toy: m, text: slices.Concat(prompt, want.Tokens, []int32{0}), lies: r.Float64(), fails: .1, r: r}
					o.Head = &HeadDrafts{Engine: own, Width: headWidth, Seconds: .05, PrefillRows: 1 + r.IntN(30)}
				}
				got, rows := drafted(t, m, own, prompt, o, r)
				what := fmt.Sprintf("seed %d, draft %s, masks %t, options %+v", seed, draft, masks, o)
				if !slices.Equal(got.Tokens, want.Tokens) || got.FinishReason != want.FinishReason {
					t.Fatalf("%s:\nverified %v %s\nar       %v %s", what, got.Tokens, got.FinishReason, want.Tokens, want.FinishReason)
				}
				st := got.Stats
				sum := DrafterStats{}
				st.Drafters.Each(func(kind DrafterKind, d DrafterStats) {
					sum.Drafts, sum.Accepted = sum.Drafts+d.Drafts, sum.Accepted+d.Accepted
					by := draft.masks() && kind == MaskDrafter || (draft == DraftLookup || draft == DraftAuto) && kind == LookupDrafter ||
						draft == DraftModel && kind == ModelDrafter || draft == DraftMTP && kind == HeadDrafter || draft != DraftNone && kind == ConstraintDrafter
					if !by {
						t.Fatalf("%s: %s drafted %+v", what, kind, d)
					}
				})
				if sum.Drafts != st.Drafts || sum.Accepted != st.Accepted {
					t.Fatalf("%s: %+v by kind, %+v in all", what, sum, st)
				}
				if !masks && st.Masks > 0 || draft == DraftNone && rows > 1 {
					t.Fatalf("%s: %d masks, up to %d rows", what, st.Masks, rows)
				}
				all.Add(&st.Drafters)
				if draft == DraftModel && !x.closed {
					t.Fatalf("%s: the drafter was not closed", what)
				}
			}
		}
	}
	for _, kind := range []DrafterKind{MaskDrafter, ConstraintDrafter, LookupDrafter, ModelDrafter, HeadDrafter} {
		if d := all[kind]; d.Accepted < 500 || d.Drafts-d.Accepted < 500 {
			t.Errorf("%s: %+v: nothing is shown", kind, d)
		}
	}
}

// drafted generates as owners do that plan twice, set prices, and call a drafter again
// after it has failed; own is the head of a model that has one for drafts. It
// also returns the most rows of a step.
func drafted(t *testing.T, m *toy, own *head, prompt []int32, o Options, r *rand.Rand) (Summary, int) {
	t.Helper()
	capacity, maxRows := CacheSize(len(prompt), o)
	cache := model.NewCountingCache(capacity)
	m.keys, m.forwards, m.maxRows, m.rows = nil, 0, 0, 0
	forward := m.Forward
	if own != nil {
		own.cache, forward = cache, own.Forward
	}
	s, err := NewSequence(cache, prompt, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, most := context.Background(), 0
	for !s.Done() {
		if s.Elastic() && r.IntN(3) == 0 {
			s.Share(&Price{Row: r.Float64() * 1.2, Masks: r.IntN(20)})
		} else {
			s.Share(nil)
		}
		for s.Draft(ctx) != nil {
			if r.IntN(4) == 0 {
				break // without it, then
			}
		}
		for range r.IntN(2) {
			s.Plan(new(model.Batch), 0) // never run
		}
		b := new(model.Batch)
		s.Plan(b, 0)
		if !s.Prefilling() {
			most = max(most, len(b.Tokens))
		}
		results, err := forward(ctx, b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Absorb(results); err != nil {
			t.Fatal(err)
		}
	}
	if most > maxRows {
		t.Fatalf("a step of %d rows, CacheSize says at most %d", most, maxRows)
	}
	sum := s.Summary()
	m.verifyEnd(cache, prompt, sum.Tokens)
	return sum, most
}

// copied is an engine whose text is a given one, and whose forwards take the time of a
// table. Masks know nothing.
type copied struct {
	text    func(pos int) int32
	cost    *CostModel
	seconds float64
}

func (c *copied) Forward(_ context.Context, b *model.Batch) ([]model.Result, error) {
	b.Spans[0].Cache.Stage(len(b.Tokens))
	if b.Spans[0].Cache.Base() > 0 {
		c.seconds += c.cost.Seconds(len(b.Tokens))
	}
	var results []model.Result
	for _, w := range b.Want {
		r := model.Result{Argmax: c.text(int(b.Positions[w.Row]) + 1)}
		if b.Tokens[w.Row] == 999 {
			r = model.Result{Argmax: 998, Entropy: 5}
		}
		results = append(results, r)
	}
	return results, nil
}

func (c *copied) decode(t *testing.T, prompt []int32, o Options) (float64, Stats) {
	t.Helper()
	c.seconds = 0
	sum, err := Generate(context.Background(), c, model.NewCountingCache(len(prompt)+o.MaxTokens), prompt, o, nil, Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	for i, token := range sum.Tokens {
		if token != c.text(len(prompt)+i) {
			t.Fatalf("token %d is %d, want %d", i, token, c.text(len(prompt)+i))
		}
	}
	return c.seconds, sum.Stats
}

// TestLookupPays: by the table, lookups cost at most 2 % (and two steps) of ar on text
// without repeats, or with repeats that always end otherwise, and gain much on copies.
func TestLookupPays(t *testing.T) {
	t.Parallel()
	const n = 600
	word := func(x uint64) int32 { return int32(mix(x) % 900) }
	prompt := make([]int32, n)
	for i := range prompt {
		prompt[i] = word(uint64(i))
	}
	for _, text := range []struct {
		name string
		next func(pos int) int32
		gain map[string]float64 // least, by machine
	}{
		{"new", func(pos int) int32 { return word(uint64(pos)) }, nil},
		{"two that mislead", func(pos int) int32 {
			if pos%3 < 2 { // pairs of the prompt, each followed by another token
				return prompt[mix(uint64(pos/3))%500+uint64(pos%3)]
			}
			return 900 + int32(pos%90)
		}, nil},
		{"few words", func(pos int) int32 { return int32(mix(uint64(pos)) % 3) }, nil},
		{"copy", func(pos int) int32 { return prompt[pos%n] }, map[string]float64{"flat": 10, "device": 7, "cpu": 2, "linear": .98}},
		{"copy with an edit in 12", func(pos int) int32 {
			if pos%12 == 0 {
				return 950
			}
			return prompt[pos%n]
		}, map[string]float64{"flat": 3, "device": 2.8, "cpu": 1.4, "linear": .98}},
		{"loop of 5", func(pos int) int32 { return int32(pos % 5) }, map[string]float64{"flat": 10, "device": 7, "cpu": 2, "linear": .98}},
	} {
		for name, cost := range machines(t) {
			for _, masks := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/masks %t", text.name, name, masks), func(t *testing.T) {
					c := &copied{text: text.next, cost: cost}
					o := DefaultOptions()
					o.MaxTokens, o.Mode = n, AR
					ar, _ := c.decode(t, prompt, o)
					o.Mode, o.Window, o.Cost, o.Draft = Verified, 24, cost, DraftAuto
					if masks {
						o.Vocabulary.MaskID = 999
					}
					auto, st := c.decode(t, prompt, o)
					what := fmt.Sprintf("ar %.1f, with drafts %.1f: %.2f times as fast; %+v", ar, auto, ar/auto, st.Drafters[LookupDrafter])
					t.Log(what)
					if auto > 1.02*ar+credit*cost.Seconds(1) {
						t.Errorf("slower than ar: %s", what)
					}
					if ar < text.gain[name]*auto {
						t.Errorf("want %v times as fast: %s", text.gain[name], what)
					}
				})
			}
		}
	}
}
