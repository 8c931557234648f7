package engine

import (
	"testing"

	"windrow/decoder"
	"windrow/model"
)

// TestSequences: a program that schedules its own forwards has two sequences share
// them, while a third generation goes on in a goroutine; each gets what it gets
// alone.
func TestSequences(t *testing.T) {
	e := openTiny(t, Options{})
	questions := []string{question, "What is 3 + 4?"}
	want := map[string]string{}
	for _, q := range questions {
		want[q], _, _ = collect(t, e.Generate(t.Context(), ask(q), decoder.Options{Mode: decoder.AR}))
	}
	beside := make(chan string)
	go func() {
		text := ""
		for event := range e.Generate(t.Context(), ask(question), decoder.Options{Mode: decoder.AR}) {
			if piece, ok := event.(decoder.Text); ok {
				text += string(piece)
			}
		}
		beside <- text
	}()
	sequences := map[string]*decoder.Sequence{}
	for _, q := range questions {
		ids, err := e.Encode(t.Context(), Prompt{Messages: ask(q)})
		if err != nil {
			t.Fatal(err)
		}
		o, err := e.Complete(decoder.Options{Window: 4}, len(ids))
		if err != nil {
			t.Fatal(err)
		}
		capacity, rows := decoder.CacheSize(len(ids), o)
		cache, err := e.NewCache(t.Context(), capacity, rows)
		if err != nil {
			t.Fatal(err)
		}
		defer e.FreeCache(cache)
		if sequences[q], err = decoder.NewSequence(cache, ids, o, e.Tokenizer().NewStream(true)); err != nil {
			t.Fatal(err)
		}
	}
	for forwards := 0; ; forwards++ {
		b := &model.Batch{}
		var planned []*decoder.Sequence
		for _, q := range questions {
			if s := sequences[q]; !s.Done() {
				s.Plan(b, 0)
				planned = append(planned, s)
			}
		}
		if len(planned) == 0 {
			break
		}
		if forwards == 0 && len(b.Spans) != 2 {
			t.Errorf("%d spans, want two sequences in one forward", len(b.Spans))
		}
		results, err := e.Forward(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range planned {
			n := s.Wanted()
			if _, err := s.Absorb(results[:n]); err != nil {
				t.Fatal(err)
			}
			results = results[n:]
		}
	}
	for _, q := range questions {
		if got := sequences[q].Summary().Text; got != want[q] {
			t.Errorf("%q: %q, alone %q", q, got, want[q])
		}
	}
	if got := <-beside; got != answer {
		t.Errorf("beside them: %q", got)
	}
}
