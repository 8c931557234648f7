package engine

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"windrow/checkpoint"
	"windrow/decoder"
	"windrow/tokenizer"
)

// TestDrafts: whoever drafts for a real model, greedy and sampled, alone and in a
// conversation, its text is ar's; a model that drafts for itself is nearly always right.
func TestDrafts(t *testing.T) {
	e, small := priced(t, openTiny(t, Options{Threads: 1})), priced(t, openTiny(t, Options{Threads: 1, Exact: true}))
	if err := e.DraftWith(t.Context(), small); err != nil {
		t.Fatal(err)
	}
	if e.drafter.seconds <= 0 {
		t.Errorf("a forward of the drafter takes %v s", e.drafter.seconds)
	}
	e.drafter.seconds /= 100 // as if it were much smaller
	messages := []tokenizer.Message{{Role: "user", Content: "A hall has 5 rows with 9 chairs in each row. How many chairs are there? A hall has 5 rows with"}}
	ids, err := e.Encode(t.Context(), Prompt{Messages: messages})
	if err != nil {
		t.Fatal(err)
	}
	for _, sampling := range []decoder.Sampling{{}, {Temperature: 1.2, TopP: .95, Seed: 3}} {
		o := decoder.Options{Mode: decoder.AR, Sampling: sampling, MaxTokens: 80}
		want, err := e.Answer(t.Context(), ids, o, decoder.Hooks{})
		if err != nil {
			t.Fatal(err)
		}
		for _, draft := range []decoder.DraftChoice{decoder.DraftAuto, decoder.DraftLookup, decoder.DraftModel, decoder.DraftNone} {
			o := o
			o.Mode, o.Draft = decoder.Verified, draft
			got, err := e.Answer(t.Context(), ids, o, decoder.Hooks{})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Tokens, want.Tokens) || got.FinishReason != want.FinishReason {
				t.Errorf("%s: %q, want %q", draft, got.Text, want.Text)
			}
			st := got.Stats
			if d := st.Drafters[decoder.ModelDrafter]; draft == decoder.DraftModel &&
				(d.Accepted*2 < st.Tokens || sampling.Temperature == 0 && d.Accepted*10 < d.Drafts*9 || d.Rows == 0 || d.Seconds <= 0) {
				t.Errorf("%s: %+v of %d tokens", draft, d, st.Tokens)
			}
			if draft == decoder.DraftNone && st.Rows != st.Forwards {
				t.Errorf("%s: %+v", draft, st)
			}
		}
	}
	if used, _ := small.Budget().Used(); used != 0 {
		t.Errorf("%d bytes of the drafter's keys and values were not freed", used)
	}
}

// otherTokens are a model's files with another name for one token.
type otherTokens struct{ *checkpoint.Checkpoint }

func (o otherTokens) ReadFile(name string) ([]byte, error) {
	data, err := o.Checkpoint.ReadFile(name)
	return bytes.ReplaceAll(data, []byte("<|endoftext|>"), []byte("<|end|>")), err
}

// TestDraftVocabulary: only a model with the same ids can draft.
func TestDraftVocabulary(t *testing.T) {
	e := openTiny(t, Options{Threads: 1})
	other := openTiny(t, Options{Threads: 1})
	tokens, err := tokenizer.Load(otherTokens{other.Checkpoint()})
	if err != nil {
		t.Fatal(err)
	}
	other.tokens = tokens
	var vocabulary *VocabularyError
	if err := e.DraftWith(t.Context(), other); !errors.As(err, &vocabulary) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v, want a *VocabularyError", err)
	}
	o := e.Defaults(decoder.Options{Mode: decoder.Verified, Draft: decoder.DraftModel})
	if err := e.Check(o); err == nil {
		t.Error("a model drafts that is not there")
	}
}

// TestVerifiedWithoutMask: lookups draft for a model that has no mask; masks cannot.
func TestVerifiedWithoutMask(t *testing.T) {
	e := openTiny(t, Options{Threads: 1})
	for draft, refused := range map[decoder.DraftChoice]bool{"": false, decoder.DraftAuto: false, decoder.DraftLookup: false, decoder.DraftNone: false, decoder.DraftMask: true} {
		o := e.Defaults(decoder.Options{Mode: decoder.Verified, Draft: draft})
		o.Vocabulary.MaskID = -1
		var mode *ModeError
		if err := e.Check(o); errors.As(err, &mode) != refused {
			t.Errorf("draft %q: %v", draft, err)
		}
	}
}
