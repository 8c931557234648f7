package decoder

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/model"
)

// head is a toy model and its head for drafts, scripted: a hidden state is its position
// and the token there. It knows what ar says, lies at times, and fails at times; it
// checks each pair that it is fed.
type head struct {
	*toy
	cache *model.Cache
	text  []int32 // prompt and output
	lies  float64
	fails float64
	r     *rand.Rand
	// gap is how many tokens of the prompt were in the cache before: their states are
	// not known.
	gap int
	fed int // pairs that were certain
	// mapped: behind a draft states may be mapped ones.
	mapped bool
	// breaks is after how many forwards its logits are not finite any more, where that is
	// positive: an error, or, with silent, results that say nothing.
	breaks, forwards int
	silent           bool
}

// certainState marks a state of the toy's, and ownState one of the head's.
const (
	headWidth    = 4
	certainState = 1
	ownState     = 2
)

func (h *head) Forward(ctx context.Context, b *model.Batch) ([]model.Result, error) {
	b.RunDeferred() // by places in Want
	bare := slices.Clone(b.Want)
	b.Want = slices.DeleteFunc(b.Want, func(w model.Wanted) bool { return w.Bare })
	told, err := h.toy.Forward(ctx, b)
	if err != nil {
		return nil, err
	}
	var results []model.Result
	for _, w := range bare {
		r := model.Result{Argmax: -1}
		if !w.Bare {
			r, told = told[0], told[1:]
		}
		if w.Hidden {
			r.Hidden = []float32{float32(b.Positions[w.Row]), float32(b.Tokens[w.Row]), certainState, 0}
		}
		results = append(results, r)
	}
	return results, nil
}

func (h *head) Draft(_ context.Context, b *model.DraftBatch) ([]model.Result, error) {
	if h.r.Float64() < h.fails {
		return nil, errOracle
	}
	h.forwards++
	broken := h.breaks > 0 && h.forwards > h.breaks
	if told := slices.ContainsFunc(b.Want, func(w model.Wanted) bool { return !w.Bare }); broken && told && !h.silent {
		return nil, fmt.Errorf("toy: %w", &model.NotFiniteError{Row: len(b.Tokens) - 1})
	}
	if len(b.Spans) != 1 || b.Spans[0].Cache != h.cache || b.Spans[0].Rows != len(b.Tokens) || len(b.Hidden) != headWidth*len(b.Tokens) {
		h.t.Fatalf("drafts: %+v", b)
	}
	if len(b.Tokens) > fedRows {
		h.t.Fatalf("%d pairs at once", len(b.Tokens))
	}
	base, at := h.cache.Base(), b.Spans[0].At
	if h.cache.Drafted() < min(at, base) {
		h.t.Fatalf("pairs from %d on, the head has %d", at, h.cache.Drafted())
	}
	for i, token := range b.Tokens {
		state, p := b.Hidden[i*headWidth:(i+1)*headWidth], at+i
		switch {
		case p < h.gap && slices.Equal(state, make([]float32, headWidth)): // not known
		case p >= base: // behind a draft
			if !h.mapped && (state[2] != ownState || int(state[0]) != p-1) {
				h.t.Fatalf("position %d behind %d tokens: state %v", p, base, state)
			}
			continue
		case state[2] != certainState || int(state[0]) != p || int32(state[1]) != h.text[p]:
			h.t.Fatalf("position %d of %d: state %v, want that of %d", p, base, state, h.text[p])
		}
		if token != h.text[p+1] {
			h.t.Fatalf("position %d of %d: token %d behind it, want %d", p, base, token, h.text[p+1])
		}
		h.fed++
	}
	var results []model.Result
	for _, w := range b.Want {
		p := at + int(w.Row)
		r := model.Result{Argmax: -1, Hidden: []float32{float32(p), 0, ownState, 0}}
		if !w.Bare {
			token := int32(h.r.IntN(15))
			if p+2 < len(h.text) && h.r.Float64() >= h.lies {
				token = h.text[p+2]
			}
			if r.Argmax, r.Entropy = token, h.r.Float32(); broken {
				r.Entropy = float32(math.NaN())
			}
			if w.TopK > 0 {
				r.Top = []model.Candidate{{ID: token}}
			}
			if w.Logits {
				r.Logits = make([]float32, 17)
				for i := range r.Logits {
					r.Logits[i] = -3 * h.r.Float32()
				}
				r.Logits[token] = 5
			}
		}
		results = append(results, r)
	}
	return results, nil
}

// TestHeadDrafts: whatever a model's own head drafts, verified says what ar says: greedy
// and sampled, under constraints, with lookups beside it, where its forwards fail and
// where the sequence loses its cache. The head is fed each pair of a state and the token
// behind it once, from the first one whose state is known on.
func TestHeadDrafts(t *testing.T) {
	t.Parallel()
	var all Drafters
	moved, chain := 0, NewChain(nil)
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 83))
		m := newToy(t, seed)
		o := randomOptions(r, Verified, m)
		o.MaxTokens, o.PrefillRows = 1+r.IntN(60), 1+r.IntN(20)
		prompt := randomPrompt(r)
		if seed%2 == 0 {
			prompt = slices.Repeat(prompt, 3)
			m.agree, m.period = []float64{.8, 1}[r.IntN(2)], 1+uint64(r.IntN(9))
		}
		if seed%3 == 0 {
			o.Sampling = Sampling{Temperature: .5 + r.Float32(), TopP: .9, Seed: seed}
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
		o.Draft = []DraftChoice{DraftMTP, DraftAuto}[r.IntN(2)]
		if o.Draft == DraftAuto {
			o.Vocabulary = Vocabulary{Size: 15, MaskID: -1}
		}
		if r.IntN(3) > 0 {
			o.Window = 1 + r.IntN(24)
			o.Cost = costs(t, CostPoint{1, 1}, CostPoint{2 + r.IntN(6), .8 + r.Float64()}, CostPoint{8 + r.IntN(30), 1 + 4*r.Float64()})
			o.Experience = NewExperience()
		}
		o.Drafts = []int{0, 0, 1, 3}[r.IntN(4)]
		h := &head{toy: m, text: slices.Concat(prompt, want.Tokens, []int32{0}), lies: r.Float64(), r: r}
		if seed%4 == 0 {
			h.fails = .15
		}
		o.Head = &HeadDrafts{Engine: h, Width: headWidth, Seconds: .05, PrefillRows: 1 + r.IntN(30)}
		if h.mapped = seed%2 == 0; h.mapped {
			o.Head.Chain = chain
		}
		got, moves := h.generate(prompt, o, r, seed%6 == 0)
		moved += moves
		what := fmt.Sprintf("seed %d, options %+v", seed, o)
		if !slices.Equal(got.Tokens, want.Tokens) || got.FinishReason != want.FinishReason {
			t.Fatalf("%s:\nverified %v %s\nar       %v %s", what, got.Tokens, got.FinishReason, want.Tokens, want.FinishReason)
		}
		if o.Drafts > 0 && o.Constraint == nil && o.Draft == DraftMTP && got.Stats.Rows > got.Stats.Forwards*(1+o.Drafts) {
			t.Fatalf("%s: %d rows in %d forwards", what, got.Stats.Rows, got.Stats.Forwards)
		}
		// Without failures and moves each pair is fed once, but the last one of a proposal
		// that is begun anew.
		if h.fails == 0 && moves == 0 && h.fed > len(prompt)+len(got.Tokens) {
			t.Fatalf("%s: %d pairs of %d tokens", what, h.fed, len(prompt)+len(got.Tokens))
		}
		all.Add(&got.Stats.Drafters)
	}
	for _, kind := range []DrafterKind{HeadDrafter, LookupDrafter, ConstraintDrafter} {
		if d := all[kind]; d.Accepted < 300 || d.Drafts-d.Accepted < 300 {
			t.Errorf("%s: %+v: nothing is shown", kind, d)
		}
	}
	if moved < 50 {
		t.Errorf("%d caches were lost: nothing is shown", moved)
	}
}

// generate drives a sequence; its cache is taken away at times.
func (h *head) generate(prompt []int32, o Options, r *rand.Rand, moves bool) (Summary, int) {
	h.t.Helper()
	m, moved := h.toy, 0
	capacity, maxRows := CacheSize(len(prompt), o)
	h.cache = model.NewCountingCache(capacity)
	m.keys, m.forwards, m.maxRows, m.rows = nil, 0, 0, 0
	s, err := NewSequence(h.cache, prompt, o, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	defer s.Close()
	for !s.Done() {
		if moves && r.IntN(6) == 0 {
			c := model.NewCountingCache(capacity)
			n := r.IntN(h.cache.Base() + 1)
			c.Stage(n)
			if err := c.Commit(n); err != nil {
				h.t.Fatal(err)
			}
			if err := s.Move(c); err != nil {
				h.t.Fatal(err)
			}
			h.cache, h.gap = c, max(h.gap, n)
			moved++
		}
		for s.Draft(h.t.Context()) != nil {
			if r.IntN(4) == 0 {
				break // without it, then
			}
		}
		b := new(model.Batch)
		s.Plan(b, 0)
		if n := len(b.Tokens); n > maxRows && !s.Prefilling() {
			h.t.Fatalf("a forward of %d rows, CacheSize says at most %d", n, maxRows)
		}
		results, err := h.Forward(h.t.Context(), b)
		if err != nil {
			h.t.Fatal(err)
		}
		if _, err := s.Absorb(results); err != nil {
			h.t.Fatal(err)
		}
	}
	sum := s.Summary()
	m.verifyEnd(h.cache, prompt, sum.Tokens)
	return sum, moved
}

// TestHeadBesideCached: a prompt whose beginning is cached is drafted for, too; of the
// states that nobody knows any more the head is fed zeros, once.
func TestHeadBesideCached(t *testing.T) {
	m := newToy(t, 5)
	prompt := []int32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8}
	o := toyOptions(Verified, m)
	o.Draft, o.Vocabulary.MaskID = DraftMTP, -1
	ar := o
	ar.Mode, ar.Draft = AR, ""
	want := generate(t, m, prompt, ar, Hooks{})
	h := &head{toy: m, text: slices.Concat(prompt, want.Tokens, []int32{0}), r: rand.New(rand.NewPCG(1, 1)), gap: 7}
	o.Head = &HeadDrafts{Engine: h, Width: headWidth}
	h.cache = model.NewCountingCache(100)
	m.keys = m.run(prompt[:7], []int32{0, 1, 2, 3, 4, 5, 6})
	h.cache.Stage(7)
	if err := h.cache.Commit(7); err != nil {
		t.Fatal(err)
	}
	sum, err := Generate(t.Context(), h, h.cache, prompt, o, nil, Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(sum.Tokens, want.Tokens) {
		t.Errorf("verified %v\nar       %v", sum.Tokens, want.Tokens)
	}
	if d := sum.Stats.Drafters[HeadDrafter]; sum.Stats.TokensPerForward() < 3 || d.Accepted != d.Drafts {
		t.Errorf("%.2f tokens per forward of a head that is always right: %+v", sum.Stats.TokensPerForward(), d)
	}
	if h.fed < h.cache.Drafted() {
		t.Errorf("%d pairs were fed, the head is said to have %d", h.fed, h.cache.Drafted())
	}
}

// TestBrokenHead: a head whose logits are not finite proposes nothing from then on, and
// verified says what ar says; where the head was asked for by name, that is an error.
func TestBrokenHead(t *testing.T) {
	drafted := 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		m := newToy(t, seed)
		prompt := randomPrompt(r)
		o := toyOptions(Verified, m)
		o.MaxTokens = 40
		if seed%3 == 0 {
			o.Sampling = Sampling{Temperature: .5 + r.Float32(), TopP: .9, Seed: seed}
		}
		ar := o
		ar.Mode = AR
		want := generate(t, m, prompt, ar, Hooks{})
		o.Draft, o.Vocabulary = DraftAuto, Vocabulary{Size: 15, MaskID: -1}
		if seed%2 == 0 {
			o.Cost, o.Experience = costs(t, CostPoint{1, 1}, CostPoint{48, 1.2}), NewExperience()
		}
		h := &head{toy: m, text: slices.Concat(prompt, want.Tokens, []int32{0}), r: r, breaks: 1 + r.IntN(9), silent: seed%5 == 0}
		o.Head = &HeadDrafts{Engine: h, Width: headWidth, Seconds: .05}
		got, _ := h.generate(prompt, o, r, false)
		if !slices.Equal(got.Tokens, want.Tokens) || got.FinishReason != want.FinishReason {
			t.Fatalf("seed %d, broken after %d:\nverified %v %s\nar       %v %s", seed, h.breaks, got.Tokens, got.FinishReason, want.Tokens, want.FinishReason)
		}
		if h.forwards > h.breaks+1 {
			t.Fatalf("seed %d: %d forwards of a head that broke after %d", seed, h.forwards, h.breaks)
		}
		drafted += got.Stats.Drafters[HeadDrafter].Accepted
		// Alone, and by its name.
		o.Draft, h.forwards = DraftMTP, 0
		h.cache = model.NewCountingCache(100)
		m.keys = nil
		sum, err := Generate(t.Context(), h, h.cache, prompt, o, nil, Hooks{})
		if broken := (*model.NotFiniteError)(nil); err == nil && h.forwards > h.breaks || err != nil && !errors.As(err, &broken) {
			t.Fatalf("seed %d, asked for: %v after %d forwards, broken after %d", seed, err, h.forwards, h.breaks)
		}
		if n := len(sum.Tokens); !slices.Equal(sum.Tokens, want.Tokens[:n]) {
			t.Fatalf("seed %d: %v before the error, want %v", seed, sum.Tokens, want.Tokens[:n])
		}
	}
	if drafted < 100 {
		t.Errorf("%d drafts stood before: nothing is shown", drafted)
	}
}

// TestHeadThatCannotPay: where two rows take as long as two forwards of one, or longer, no
// draft is worth its row, however good the head is: the ledger falls back to none, and a
// generation takes hardly longer than ar's.
func TestHeadThatCannotPay(t *testing.T) {
	const tokens, took = 400, .05
	for _, c := range []struct {
		second float64 // c(2)
		pays   bool
	}{{1.1, true}, {1.5, true}, {2, false}, {2.2, false}, {3, false}} {
		for seed := range uint64(6) {
			m := newToy(t, seed)
			prompt := []int32{3, 1, 4, 1, 5, 9}
			o := toyOptions(Verified, m)
			o.MaxTokens, o.StopIDs = tokens, nil
			ar := o
			ar.Mode, ar.Draft = AR, ""
			want := generate(t, m, prompt, ar, Hooks{})
			o.Draft, o.Vocabulary.MaskID, o.Experience = DraftMTP, -1, NewExperience()
			o.Cost = costs(t, CostPoint{1, 1}, CostPoint{2, c.second}, CostPoint{48, c.second * 24})
			h := &head{toy: m, text: slices.Concat(prompt, want.Tokens, []int32{0}), r: rand.New(rand.NewPCG(seed, 1))}
			o.Head = &HeadDrafts{Engine: h, Width: headWidth, Seconds: took}
			got, _ := h.generate(prompt, o, h.r, false)
			if !slices.Equal(got.Tokens, want.Tokens) {
				t.Fatalf("c(2) %v: verified %v\nar       %v", c.second, got.Tokens, want.Tokens)
			}
			d := got.Stats.Drafters[HeadDrafter]
			// Each draft was one more row, and each row of the head took its time.
			paid := float64(got.Stats.Forwards) + (c.second-1)*float64(d.Drafts) + took*float64(d.Rows)
			switch most := tokens*(1+slack) + credit; {
			case c.pays && 2*d.Accepted < tokens/2:
				t.Errorf("c(2) %v, seed %d: %d of %d tokens were drafted by a head that is always right", c.second, seed, d.Accepted, tokens)
			case !c.pays && (d.Drafts > 4 || paid > most):
				t.Errorf("c(2) %v, seed %d: %d drafts, and %.1f forwards of a row for %d tokens, want at most %.1f", c.second, seed, d.Drafts, paid, tokens, most)
			}
			if seed == 0 {
				t.Logf("c(2) %v: %d of %d drafts stood, %d rows of the head, %.1f forwards of a row", c.second, d.Accepted, d.Drafts, d.Rows, paid)
			}
		}
	}
}

// TestHeadLongPrompt: a prompt that goes in a chunk of thousands of rows is fed whole, each
// pair with its state, some of them at a time.
func TestHeadLongPrompt(t *testing.T) {
	m := newToy(t, 5)
	r := rand.New(rand.NewPCG(1, 1))
	prompt := make([]int32, 2*fedRows+900)
	for i := range prompt {
		prompt[i] = int32(r.IntN(15))
	}
	o := toyOptions(Verified, m)
	o.Draft, o.Vocabulary.MaskID, o.PrefillRows, o.MaxTokens = DraftMTP, -1, 2*fedRows, 9
	ar := o
	ar.Mode, ar.Draft = AR, ""
	want := generate(t, m, prompt, ar, Hooks{})
	h := &head{toy: m, text: slices.Concat(prompt, want.Tokens, []int32{0}), r: r}
	o.Head = &HeadDrafts{Engine: h, Width: headWidth, PrefillRows: o.PrefillRows}
	if sum, _ := h.generate(prompt, o, r, false); !slices.Equal(sum.Tokens, want.Tokens) {
		t.Errorf("verified %v\nar       %v", sum.Tokens, want.Tokens)
	}
	if h.fed < len(prompt)-1 {
		t.Errorf("%d pairs of a prompt of %d tokens were fed with their states", h.fed, len(prompt))
	}
}

// TestHeadLeftAlone: of a long prompt's states no more than headRows wait where nobody
// drafts.
func TestHeadLeftAlone(t *testing.T) {
	const prompt = 3 * headRows
	d := newHeadDrafter(HeadDrafts{Width: headWidth, PrefillRows: prompt}, make([]int32, prompt+1))
	d.cache = model.NewCountingCache(prompt + 1) // the sequence stands elsewhere: there is no proposal
	d.prompted(0, make([]model.Result, prompt))
	if len(d.states) != prompt {
		t.Errorf("%d states of a chunk of %d are kept", len(d.states), prompt)
	}
	if err := d.Propose(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if len(d.states) != headRows || d.from != prompt-headRows {
		t.Errorf("%d states from %d on wait, want the newest %d", len(d.states), d.from, headRows)
	}
}

// TestHeadChoices: choices of who drafts, where there is a head and where there is
// none.
func TestHeadChoices(t *testing.T) {
	m := newToy(t, 6)
	o := toyOptions(Verified, m)
	o.Draft = DraftMTP
	if err := o.Validate(); err == nil {
		t.Error("a head drafts that is not there")
	}
	o.Head = &HeadDrafts{Seconds: .1}
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	o.Draft = DraftAuto
	if o.headDrafts() {
		t.Error("the head drafts in the masks' place where nothing is known of costs")
	}
	flat := costs(t, CostPoint{1, 1}, CostPoint{48, 1.1})
	steep := costs(t, CostPoint{1, 1}, CostPoint{4, 1.2}, CostPoint{6, 6}, CostPoint{48, 48})
	for _, c := range []struct {
		name string
		cost *CostModel
		took float64
		want bool
	}{
		{"masks are nearly free", flat, .3, false},
		{"more than four rows are dear", steep, .05, true},
		{"more than four rows are dear, and so is the head", steep, 3, false},
	} {
		o.Cost, o.Experience, o.Window = c.cost, NewExperience(), 16
		o.Head.Seconds = c.took
		if got := o.headDrafts(); got != c.want {
			t.Errorf("%s: the head drafts: %t, rates %.2f and %.2f of masks", c.name, got, o.headRate(), o.maskRate())
		}
	}
}

// TestChain: a chain learns a linear map from outputs to states, and feeds what is mapped
// where drafts then stand more often.
func TestChain(t *testing.T) {
	const width = 24
	r := rand.New(rand.NewPCG(9, 9))
	to := r.Perm(width) // and every other one with another sign
	pair := func() (output, state []float32) {
		output, state = make([]float32, width), make([]float32, width)
		for i := range output {
			output[i] = float32(r.NormFloat64())
		}
		normed(output, output)
		for i, v := range output {
			state[to[i]] = v * float32(1-2*(i%2))
		}
		return output, state
	}
	c := NewChain(nil)
	off := func() (worst float64) {
		for range 50 {
			x, y := pair()
			for i, v := range c.mapped(x) {
				worst = max(worst, abs(float64(v-y[i])))
			}
		}
		return worst
	}
	if c.choose(width) {
		t.Error("nothing was learned, and states are mapped")
	}
	c.learn(pair())
	before := off()
	for c.learning(width) {
		c.learn(pair())
	}
	if after := off(); after > before/10 {
		t.Errorf("off by %.3f, before it was learned %.3f", after, before)
	}
	for _, best := range []bool{true, false} {
		mapped := 0
		for range 2000 {
			way := c.choose(width)
			c.observe(way, way == best || r.IntN(4) == 0)
			if way {
				mapped++
			}
		}
		if best && mapped < 1800 || !best && mapped > 300 {
			t.Errorf("mapped is best: %t, and was fed in %d of 2000 steps", best, mapped)
		}
	}
	if c.choose(mappedWidth+1) || c.learning(mappedWidth+1) {
		t.Error("a wide state is mapped")
	}
	var none *Chain
	if none.choose(width) || none.learning(width) {
		t.Error("no chain is fed with mapped states")
	}
	none.observe(true, true)
}

// TestMasksAreTriedBeforeTheHead: where a model has masks and a head, masks that nothing is
// known of are tried, though the head promises more by the prior of both; then what they
// have shown decides.
func TestMasksAreTriedBeforeTheHead(t *testing.T) {
	// As measured of tiny-gsm-next on a Zen 5.
	cost, err := NewCostModel([]CostPoint{{1, 1}, {2, 1.4}, {3, 1.5}, {4, 1.9}, {6, 2.4}, {8, 3}, {10, 3.3}, {12, 4}, {16, 5.1}, {20, 5.8}, {24, 6.8}, {32, 8.9}, {48, 13.2}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what    string
		chance  float64 // of the masks' drafts that were seen; 0: none
		answers int
		head    bool
	}{
		{"nothing is known", 0, 0, false},
		{"good masks", .99, 8, false},
		{"bad masks", .3, 8, true},
	} {
		o := DefaultOptions()
		o.Draft, o.Window, o.Vocabulary.MaskID = DraftAuto, 24, 5
		o.Head, o.Cost, o.Experience = &HeadDrafts{Seconds: .3}, cost, NewExperience()
		for range c.answers {
			o.Experience.drafted(slices.Repeat([]float64{c.chance}, maxAdaptive-1))
		}
		if got := o.headDrafts(); got != c.head {
			t.Errorf("%s: the head drafts: %t; it promises %.2f, masks %.2f", c.what, got, o.headRate(), o.maskRate())
		}
	}
}
