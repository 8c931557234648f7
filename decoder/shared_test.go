package decoder_test

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/conformance/decodertest"
	"windrow/cpu"
	"windrow/decoder"
	"windrow/model"
)

// told collects a sequence's events.
type told struct {
	tokens   []int32
	text     strings.Builder
	steps    []decoder.Step
	finished []decoder.FinishReason
}

func (l *told) take(t *testing.T, events []decoder.Event) {
	for _, e := range events {
		if len(l.finished) > 0 {
			t.Fatalf("%T behind the end", e)
		}
		switch e := e.(type) {
		case decoder.Token:
			l.tokens = append(l.tokens, int32(e))
		case decoder.Text:
			l.text.WriteString(string(e))
		case decoder.Step:
			l.steps = append(l.steps, e)
		case decoder.Finished:
			l.finished = append(l.finished, e.Reason)
		}
	}
}

// TestSharedForwards drives 32 sequences of mixed modes through one loop: each
// forward takes some of them, in any order, with chunks of prompts of any size;
// some batches are planned and never run, and now and then a sequence loses its
// cache, or all of it but a beginning. Each sequence gets to the bit what it
// gets alone: tokens, text, entropies, counters.
func TestSharedForwards(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the real model: leave -short out")
	}
	b, err := cpu.New(cpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	m := decodertest.Tiny(t, b)
	const sequences = 32
	r := rand.New(rand.NewPCG(13, 2))
	problems := decodertest.Problems(t)
	type running struct {
		*decoder.Sequence
		told
		alone *told
		want  decoder.Summary
		cache func() *model.Cache
	}
	var all []*running
	for i := range sequences {
		o := decoder.DefaultOptions()
		o.Mode = []decoder.Mode{decoder.AR, decoder.WeDLM, decoder.Verified}[i%3]
		o.MaxTokens, o.Window = 10+r.IntN(40), 1+r.IntN(16)
		o.Vocabulary = decodertest.Vocabulary
		o.StopIDs = m.Config().EOSTokenIDs
		if i%4 == 3 {
			o.Sampling = decoder.Sampling{Temperature: 0.9, TopP: 0.9, RepetitionPenalty: 1.1, Seed: uint64(i)}
		}
		prompt := problems[i%len(problems)].Prompt
		cache := func() *model.Cache {
			capacity, rows := decoder.CacheSize(len(prompt), o)
			c, err := m.NewCache(model.CacheOptions{Capacity: capacity, MaxRows: rows, DType: backend.KVBF16})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			return c
		}
		alone := &told{}
		want, err := decoder.Generate(t.Context(), m, cache(), prompt, o, &ids{}, decoder.Hooks{
			Token: func(id int32) { alone.tokens = append(alone.tokens, id) },
			Text:  func(s string) error { alone.text.WriteString(s); return nil },
			Step:  func(s decoder.Step) { alone.steps = append(alone.steps, s) },
		})
		if err != nil {
			t.Fatal(err)
		}
		s, err := decoder.NewSequence(cache(), prompt, o, &ids{})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &running{Sequence: s, alone: alone, want: want, cache: cache})
	}
	forwards, shared, dropped, moved, forked := 0, 0, 0, 0, 0
	for left := slices.Clone(all); len(left) > 0; {
		r.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
		batch := &model.Batch{}
		taken := left[:1+r.IntN(min(8, len(left)))]
		for _, s := range taken {
			s.Plan(batch, r.IntN(30))
		}
		if r.IntN(8) == 0 {
			dropped++
			continue // something else came up
		}
		if s := left[len(left)-1]; len(taken) < len(left) && r.IntN(3) == 0 {
			held, old, fresh := s.Permanent(), s.Cache(), s.cache()
			if n := r.IntN(old.Base() + 1); r.IntN(2) == 0 && n > 0 {
				fork, err := old.Fork(n, old.Capacity(), old.MaxRows())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(fork.Close)
				fresh, forked = fork, forked+1
			}
			old.Close()
			if err := s.Move(fresh); err != nil {
				t.Fatal(err)
			}
			// A prompt is permanent as far as the cache has it; what was generated stays.
			if n := len(s.Permanent()); !slices.Equal(s.Permanent(), held[:n]) || n < len(held) && s.Summary().Stats.Forwards > 0 {
				t.Fatalf("permanent tokens %v after a move, %v before", s.Permanent(), held)
			}
			moved++
		}
		results, err := m.Forward(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		if forwards++; len(taken) > 1 {
			shared++
		}
		for _, s := range taken {
			n := s.Wanted()
			events, err := s.Absorb(results[:n])
			if err != nil {
				t.Fatal(err)
			}
			results = results[n:]
			s.take(t, events)
		}
		left = slices.DeleteFunc(left, func(s *running) bool { return s.Done() })
	}
	for i, s := range all {
		got, want := s.Summary(), s.want
		want.Stats.PrefillSeconds, want.Stats.DecodeSeconds = 0, 0
		if !reflect.DeepEqual(got, want) {
			t.Errorf("sequence %d: among others %+v, alone %+v", i, got, want)
		}
		if !reflect.DeepEqual(s.steps, s.alone.steps) || !slices.Equal(s.tokens, s.alone.tokens) || s.text.String() != s.alone.text.String() {
			t.Errorf("sequence %d: other steps, tokens or text among others than alone", i)
		}
		if !slices.Equal(s.finished, []decoder.FinishReason{want.FinishReason}) || s.text.String() != want.Text {
			t.Errorf("sequence %d: ended %v with text %q, want %v and %q", i, s.finished, s.text.String(), want.FinishReason, want.Text)
		}
	}
	if shared < 50 || dropped < 10 || moved < 20 || forked < 5 {
		t.Errorf("%d of %d forwards were shared, %d dropped, %d sequences moved, %d with a beginning: nothing is shown", shared, forwards, dropped, moved, forked)
	}
}

// ids shows ids as text.
type ids struct{}

func (*ids) Push(id int32) string { return string(rune('a' + id%26)) }
func (*ids) Flush() string        { return "." }

// A batch has one vocabulary, the model's: a sequence that means another notices.
func TestAbsorbRefusesIdsPastTheVocabulary(t *testing.T) {
	for _, v := range []decoder.Vocabulary{{Size: 50, MaskID: 60}, {Size: 77, MaskID: -1}} {
		o := decoder.DefaultOptions()
		o.Mode, o.Vocabulary = decoder.AR, v
		s, err := decoder.NewSequence(model.NewCountingCache(1000), []int32{1, 2}, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		b := &model.Batch{}
		s.Plan(b, 0)
		s.Cache().Stage(len(b.Tokens))
		if _, err := s.Absorb([]model.Result{{Argmax: 77}}); err == nil || s.Cache().Base() != 0 {
			t.Errorf("%+v: id 77 was taken: error %v, %d tokens permanent", v, err, s.Cache().Base())
		}
	}
}
