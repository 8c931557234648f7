package engine_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"windrow/checkpoint"
	"windrow/decoder"
	"windrow/engine"
	"windrow/tokenizer"
)

const hybridFolder = "../models/tinygsmnext"

func openHybrid(t *testing.T, o engine.Options) *engine.Engine {
	t.Helper()
	o.Backend, o.Measurements.Folder = engine.CPU, engine.NoFolder
	e, err := engine.Open(t.Context(), hybridFolder, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// TestHybridOverGPUs: GPUs that cannot share a hybrid are refused before they are looked
// for.
func TestHybridOverGPUs(t *testing.T) {
	_, err := engine.Open(t.Context(), hybridFolder, engine.Options{Backend: engine.CUDA, GPUs: 8})
	if want := "8 GPUs cannot share this model: 4 heads do not divide by 8; it runs on 1, 2, 4"; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestHybridModes: a window whose rows are out of order is refused with the reason.
func TestHybridModes(t *testing.T) {
	e := openHybrid(t, engine.Options{Threads: 1})
	mode := (*engine.ModeError)(nil)
	if _, err := e.Complete(decoder.Options{Mode: decoder.WeDLM}, 5); !errors.As(err, &mode) || !mode.Recurrent {
		t.Errorf("wedlm: %v", err)
	}
	// Where there is no mask either, one would not help.
	src, err := engine.OpenCheckpoint(t.Context(), "../model/testdata/golden/qwen3-next-tiny")
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	bare, err := engine.OpenSource(t.Context(), "bare", src, engine.Options{Backend: engine.CPU, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close()
	if _, err := bare.Complete(decoder.Options{Mode: decoder.WeDLM}, 5); !errors.As(err, &mode) || !mode.Recurrent {
		t.Errorf("wedlm without a mask: %v", err)
	}
	c, err := e.NewCache(t.Context(), 100, 40)
	if err != nil {
		t.Fatal(err)
	}
	defer e.FreeCache(c)
	o := decoder.DefaultOptions()
	o.Mode, o.MaxTokens, o.Vocabulary.MaskID = decoder.WeDLM, 10, 4095
	if _, err := decoder.NewSequence(c, []int32{1, 2}, o, nil); !errors.Is(err, decoder.ErrRecurrent) {
		t.Errorf("a sequence: %v", err)
	}
}

// TestHybridConversation: turns keep what they can of the one before, whether it is said
// again, thought over or left out, and say what they say without it.
func TestHybridConversation(t *testing.T) {
	for _, window := range []int{0, 50} { // rotating keys, too
		e := openHybrid(t, engine.Options{KVWindow: window, KVKeep: min(window, 4)})
		c := e.NewConversation()
		defer c.Close()
		say := func(messages []tokenizer.Message, mode decoder.Mode) (string, decoder.Stats) {
			t.Helper()
			o := decoder.Options{Mode: mode, MaxTokens: 40, Window: 8}
			text := ""
			for event, err := range c.Generate(t.Context(), messages, o) {
				if err != nil {
					t.Fatal(err)
				}
				if piece, ok := event.(decoder.Text); ok {
					text += string(piece)
				}
			}
			stats := c.Summary().Stats
			want := ""
			for event, err := range e.Generate(t.Context(), messages, o) {
				if err != nil {
					t.Fatal(err)
				}
				if piece, ok := event.(decoder.Text); ok {
					want += string(piece)
				}
			}
			if text != want && window == 0 { // what rotating keys see depends on what was dropped
				t.Errorf("%s: %q, alone %q", mode, text, want)
			}
			return text, stats
		}
		user := func(text string) tokenizer.Message { return tokenizer.Message{Role: "user", Content: text} }
		messages := []tokenizer.Message{user("Maya has 4 crates with 12 apples each. How many apples has she?")}
		for turn, mode := range []decoder.Mode{decoder.AR, decoder.Verified, decoder.AR, decoder.Verified} {
			text, first := say(messages, mode)
			_, again := say(messages, mode) // from the end of the prompt
			if window == 0 && again.CachedTokens < first.PromptTokens-1 {
				t.Errorf("turn %d again: %d of %d tokens reused", turn, again.CachedTokens, first.PromptTokens)
			}
			if turn == 1 { // other words than were generated
				text = "I think it is " + text
			}
			messages = append(messages, tokenizer.Message{Role: "assistant", Content: text}, user("And with 2 more?"))
			if window == 0 && turn > 0 && first.CachedTokens == 0 {
				t.Errorf("turn %d: nothing is reused of %d tokens", turn, first.PromptTokens)
			}
		}
		say([]tokenizer.Message{user("What is 3 + 4?")}, decoder.AR) // all of it gone
	}
}

// TestHybridConversations: conversations of several goroutines go back to marks that each
// other's may push out, and say what they say alone.
func TestHybridConversations(t *testing.T) {
	e := openHybrid(t, engine.Options{})
	questions := []string{"Maya has 4 crates with 12 apples each. How many apples has she?", "What is 3 + 4?", "Tom reads 7 pages a day. How many pages does he read in 3 days?"}
	answer := func(c *engine.Conversation, q string) (text string, err error) {
		for event, err := range c.Generate(t.Context(), []tokenizer.Message{{Role: "user", Content: q}}, decoder.Options{Mode: decoder.AR, MaxTokens: 12}) {
			if err != nil {
				return text, err
			}
			if piece, ok := event.(decoder.Text); ok {
				text += string(piece)
			}
		}
		return text, nil
	}
	want := map[string]string{}
	for _, q := range questions {
		c := e.NewConversation()
		text, err := answer(c, q)
		if err != nil {
			t.Fatal(err)
		}
		want[q] = text
		c.Close()
	}
	var wait sync.WaitGroup
	for i := range 5 {
		wait.Go(func() {
			c := e.NewConversation()
			defer c.Close()
			for turn := range 6 {
				q := questions[(i+turn/2)%len(questions)]
				if text, err := answer(c, q); err != nil || text != want[q] {
					t.Errorf("conversation %d, turn %d: %q, %v, alone %q", i, turn, text, err, want[q])
				}
			}
		})
	}
	wait.Wait()
	if used, _ := e.Budget().Used(); used != 0 {
		t.Errorf("%d bytes are taken when all is closed", used)
	}
}

// more is a source with more tensors.
type more struct {
	checkpoint.Source
	names []string
}

func (m *more) Names() []string { return append(m.Source.Names(), m.names...) }

// TestUnusedTensors: tensors that nothing reads are an error where they are layers', else
// a note.
func TestUnusedTensors(t *testing.T) {
	src := openHybrid(t, engine.Options{Threads: 1}).Source()
	for _, c := range []struct {
		names     []string
		note, err string
	}{
		{nil, "", ""},
		{[]string{"score.weight", "model.embed_scale"}, "m: 2 tensors are not used: first score.weight", ""},
		{[]string{"score.weight", "model.layers.9.mlp.gate.weight"}, "", `m: tensor "model.layers.9.mlp.gate.weight" is no part of the model that the config describes`},
	} {
		var notes []string
		o := engine.Options{Threads: 1, Backend: engine.CPU, Measurements: engine.Measurements{Folder: engine.NoFolder}, Note: func(line string) { notes = append(notes, line) }}
		e, err := engine.OpenSource(t.Context(), "m", &more{src, c.names}, o)
		if err == nil {
			e.Close()
		}
		if got := strings.Join(notes, "|"); got != c.note || c.err == "" && err != nil || c.err != "" && (err == nil || err.Error() != c.err) {
			t.Errorf("%q: notes %q, %v", c.names, got, err)
		}
	}
}
