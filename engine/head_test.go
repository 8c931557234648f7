package engine_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"windrow/decoder"
	"windrow/engine"
	"windrow/eval"
	"windrow/tokenizer"
)

// headPrompts are the first of tiny-gsm-next's 500 held-out problems, as ids.
func headPrompts(t *testing.T, e *engine.Engine, n int) (list [][]int32) {
	t.Helper()
	data, err := eval.Load("tinygsm")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range data.Problems[:min(n, len(data.Problems))] {
		ids, err := e.Encode(t.Context(), engine.Prompt{Messages: []tokenizer.Message{{Role: "user", Content: p.Question}}})
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, ids)
	}
	return list
}

// TestHeadDrafts: with three drafts of its own head tiny-gsm-next, which was trained for
// the first of them alone, takes at least 2.8 tokens a forward, learning included, and
// says what ar says (ADR 19). CI runs all 500 problems.
func TestHeadDrafts(t *testing.T) {
	problems := 60
	if os.Getenv("CI") != "" {
		problems = 500
	}
	if testing.Short() {
		problems = 25
	}
	e := openHybrid(t, engine.Options{Threads: 1})
	var sum decoder.Stats
	for i, prompt := range headPrompts(t, e, problems) {
		o := decoder.Options{Mode: decoder.AR, MaxTokens: 200}
		if i%5 == 4 {
			o.Sampling = decoder.Sampling{Temperature: 1, TopP: .95, Seed: uint64(i)}
		}
		want, err := e.Answer(t.Context(), prompt, o, decoder.Hooks{})
		if err != nil {
			t.Fatal(err)
		}
		o.Mode, o.Draft, o.Window, o.Drafts = decoder.Verified, decoder.DraftMTP, 16, 3
		got, err := e.Answer(t.Context(), prompt, o, decoder.Hooks{})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Tokens, want.Tokens) || got.FinishReason != want.FinishReason {
			t.Errorf("problem %d: %q, ar %q", i, got.Text, want.Text)
		}
		if st := got.Stats; st.Rows > 4*st.Forwards || st.Masks > 0 {
			t.Errorf("problem %d: %d rows in %d forwards, %d masks", i, st.Rows, st.Forwards, st.Masks)
		}
		sum.Add(got.Stats)
	}
	d := sum.Drafters[decoder.HeadDrafter]
	t.Logf("%d problems: %.2f tokens per forward, %s", problems, sum.TokensPerForward(), d)
	if rate := sum.TokensPerForward(); rate < 2.8 {
		t.Errorf("%.2f tokens per forward, want at least 2.8", rate)
	}
	if used, _ := e.Budget().Used(); used != 0 {
		t.Errorf("%d bytes are taken when all is done", used)
	}
}

// TestHeadConversation: turns are drafted for, those that follow what ar said, too; a
// generation that is cut off leaves nothing.
func TestHeadConversation(t *testing.T) {
	e := openHybrid(t, engine.Options{Threads: 1})
	c := e.NewConversation()
	defer c.Close()
	user := func(text string) tokenizer.Message { return tokenizer.Message{Role: "user", Content: text} }
	messages := []tokenizer.Message{user("Maya has 4 crates with 12 apples each. How many apples has she?")}
	for turn, draft := range []decoder.DraftChoice{decoder.DraftMTP, "", decoder.DraftMTP, decoder.DraftMTP} {
		ids, err := e.Encode(t.Context(), engine.Prompt{Messages: messages})
		if err != nil {
			t.Fatal(err)
		}
		o := decoder.Options{Mode: decoder.AR, MaxTokens: 60}
		want, err := e.Answer(t.Context(), ids, o, decoder.Hooks{})
		if err != nil {
			t.Fatal(err)
		}
		if draft != "" {
			o.Mode, o.Draft, o.Window, o.Drafts = decoder.Verified, draft, 16, 3
		}
		if turn == 3 { // cut off in the middle first
			ctx, stop := context.WithCancel(t.Context())
			said := 0
			cut, err := c.Answer(ctx, ids, o, decoder.Hooks{Token: func(int32) {
				if said++; said == 6 {
					stop()
				}
			}})
			if err != nil || cut.FinishReason != decoder.FinishCancelled || !slices.Equal(cut.Tokens, want.Tokens[:len(cut.Tokens)]) {
				t.Errorf("cut off: %v %s, %v", cut.Tokens, cut.FinishReason, err)
			}
		}
		for again := range 2 {
			got, err := c.Answer(t.Context(), ids, o, decoder.Hooks{})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Tokens, want.Tokens) {
				t.Errorf("turn %d, %d: %q, want %q", turn, again, got.Text, want.Text)
			}
			if d := got.Stats.Drafters[decoder.HeadDrafter]; draft != "" && (d.Accepted*3 < d.Drafts || d.Drafts == 0) {
				t.Errorf("turn %d, %d: %+v, %d tokens cached", turn, again, d, got.Stats.CachedTokens)
			}
			if turn > 0 && got.Stats.CachedTokens == 0 {
				t.Errorf("turn %d: nothing was kept", turn)
			}
		}
		messages = append(messages, tokenizer.Message{Role: "assistant", Content: want.Text}, user("And with 2 more?"))
	}
}

// TestHeadChosen: who drafts where masks and a head are there, and where the head is not.
func TestHeadChosen(t *testing.T) {
	e := openHybrid(t, engine.Options{Threads: 1})
	o := e.Defaults(decoder.Options{})
	if o.Draft != decoder.DraftAuto || o.Head == nil {
		t.Errorf("the default: %s, head %v", o.Draft, o.Head)
	}
	if o = e.Adaptive(t.Context(), o); o.Cost != nil && o.Head.Seconds <= 0 {
		t.Errorf("a forward of the head takes %v s", o.Head.Seconds)
	}
	none := int32(-1)
	bare := openHybrid(t, engine.Options{Threads: 1, NoHead: true})
	if o := bare.Defaults(decoder.Options{Mode: decoder.Verified, Draft: decoder.DraftMTP}); o.Head != nil {
		t.Error("a head that was left alone drafts")
	} else if err := bare.Check(o); !errors.As(err, new(*engine.HeadError)) || strings.Contains(err.Error(), "\n") {
		t.Errorf("without a head: %v", err)
	}
	if e.KVPageBytes() <= bare.KVPageBytes() {
		t.Errorf("%d bytes a page with the head's keys, %d without", e.KVPageBytes(), bare.KVPageBytes())
	}
	// Without a mask the head drafts, beside lookups.
	o = e.Defaults(decoder.Options{Vocabulary: decoder.Vocabulary{MaskID: none}, Mode: decoder.Verified})
	o.Vocabulary.MaskID, o.MaxTokens = none, 40
	capacity, rows := decoder.CacheSize(60, o)
	c, err := e.NewCache(t.Context(), capacity+60, rows)
	if err != nil {
		t.Fatal(err)
	}
	defer e.FreeCache(c)
	if e.KVExportedPage() != c.PageBytes() {
		t.Errorf("%d bytes an exported page, a cache's has %d", e.KVExportedPage(), c.PageBytes())
	}
	prompt := headPrompts(t, e, 1)[0]
	sum, err := decoder.Generate(t.Context(), e, c, prompt, o, nil, decoder.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	if d := sum.Stats.Drafters; d[decoder.HeadDrafter].Accepted == 0 || d[decoder.MaskDrafter].Drafts > 0 {
		t.Errorf("drafts without a mask: %+v", d)
	}
}
