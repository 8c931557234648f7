package eval

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"windrow/decoder"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares with a file of testdata, or rewrites it under -update.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s differs (go test -update rewrites it); got:\n%s", name, got)
	}
}

// scripted answers problems of scriptedData as a model with the given habits
// would: deterministic in the prompt and the options.
type scripted struct {
	calls []call
	// stopAfter cancels with an error after that many calls; 0: never.
	stopAfter int
	cancel    func()
}

type call struct {
	prompt  Prompt
	options decoder.Options
}

const scriptedProblems = 12

// scriptedData has the problem "What is i + i?", i from 0.
func scriptedData() *Dataset {
	d := &Dataset{Name: "doubles"}
	for i := range scriptedProblems {
		d.Problems = append(d.Problems, Problem{
			Index: i, Question: fmt.Sprintf("What is %d + %d?", i, i),
			Answer: fmt.Sprintf("#### %d", 2*i), Reference: fmt.Sprint(2 * i),
		})
	}
	return d
}

func (s *scripted) Run(ctx context.Context, p Prompt, o decoder.Options) (decoder.Summary, error) {
	s.calls = append(s.calls, call{p, o})
	if s.stopAfter > 0 && len(s.calls) > s.stopAfter {
		s.cancel()
		return decoder.Summary{FinishReason: decoder.FinishCancelled}, nil
	}
	question := p.Raw
	if len(p.Messages) > 0 {
		question = p.Messages[len(p.Messages)-1].Content
	}
	var i, j int
	if _, err := fmt.Sscanf(question, "What is %d + %d?", &i, &j); err != nil {
		return decoder.Summary{}, fmt.Errorf("prompt %q: %w", question, err)
	}
	answer := i + j
	stats := decoder.Stats{PromptTokens: 20 + i, Tokens: 16, Forwards: 16, Rows: 16, PrefillSeconds: 0.001, DecodeSeconds: 0.016}
	switch {
	case o.Mode == decoder.Verified:
		stats.Forwards, stats.Rows, stats.Drafts, stats.Accepted, stats.DecodeSeconds = 2, 40, 15, 14, 0.004
	case o.Mode == decoder.WeDLM && o.EntropyThreshold == nil:
		stats.Forwards, stats.Rows, stats.DecodeSeconds = 17, 17*o.Window, 0.034
	case o.Mode == decoder.WeDLM:
		// A bolder threshold is faster and wrong more often.
		tau := int(*o.EntropyThreshold * 10)
		stats.Forwards = 16/(tau+1) + 16/o.Window
		stats.Rows = stats.Forwards * (o.Window + 16/stats.Forwards)
		stats.DecodeSeconds = float64(stats.Forwards) * 0.002
		if i%7 < tau-2-8/o.Window {
			answer++
		}
	}
	text := fmt.Sprintf("%d + %d = %d.\n#### %d", i, j, answer, answer)
	finish := decoder.FinishStop
	if i == 5 {
		text, finish = "I <b>think</b> & think", decoder.FinishLength
	}
	ids := []int32{int32(answer), int32(len(text)), int32(i)}
	return decoder.Summary{Tokens: ids, Text: text, FinishReason: finish, Stats: stats}, nil
}

func threshold(f float32) *float32 { return &f }
