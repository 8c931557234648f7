package decoder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"windrow/model"
)

var modes = []Mode{AR, WeDLM, Verified}

// TestCancelledStepLeavesNoTrace cuts off a random forward, keeps the state,
// takes the step again, and gets the undisturbed output; the scratch that the
// cut-off forward has spoilt never becomes permanent (the toy checks).
func TestCancelledStepLeavesNoTrace(t *testing.T) {
	t.Parallel()
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 4))
		m := newToy(t, seed)
		o := randomOptions(r, modes[seed%3], m)
		if r.IntN(2) == 0 {
			o.Sampling = Sampling{Temperature: 1, RepetitionPenalty: 1.3, Seed: seed}
		}
		prompt := randomPrompt(r)
		want := generate(t, m, prompt, o, Hooks{})

		cache := model.NewCountingCache(len(prompt) + o.MaxTokens)
		s, err := NewSequence(cache, prompt, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		failAt := 1 + r.IntN(m.forwards)
		m.keys, m.forwards, m.failAt = nil, 0, failAt
		failed := false
		for err == nil && !s.Done() {
			if _, err = s.forward(t.Context(), m); errors.Is(err, errToy) {
				m.verifyEnd(cache, prompt, s.sum.Tokens)
				failed, err = true, nil
			}
		}
		if err != nil || !failed {
			t.Fatalf("seed %d: error %v, failed %v at forward %d of %d", seed, err, failed, failAt, m.forwards)
		}
		if !slices.Equal(s.sum.Tokens, want.Tokens) || s.sum.Stats.Rows != want.Stats.Rows {
			t.Fatalf("seed %d: after forward %d was cut off %v, undisturbed %v", seed, failAt, s.sum.Tokens, want.Tokens)
		}
		m.verifyEnd(cache, prompt, s.sum.Tokens)
	}
}

// TestCancel cancels inside a random forward or in a hook: the summary says
// so, holds a beginning of the output, and the cache can be gone on with; in
// ar and verified, going on gives what was left.
func TestCancel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 5))
		m := newToy(t, seed)
		o := randomOptions(r, modes[seed%3], m)
		prompt := randomPrompt(r)
		want := generate(t, m, prompt, o, Hooks{})

		ctx, cancel := context.WithCancel(t.Context())
		var h Hooks
		if r.IntN(2) == 0 {
			m.failAt, m.stop = 1+r.IntN(m.forwards), cancel
		} else {
			at := 1 + r.IntN(len(want.Tokens))
			h.Token = func(int32) {
				if at--; at == 0 {
					cancel()
				}
			}
		}
		m.keys, m.forwards = nil, 0
		cache := model.NewCountingCache(len(prompt) + o.MaxTokens)
		got, err := Generate(ctx, m, cache, prompt, o, nil, h)
		cancel()
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		n := len(got.Tokens)
		if n > len(want.Tokens) || !slices.Equal(got.Tokens, want.Tokens[:n]) {
			t.Fatalf("seed %d: cancelled with %v, whole output %v", seed, got.Tokens, want.Tokens)
		}
		m.verifyEnd(cache, prompt, got.Tokens)
		if n == len(want.Tokens) && got.FinishReason == want.FinishReason {
			continue // the hook cancelled at the end
		}
		if got.FinishReason != FinishCancelled {
			t.Fatalf("seed %d: finish %s, want cancelled", seed, got.FinishReason)
		}
		if o.Mode == WeDLM {
			continue // its window was given up: what follows may differ
		}
		o.MaxTokens -= n
		m.failAt = 0
		rest, err := Generate(t.Context(), m, cache, slices.Concat(prompt, got.Tokens), o, nil, Hooks{})
		if err != nil || !slices.Equal(slices.Concat(got.Tokens, rest.Tokens), want.Tokens) {
			t.Fatalf("seed %d: %v, then %v (%v), want %v", seed, got.Tokens, rest.Tokens, err, want.Tokens)
		}
	}
}

func TestCancelledBeforeTheStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := newToy(t, 1)
	sum, err := Generate(ctx, m, model.NewCountingCache(100), []int32{1}, toyOptions(AR, m), nil, Hooks{})
	if err != nil || sum.FinishReason != FinishCancelled || len(sum.Tokens) != 0 || m.forwards != 0 {
		t.Errorf("summary %+v, error %v, %d forwards", sum, err, m.forwards)
	}
}

// TestChat reuses the cache of earlier turns, whole or truncated, and gets
// what a fresh cache gives.
func TestChat(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 6))
		m := newToy(t, seed)
		cache := model.NewCountingCache(400)
		var text []int32
		for turn := range 3 {
			o := randomOptions(r, modes[r.IntN(3)], m)
			m.agree, m.scale = 0.9, 1.5 // one model for all turns
			text = append(text, randomPrompt(r)...)
			if r.IntN(3) == 0 {
				if _, err := cache.Truncate(r.IntN(cache.Base() + 1)); err != nil {
					t.Fatal(err)
				}
			}
			if turn == 2 && r.IntN(2) == 0 {
				text = text[:cache.Base()] // nothing new: the last token is run again
			}
			if len(text) == 0 {
				continue
			}
			base := cache.Base()
			got, err := Generate(t.Context(), m, cache, text, o, nil, Hooks{})
			if err != nil {
				t.Fatalf("seed %d, turn %d: %v", seed, turn, err)
			}
			m.verifyEnd(cache, text, got.Tokens)
			if st := got.Stats; st.PromptTokens != len(text) || st.CachedTokens != base && st.CachedTokens != len(text)-1 {
				t.Fatalf("seed %d, turn %d: stats %+v with %d of %d tokens cached", seed, turn, st, base, len(text))
			}
			fresh := *m
			if want := generate(t, &fresh, text, o, Hooks{}); !slices.Equal(got.Tokens, want.Tokens) {
				t.Fatalf("seed %d, turn %d: %v behind the cache, %v afresh", seed, turn, got.Tokens, want.Tokens)
			}
			text = slices.Concat(text, got.Tokens)
		}
	}
}

func TestPrefillHook(t *testing.T) {
	m := newToy(t, 1)
	o := toyOptions(AR, m)
	o.PrefillRows = 4
	var calls []string
	generate(t, m, []int32{1, 2, 3, 4, 5, 6, 7, 8, 9}, o, Hooks{Prefill: func(done, total int) { calls = append(calls, fmt.Sprint(done, "/", total)) }})
	if want := []string{"4/9", "8/9", "9/9"}; !slices.Equal(calls, want) {
		t.Errorf("prefill hook saw %v, want %v", calls, want)
	}
}

// bytesDetok turns ids below 256 into bytes, whole characters only.
type bytesDetok struct{ held []byte }

func (d *bytesDetok) Push(id int32) string {
	d.held = append(d.held, byte(id))
	if !utf8.FullRune(d.held[max(0, lastStart(d.held)):]) {
		return ""
	}
	s := string(d.held)
	d.held = nil
	return s
}

func lastStart(b []byte) int {
	for i := len(b) - 1; i >= 0; i-- {
		if utf8.RuneStart(b[i]) {
			return i
		}
	}
	return 0
}

func (d *bytesDetok) Flush() string {
	if len(d.held) == 0 {
		return ""
	}
	d.held = nil
	return "\uFFFD"
}

// parrot says its text whatever it is fed, a byte a token.
type parrot struct{ text string }

func (p parrot) Forward(_ context.Context, b *model.Batch) ([]model.Result, error) {
	b.Spans[0].Cache.Stage(len(b.Tokens))
	var results []model.Result
	for _, w := range b.Want {
		at := int(b.Positions[w.Row])
		if b.Tokens[w.Row] == 999 {
			at--
		}
		results = append(results, model.Result{Argmax: int32(p.text[at%len(p.text)])})
	}
	return results, nil
}

// TestText is the same in all modes: stop ids hidden, stop strings cut across
// tokens, characters whole.
func TestText(t *testing.T) {
	for _, c := range []struct {
		name, says string
		max        int
		stopIDs    []int32
		stops      []string
		text       string
		tokens     int
		finish     FinishReason
	}{
		{"length", "hello, world", 5, nil, nil, "hello", 5, FinishLength},
		{"stop id", "hello!", 20, []int32{'!'}, nil, "hello", 6, FinishStop},
		{"stop id at the bound", "hello!", 6, []int32{'!'}, nil, "hello", 6, FinishStop},
		{"stop string", "one###two", 20, nil, []string{"###"}, "one", 6, FinishStop},
		{"stop string at the bound", "one###two", 6, nil, []string{"###"}, "one", 6, FinishStop},
		{"stop string one short", "one###two", 5, nil, []string{"###"}, "one##", 5, FinishLength},
		{"stop id behind a beginning of a stop string", "one##!", 20, []int32{'!'}, []string{"###"}, "one##", 6, FinishStop},
		{"half a character at the end", "né", 2, nil, nil, "n\uFFFD", 2, FinishLength},
		{"a stop string of two characters", "aéèb", 20, nil, []string{"éè"}, "a", 5, FinishStop},
		{"the first token stops", "!x", 20, []int32{'!'}, nil, "", 1, FinishStop},
	} {
		for _, mode := range modes {
			t.Run(c.name+"/"+string(mode), func(t *testing.T) {
				o := DefaultOptions()
				o.Mode, o.MaxTokens, o.StopIDs, o.StopStrings, o.Window = mode, c.max, c.stopIDs, c.stops, 4
				o.Vocabulary.MaskID = 999
				var pieces strings.Builder
				var tokens []int32
				cache := model.NewCountingCache(100)
				sum, err := Generate(t.Context(), parrot{c.says}, cache, []int32{0}, o, &bytesDetok{}, Hooks{
					Text: func(p string) error {
						if !utf8.ValidString(p) {
							t.Errorf("piece %q is not whole characters", p)
						}
						pieces.WriteString(p)
						return nil
					},
					Token: func(x int32) { tokens = append(tokens, x) },
				})
				if err != nil {
					t.Fatal(err)
				}
				if sum.Text != c.text || pieces.String() != c.text || len(sum.Tokens) != c.tokens || sum.FinishReason != c.finish {
					t.Errorf("text %q (streamed %q), %d tokens, %s; want %q, %d, %s", sum.Text, pieces.String(), len(sum.Tokens), sum.FinishReason, c.text, c.tokens, c.finish)
				}
				if !slices.Equal(tokens, sum.Tokens) {
					t.Errorf("token hook saw %v, summary %v", tokens, sum.Tokens)
				}
				if cache.Base() > 1+len(sum.Tokens) || cache.Base() < len(sum.Tokens) {
					t.Errorf("%d tokens permanent for a prompt of 1 and %d tokens", cache.Base(), len(sum.Tokens))
				}
			})
		}
	}
}

// TestTextHookError: a reader that went away ends it, is not called again,
// and the cache stays consistent.
func TestTextHookError(t *testing.T) {
	for _, mode := range modes {
		o := DefaultOptions()
		o.Mode, o.Vocabulary.MaskID, o.StopStrings = mode, 999, []string{"zz"}
		calls := 0
		sum, err := Generate(t.Context(), parrot{"abcz"}, model.NewCountingCache(1000), []int32{0}, o, &bytesDetok{}, Hooks{
			Text: func(string) error {
				if calls++; calls == 3 {
					return io.ErrClosedPipe
				}
				return nil
			},
		})
		if !errors.Is(err, io.ErrClosedPipe) || calls != 3 || len(sum.Tokens) < 3 || !strings.HasPrefix(sum.Text, "abc") {
			t.Errorf("%s: error %v after %d calls, summary %+v", mode, err, calls, sum)
		}
	}
}

// brokenEngine answers as its function says, within the contract or not.
type brokenEngine func(b *model.Batch) ([]model.Result, error)

func (f brokenEngine) Forward(_ context.Context, b *model.Batch) ([]model.Result, error) {
	b.Spans[0].Cache.Stage(len(b.Tokens))
	return f(b)
}

func TestEngineErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		eng  brokenEngine
		want string
	}{
		{"its own error", func(*model.Batch) ([]model.Result, error) { return nil, errToy }, "forward of 2 rows at 0: the forward was cut off"},
		{"no results", func(*model.Batch) ([]model.Result, error) { return nil, nil }, "0 results, want 1"},
		{"NaN", func(*model.Batch) ([]model.Result, error) {
			return []model.Result{{Entropy: float32(math.NaN())}}, nil
		}, "position 1: the model's logits are not numbers"},
	} {
		o := Options{Mode: AR, MaxTokens: 3}
		_, err := Generate(t.Context(), c.eng, model.NewCountingCache(10), []int32{1, 2}, o, nil, Hooks{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

// lateDetok says its token at once and always has half a character left.
type lateDetok struct{}

func (lateDetok) Push(id int32) string { return string(rune(id)) }
func (lateDetok) Flush() string        { return "\uFFFD" }

// TestNothingAfterAStopString: not even what the detokenizer still holds.
func TestNothingAfterAStopString(t *testing.T) {
	o := Options{Mode: AR, MaxTokens: 9, StopStrings: []string{"##"}}
	o.Vocabulary.MaskID = -1
	sum, err := Generate(t.Context(), parrot{"ab##"}, model.NewCountingCache(20), []int32{0}, o, lateDetok{}, Hooks{})
	if err != nil || sum.Text != "ab" {
		t.Errorf("text %q, error %v; want ab", sum.Text, err)
	}
}
