package engine_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/decoder"
	"windrow/engine"
	"windrow/eval"
	"windrow/model"
	"windrow/tokenizer"
)

// headPrompts are the first of tiny-gsm-next's 500 held-out problems, as ids, and the
// answers to them.
func headPrompts(t *testing.T, e *engine.Engine, n int) (list [][]int32, answers []string) {
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
		list, answers = append(list, ids), append(answers, p.Reference)
	}
	return list, answers
}

// TestDraftsOfTinyGSMNext: whoever drafts, tiny-gsm-next says what ar says, which is right
// in 99 of 100 problems, greedy and, every fifth problem, sampled, too. A window of 16
// takes at least 9.5 tokens a forward, and three drafts of the head, which was trained for
// the first of them alone, 2.8, learning included (ADR 19). CI runs all 500 problems.
func TestDraftsOfTinyGSMNext(t *testing.T) {
	problems := 60
	if os.Getenv("CI") != "" {
		problems = 500
	}
	if testing.Short() {
		problems = 25
	}
	drafters := []struct {
		draft  decoder.DraftChoice
		kind   decoder.DrafterKind
		window int     // 0: as many rows as pay
		drafts int     // of the head
		least  float64 // tokens a forward
	}{
		{decoder.DraftMask, decoder.MaskDrafter, 16, 0, 9.5},
		{decoder.DraftMTP, decoder.HeadDrafter, 16, 3, 2.8},
		{decoder.DraftLookup, decoder.LookupDrafter, 16, 0, 1},
		{decoder.DraftAuto, decoder.MaskDrafter, 0, 0, 1},
	}
	e := openHybrid(t, engine.Options{Threads: 1})
	greedy, sampled := make([]decoder.Stats, len(drafters)), make([]decoder.Stats, len(drafters))
	prompts, answers := headPrompts(t, e, problems)
	right := 0
	for i, prompt := range prompts {
		samplings := []decoder.Sampling{{}}
		if i%5 == 4 {
			samplings = append(samplings, decoder.Sampling{Temperature: 1, TopP: .95, Seed: uint64(i)})
		}
		for _, sampling := range samplings {
			sums := greedy
			if sampling.Temperature > 0 {
				sums = sampled
			}
			want, err := e.Answer(t.Context(), prompt, decoder.Options{Mode: decoder.AR, MaxTokens: 200, Sampling: sampling}, decoder.Hooks{})
			if err != nil {
				t.Fatal(err)
			}
			if sampling.Temperature == 0 && eval.Correct(eval.Answer(want.Text), answers[i]) {
				right++
			}
			for k, d := range drafters {
				o := decoder.DefaultOptions()
				o.Mode, o.Draft, o.Window, o.Drafts, o.MaxTokens, o.Sampling = decoder.Verified, d.draft, d.window, d.drafts, 200, sampling
				got, err := e.Answer(t.Context(), prompt, o, decoder.Hooks{})
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(got.Tokens, want.Tokens) || got.FinishReason != want.FinishReason {
					t.Errorf("problem %d, drafts of %s, temperature %v: %q, ar %q", i, d.draft, sampling.Temperature, got.Text, want.Text)
				}
				if st := got.Stats; d.drafts > 0 && (st.Rows > (1+d.drafts)*st.Forwards || st.Masks > 0) {
					t.Errorf("problem %d: %d rows in %d forwards, %d masks", i, st.Rows, st.Forwards, st.Masks)
				}
				sums[k].Add(got.Stats)
			}
		}
	}
	t.Logf("%d problems: ar is right in %d", problems, right)
	if wrong := problems - right; wrong > max(1, problems/100) {
		t.Errorf("ar is wrong in %d of %d problems, want one of 100 at most", wrong, problems)
	}
	for k, d := range drafters {
		rate, of := greedy[k].TokensPerForward(), greedy[k].Drafters[d.kind]
		t.Logf("%s: %.2f tokens per forward, sampled %.2f; %s", d.draft, rate, sampled[k].TokensPerForward(), of)
		// What pays on a busy machine may be another drafter, or none.
		if rate < d.least || of.Accepted == 0 && d.window > 0 {
			t.Errorf("drafts of %s: %.2f tokens per forward, want at least %.2f; %s", d.draft, rate, d.least, of)
		}
	}
	if used, _ := e.Budget().Used(); used != 0 {
		t.Errorf("%d bytes are taken when all is done", used)
	}
}

// broken is the trained hybrid without its mask, so that its own head drafts, and with
// one tensor as the test has it.
type broken struct {
	checkpoint.Source
	name   string
	tensor func(t backend.Tensor) backend.Tensor
}

func (b *broken) Config() *checkpoint.Config {
	c := *b.Source.Config()
	c.MaskTokenID = -1
	return &c
}

func (b *broken) Tensor(name string) (backend.Tensor, bool) {
	t, ok := b.Source.Tensor(name)
	if ok && name == b.name {
		t = b.tensor(t)
	}
	return t, ok
}

// TestBrokenHead: where the model's own head cannot be loaded, or its logits are not
// finite, one note says so and answers are ar's; the head asked for by its name is an
// error.
func TestBrokenHead(t *testing.T) {
	whole := openHybrid(t, engine.Options{Threads: 1})
	prompts, _ := headPrompts(t, whole, 1)
	want, err := whole.Answer(t.Context(), prompts[0], decoder.Options{Mode: decoder.AR, MaxTokens: 60}, decoder.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	notNumbers := func(t backend.Tensor) backend.Tensor {
		t.Data = bytes.Repeat([]byte{0xff}, len(t.Data))
		return t
	}
	for _, c := range []struct {
		what, name string
		loads      bool
		why        string
	}{
		{"a matrix", "mtp.fc.weight", true, "cpu: the logits of row "},
		{"a vector", "mtp.norm.weight", false, "tensor mtp.norm.weight: element 0 is NaN"},
	} {
		for _, draft := range []decoder.DraftChoice{decoder.DraftAuto, decoder.DraftMTP} {
			for _, window := range []int{0, 8} {
				var notes []string
				options := engine.Options{Threads: 1, Backend: engine.CPU, Measurements: engine.Measurements{Folder: engine.NoFolder}, Tokenizer: whole.Tokenizer(),
					NeedHead: draft == decoder.DraftMTP, Note: func(line string) { notes = append(notes, line) }}
				e, err := engine.OpenSource(t.Context(), "m", &broken{whole.Source(), c.name, notNumbers}, options)
				if options.NeedHead && !c.loads {
					if err == nil || !strings.Contains(err.Error(), c.why) {
						t.Errorf("%s, asked for: %v", c.what, err)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				defer e.Close()
				for again := range 2 {
					o := decoder.DefaultOptions()
					o.Mode, o.Draft, o.Window, o.MaxTokens = decoder.Verified, draft, window, 60
					got, err := e.Answer(t.Context(), prompts[0], o, decoder.Hooks{})
					if draft == decoder.DraftMTP {
						bad, head := (*model.NotFiniteError)(nil), (*engine.HeadError)(nil)
						if !errors.As(err, &bad) && !(errors.As(err, &head) && head.Broken != nil) {
							t.Errorf("%s, asked for: %v", c.what, err)
						}
						continue
					}
					if err != nil || !slices.Equal(got.Tokens, want.Tokens) {
						t.Errorf("%s, window %d, %d: %q, ar %q, %v", c.what, window, again, got.Text, want.Text, err)
					}
				}
				if options.NeedHead && len(notes) == 0 {
					continue
				}
				if options.NeedHead || len(notes) != 1 || !strings.HasPrefix(notes[0], "m: its head for drafts is not used: "+c.why) {
					t.Errorf("%s, drafts of %s, window %d: notes %q", c.what, draft, window, notes)
				}
			}
		}
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
	prompts, _ := headPrompts(t, e, 1)
	prompt := prompts[0]
	sum, err := decoder.Generate(t.Context(), e, c, prompt, o, nil, decoder.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	if d := sum.Stats.Drafters; d[decoder.HeadDrafter].Accepted == 0 || d[decoder.MaskDrafter].Drafts > 0 {
		t.Errorf("drafts without a mask: %+v", d)
	}
}
