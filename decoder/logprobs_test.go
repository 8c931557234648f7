package decoder

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"windrow/model"
)

// asksLittle is a toy that is asked for nothing that greedy decoding does not need.
type asksLittle struct{ *toy }

func (m asksLittle) Forward(ctx context.Context, b *model.Batch) ([]model.Result, error) {
	for _, w := range b.Want {
		if w.TopK > 0 || w.Logits {
			m.t.Fatalf("greedy decoding asks for %+v", w)
		}
	}
	return m.toy.Forward(ctx, b)
}

// likely generates, and returns the tokens with what was said of each.
func likely(t *testing.T, eng Engine, m *toy, prompt []int32, o Options) (tokens []int32, said []Logprobs) {
	t.Helper()
	capacity, _ := CacheSize(len(prompt), o)
	m.keys = nil
	s, err := NewSequence(model.NewCountingCache(capacity), prompt, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	for !s.Done() {
		events, err := s.forward(t.Context(), eng)
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range events {
			switch e := e.(type) {
			case Token:
				tokens = append(tokens, int32(e))
			case Logprobs:
				if i == 0 || events[i-1] != Event(Token(e.Token.ID)) {
					t.Fatalf("%v does not follow its token: %v", e, events)
				}
				said = append(said, e)
			}
		}
	}
	return tokens, said
}

// likelyByHand is what a row of the toy says of a token.
func likelyByHand(m *toy, k toyKey, token int32, n int) Logprobs {
	z, r := m.logits(k), m.result(k, false)
	ids := []int32{}
	for id := range int32(m.vocab - 1) {
		if id != m.mask {
			ids = append(ids, id)
		}
	}
	slices.SortStableFunc(ids, func(a, b int32) int { return cmp.Compare(z[b], z[a]) })
	p := Logprobs{Token: Logprob{token, z[token] - r.LogSumExp}, Top: []Logprob{}}
	for _, id := range ids[:min(n, len(ids))] {
		p.Top = append(p.Top, Logprob{id, z[id] - r.LogSumExp})
	}
	return p
}

// TestLogprobs: they are the model's own, to the bit the same in ar and in verified, also
// where tokens are sampled, penalised or held to a constraint.
func TestLogprobs(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 5))
		m := newToy(t, seed)
		prompt := randomPrompt(r)
		o := toyOptions(AR, m)
		o.MaxTokens = 1 + r.IntN(30)
		n := []int{0, 1, 3, 20}[r.IntN(4)]
		if seed%2 == 1 {
			o.Sampling = Sampling{Temperature: 0.9, TopP: 0.9, RepetitionPenalty: 1.2, Seed: seed, LogitBias: map[int32]float32{3: 2}}
		}
		if seed%4 >= 2 {
			o.StopIDs, o.Constraint = []int32{machineEnd}, newMachine(r, m.vocab-2)
		}
		without, none := likely(t, m, m, prompt, o)
		if len(none) > 0 {
			t.Fatalf("nobody asked: %v", none)
		}
		o.Logprobs = &n
		want, said := likely(t, m, m, prompt, o)
		if !slices.Equal(want, without) || len(said) != len(want) {
			t.Fatalf("seed %d: %v with logprobs, %v without", seed, want, without)
		}
		text := slices.Concat(prompt, want)
		positions := make([]int32, len(text))
		for i := range positions {
			positions[i] = int32(i)
		}
		keys := m.run(text, positions)
		for i, p := range said {
			if byHand := likelyByHand(m, keys[len(prompt)+i-1], want[i], n); fmt.Sprint(p) != fmt.Sprint(byHand) {
				t.Fatalf("seed %d, token %d: %v, by hand %v", seed, i, p, byHand)
			}
		}
		o.Mode = Verified
		for _, window := range []int{1, 4, 16} {
			o.Window = window
			tokens, again := likely(t, m, m, prompt, o)
			if !slices.Equal(tokens, want) || fmt.Sprint(again) != fmt.Sprint(said) {
				t.Fatalf("seed %d, window %d: verified %v %v, ar %v %v", seed, window, tokens, again, want, said)
			}
		}
	}
}

// TestLogprobsWeDLM: they are those of the mask that was filled.
func TestLogprobsWeDLM(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 6))
		m := newToy(t, seed)
		prompt := randomPrompt(r)
		o := toyOptions(WeDLM, m)
		n := 2
		o.Logprobs = &n
		if seed%2 == 1 {
			o.Sampling = Sampling{Temperature: 0.8, Seed: seed}
		}
		tokens, said := likely(t, m, m, prompt, o)
		if len(said) != len(tokens) {
			t.Fatalf("seed %d: %d of %d tokens", seed, len(said), len(tokens))
		}
		o.Logprobs = nil
		if without, _ := likely(t, m, m, prompt, o); !slices.Equal(without, tokens) {
			t.Fatalf("seed %d: %v with logprobs, %v without", seed, tokens, without)
		}
		o.Window, o.Logprobs = 1, &n // each mask stands behind the text so far
		tokens, said = likely(t, m, m, prompt, o)
		for i, p := range said {
			text := append(slices.Concat(prompt, tokens[:i]), m.mask)
			positions := make([]int32, len(text))
			for i := range positions {
				positions[i] = int32(i)
			}
			keys := m.run(text, positions)
			if byHand := likelyByHand(m, keys[len(keys)-1], tokens[i], n); fmt.Sprint(p) != fmt.Sprint(byHand) {
				t.Fatalf("seed %d, token %d: %v, by hand %v", seed, i, p, byHand)
			}
		}
	}
}

// TestPromptLogprobs: in each mode and in chunks of any length a prompt's tokens are told
// of once, with what the model says of them, and the output stays what it was; also where
// a cache is lost on the way.
func TestPromptLogprobs(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		m := newToy(t, seed)
		prompt := randomPrompt(r)
		o := toyOptions(modes[seed%3], m)
		o.MaxTokens, o.PrefillRows, o.InvariantRows = 1+r.IntN(12), 1+r.IntN(9), r.IntN(4)
		if seed%2 == 1 {
			o.Sampling = Sampling{Temperature: 0.9, Seed: seed}
		}
		want, _ := likely(t, m, m, prompt, o)
		n := []int{0, 1, 5}[r.IntN(3)]
		o.PromptLogprobs = &n
		capacity, _ := CacheSize(len(prompt), o)
		m.keys = nil
		s, err := NewSequence(model.NewCountingCache(capacity), prompt, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		positions := make([]int32, len(prompt))
		for i := range positions {
			positions[i] = int32(i)
		}
		keys := m.run(prompt, positions)
		lost, at, tokens := r.IntN(6), 1, []int32{}
		for i := 0; !s.Done(); i++ {
			if i == lost {
				m.keys = nil
				if err := s.Move(model.NewCountingCache(capacity)); err != nil {
					t.Fatal(err)
				}
			}
			events, err := s.forward(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				switch e := e.(type) {
				case PromptLogprobs:
					byHand := PromptLogprobs{at, likelyByHand(m, keys[at-1], prompt[at], n)}
					if fmt.Sprint(e) != fmt.Sprint(byHand) || len(tokens) > 0 {
						t.Fatalf("seed %d: %v, by hand %v", seed, e, byHand)
					}
					at++
				case Token:
					tokens = append(tokens, int32(e))
				}
			}
		}
		if at != len(prompt) || !slices.Equal(tokens, want) {
			t.Fatalf("seed %d: %d of %d tokens told of; %v, without %v", seed, at, len(prompt), tokens, want)
		}
	}
}

// TestPromptLogprobsRefused: what is in a cache is not run again, and rows are bounded by
// their logits.
func TestPromptLogprobsRefused(t *testing.T) {
	m := newToy(t, 1)
	o := toyOptions(AR, m)
	cache := model.NewCountingCache(50)
	if _, err := Generate(t.Context(), m, cache, []int32{1, 2, 3}, o, nil, Hooks{}); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{-1, 0, MaxLogprobs + 1} {
		o.PromptLogprobs = &n
		if _, err := NewSequence(cache, []int32{1, 2, 3}, o, nil); err == nil {
			t.Errorf("%d was taken", n)
		}
	}
	n := 0
	o.PromptLogprobs, o.Vocabulary.Size = &n, 151643
	s, err := NewSequence(model.NewCountingCache(3000), make([]int32, 2000), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	var b model.Batch
	if s.Plan(&b, 0); len(b.Tokens) != 55 || len(b.Want) != 55 { // 55 rows of logits are 33 MB
		t.Errorf("%d rows, %d wanted", len(b.Tokens), len(b.Want))
	}
}

// TestLogprobsUnasked: who does not ask pays nothing.
func TestLogprobsUnasked(t *testing.T) {
	for _, mode := range []Mode{AR, Verified, WeDLM} {
		m := newToy(t, 1)
		likely(t, asksLittle{m}, m, []int32{1, 2, 3}, toyOptions(mode, m))
	}
	m := newToy(t, 1)
	o := toyOptions(AR, m)
	for _, n := range []int{-1, MaxLogprobs + 1} {
		o.Logprobs = &n
		if o.Validate() == nil {
			t.Errorf("%d was taken", n)
		}
	}
}
