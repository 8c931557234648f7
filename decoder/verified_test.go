package decoder

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/model"
)

// TestVerifiedEqualsAR: greedy verified is ar token for token, whatever τ, λ
// and W are, with penalties, bias, stop ids and any bound; only the number of
// forwards differs, and it is never more than one per token.
func TestVerifiedEqualsAR(t *testing.T) {
	t.Parallel()
	var drafts, accepted int
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 2))
		m := newToy(t, seed)
		o := randomOptions(r, Verified, m)
		if r.IntN(3) == 0 {
			o.Sampling.RepetitionPenalty = 1 + r.Float32()
			o.Sampling.PresencePenalty = r.Float32()*2 - 1
			o.Sampling.FrequencyPenalty = r.Float32()*2 - 1
		}
		if r.IntN(3) == 0 {
			o.Sampling.LogitBias = map[int32]float32{int32(r.IntN(20)): r.Float32()*6 - 3, 3: float32(r.IntN(2)) * -100}
		}
		prompt := randomPrompt(r)
		ar := o
		ar.Mode = AR
		want := generate(t, m, prompt, ar, Hooks{})
		got := generate(t, m, prompt, o, Hooks{})
		if !slices.Equal(got.Tokens, want.Tokens) || got.FinishReason != want.FinishReason {
			t.Fatalf("seed %d, options %+v:\nverified %v %s\nar       %v %s", seed, o, got.Tokens, got.FinishReason, want.Tokens, want.FinishReason)
		}
		if got.Stats.Forwards > len(got.Tokens)-1 {
			t.Fatalf("seed %d: %d forwards for %d tokens", seed, got.Stats.Forwards, len(got.Tokens))
		}
		if want.Stats.Forwards != len(want.Tokens)-1 || want.Stats.Rows != len(want.Tokens)-1 {
			t.Fatalf("seed %d: ar made %d tokens with %+v", seed, len(want.Tokens), want.Stats)
		}
		if (o.EntropyThreshold == nil || *o.EntropyThreshold == 0) && (got.Stats.Drafts != 0 || got.Stats.Rows != len(got.Tokens)-1) {
			t.Fatalf("seed %d: no threshold, yet %+v", seed, got.Stats)
		}
		drafts += got.Stats.Drafts
		accepted += got.Stats.Accepted
	}
	// The tests above say nothing unless drafts stand and fall.
	if accepted < 1000 || drafts-accepted < 1000 {
		t.Fatalf("%d of %d drafts accepted: the toy model does not exercise the rule", accepted, drafts)
	}
}

// plainVerified decodes greedily as the pseudo-code of verified.go says, with
// every mask that it names and none of its savings, and without a cache.
func plainVerified(m *toy, prompt []int32, o Options) (output []int32, forwards int) {
	forward := func(rows []int32) []model.Result {
		tokens := slices.Concat(prompt, output, rows)
		positions := make([]int32, len(tokens))
		for i := range positions {
			positions[i] = int32(i)
		}
		var results []model.Result
		for _, k := range m.run(tokens, positions)[len(tokens)-max(1, len(rows)):] {
			results = append(results, m.result(k, false))
		}
		return results
	}
	fill := []int32{forward(nil)[0].Argmax}
	ends := func(n int, x int32) bool { return n == o.MaxTokens || slices.Contains(o.StopIDs, x) }
	if ends(1, fill[0]) {
		return fill, 0
	}
	for {
		rows := slices.Clone(fill)
		for range min(o.Window, o.MaxTokens-len(output)-len(fill)) {
			rows = append(rows, m.mask)
		}
		a := forward(rows)
		forwards++
		ok := 1
		for ok < len(fill) && fill[ok] == a[ok-1].Argmax {
			ok++
		}
		for _, x := range fill[:ok] {
			output = append(output, x)
			if ends(len(output), x) {
				return output, forwards
			}
		}
		next := []int32{a[ok-1].Argmax}
		if ends(len(output)+1, next[0]) { // it is known: nobody need feed it
			return append(output, next[0]), forwards
		}
		if ok == len(fill) && o.EntropyThreshold != nil {
			for j, r := range a[ok:] {
				if j == 0 {
					continue
				}
				if float64(r.Entropy)+float64(o.PosPenalty)*float64(j) >= float64(*o.EntropyThreshold) {
					break
				}
				next = append(next, r.Argmax)
			}
		}
		fill = next
	}
}

// TestVerifiedSavings: leaving out masks that cannot matter changes neither
// the output nor the number of forwards.
func TestVerifiedSavings(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 3))
		m := newToy(t, seed)
		o := randomOptions(r, Verified, m)
		prompt := randomPrompt(r)
		want, forwards := plainVerified(m, prompt, o)
		got := generate(t, m, prompt, o, Hooks{})
		if !slices.Equal(got.Tokens, want) || got.Stats.Forwards != forwards {
			t.Fatalf("seed %d, options %+v:\ngot  %v in %d forwards\nwant %v in %d", seed, o, got.Tokens, got.Stats.Forwards, want, forwards)
		}
	}
}

// scriptedCausal answers filled rows with the next letter and masks with
// their own, except where wrong names a position's draft.
type scriptedCausal struct {
	wrong   map[int32]int32
	entropy map[int32]float32
	fed     []string
}

func (s *scriptedCausal) Forward(_ context.Context, b *model.Batch) ([]model.Result, error) {
	b.Spans[0].Cache.Stage(len(b.Tokens))
	var fed []rune
	var results []model.Result
	for i, x := range b.Tokens {
		p := b.Positions[i] - 1
		r := model.Result{Argmax: 'A' + p + 1}
		if x == 99 {
			r = model.Result{Argmax: 'A' + p, Entropy: s.entropy[p]}
			if w, ok := s.wrong[p]; ok {
				r.Argmax = w
			}
			x = '_'
		}
		fed = append(fed, x)
		results = append(results, r)
	}
	s.fed = append(s.fed, string(fed))
	return results[len(results)-len(b.Want):], nil
}

// TestVerifiedByHand follows one generation, counters and steps included.
func TestVerifiedByHand(t *testing.T) {
	s := &scriptedCausal{
		wrong:   map[int32]int32{3: 'X'},
		entropy: map[int32]float32{8: .6},
	}
	o := Options{Mode: Verified, Window: 4, EntropyThreshold: threshold(.5), PosPenalty: .0625, MaxTokens: 20, StopIDs: []int32{'J'}}
	o.Vocabulary.MaskID = 99
	var steps []Step
	sum, err := Generate(context.Background(), s, model.NewCountingCache(100), []int32{1}, o, nil, Hooks{Step: func(s Step) { steps = append(steps, s) }})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"\x01",     // the prompt: gives A
		"A____",    // commits A; B is causal, masks 1 to 3 draft C X E
		"BCXE____", // commits B C, rejects X; D is causal, every draft dropped
		"D____",    // commits D; E is causal, drafts F G H
		"EFGH____", // commits E F G H; I is causal, mask 0's entropy is not asked; J is a stop id
		"IJ",       // nothing behind a drafted stop id
	}
	if !slices.Equal(s.fed, want) {
		t.Errorf("fed %q\nwant %q", s.fed, want)
	}
	if letters(sum.Tokens) != "ABCDEFGHIJ" || sum.FinishReason != FinishStop {
		t.Errorf("tokens %s, finish %s", letters(sum.Tokens), sum.FinishReason)
	}
	// Rows 5+8+5+8+2; drafts 0+3+0+3+1, of which 1+3+1 stood.
	st := sum.Stats
	if st.Forwards != 5 || st.Rows != 28 || st.Drafts != 7 || st.Accepted != 5 || st.PCache() != 10.0/28 {
		t.Errorf("stats %+v", st)
	}
	if s := steps[1]; letters(s.Committed) != "BC" || s.Base != 2 || s.Drafts != 3 || s.Accepted != 1 || len(s.Entropy) != 0 || !slices.Equal(s.Filled, []Fill{{0, 'D'}}) {
		t.Errorf("step 2 is %+v", s)
	}
	if s := steps[2]; len(s.Entropy) != 4 || !slices.Equal(s.Filled, []Fill{{0, 'E'}, {1, 'F'}, {2, 'G'}, {3, 'H'}}) {
		t.Errorf("step 3 is %+v", s)
	}
}

// TestVerifiedCutsMasks: masks that λ alone puts past τ are not fed, nor those whose drafts
// would be past the end.
func TestVerifiedCutsMasks(t *testing.T) {
	s := &scriptedCausal{}
	o := Options{Mode: Verified, Window: 16, EntropyThreshold: threshold(.5), PosPenalty: .25, MaxTokens: 4}
	o.Vocabulary.MaskID = 99
	if _, err := Generate(context.Background(), s, model.NewCountingCache(100), []int32{1}, o, nil, Hooks{}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"\x01", "A__", "BC"}; !slices.Equal(s.fed, want) {
		t.Errorf("fed %q, want %q", s.fed, want)
	}
}
