package eval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"windrow/decoder"
)

func TestRunGSM8K(t *testing.T) {
	runner := &scripted{}
	var progress []string
	c := evaluation("")
	c.Settings = append(c.Settings, Setting{Mode: decoder.WeDLM, Window: 8, EntropyThreshold: threshold(0.7)})
	c.Arithmetic = "go f32"
	c.Progress = func(done, total int, note string) {
		progress = append(progress, fmt.Sprintf("%d/%d %s", done, total, note))
	}
	report, err := RunGSM8K(context.Background(), runner, c)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "report.json", append(text, '\n'))
	if len(progress) != 4*scriptedProblems+1 || progress[0] != "0/48 " || progress[48] != "48/48 wedlm W8 τ0.7 λ0 3/12" {
		t.Errorf("progress: %q", progress)
	}
	// Settings take turns, and each problem has a seed of its own.
	for i, c := range runner.calls {
		want := []decoder.Mode{decoder.AR, decoder.WeDLM, decoder.Verified, decoder.WeDLM}[i%4]
		if c.options.Mode != want || c.options.Sampling.Seed != uint64(i/4) || c.options.MaxTokens != DefaultMaxTokens {
			t.Errorf("call %d: %+v", i, c.options)
		}
	}
}

func TestRunGSM8KErrors(t *testing.T) {
	tau := float32(0.4)
	for _, test := range []struct {
		name   string
		change func(*GSM8K)
		want   string
	}{
		{"no setting", func(c *GSM8K) { c.Settings = nil }, "no setting to evaluate"},
		{"no data", func(c *GSM8K) { c.Data = nil }, "no data set"},
		{"mode", func(c *GSM8K) { c.Settings[0].Mode = "auto" }, `mode "auto": want ar, wedlm or verified`},
		{"window", func(c *GSM8K) { c.Settings[1].Window = -1 }, "window -1: want 1 to 4096"},
		{"threshold", func(c *GSM8K) { c.Settings[1].EntropyThreshold = threshold(-1) }, "entropy threshold -1"},
		{"penalty", func(c *GSM8K) { c.Settings[1].PosPenalty = -1 }, "position penalty -1"},
		{"twice", func(c *GSM8K) {
			c.Settings = []Setting{{Mode: decoder.AR}, {Mode: decoder.AR, Window: 3, EntropyThreshold: &tau}}
		}, "setting ar is given twice"},
		{"offset", func(c *GSM8K) { c.Offset = 12 }, "offset 12: doubles has 12 problems"},
		{"few-shot", func(c *GSM8K) { c.FewShot = 9 }, "few-shot 9: want 0 to 8"},
		{"runner", func(c *GSM8K) { c.Data.Problems[1].Question = "Why?" }, "problem 1 (ar): prompt"},
	} {
		c := evaluation("")
		test.change(&c)
		report, err := RunGSM8K(context.Background(), &scripted{}, c)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
		if test.name == "runner" && (report == nil || report.Complete || len(report.Items) != 3) {
			t.Errorf("%s: no report of what was done: %+v", test.name, report)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := RunGSM8K(ctx, &scripted{}, evaluation("")); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestPrompt(t *testing.T) {
	shots, err := FewShotExamples(1)
	if err != nil {
		t.Fatal(err)
	}
	p := Problem{Question: "What is 1 + 1?"}
	got := prompt(GSM8K{System: "Be brief."}, shots, p)
	want := Prompt{Messages: []Message{
		{Role: "system", Content: "Be brief."}, {Role: "user", Content: shots[0].Question}, {Role: "assistant", Content: shots[0].Answer}, {Role: "user", Content: "What is 1 + 1?"},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("chat: %+v", got)
	}
	got = prompt(GSM8K{Raw: true, System: "Be brief."}, shots, p)
	raw := "Be brief.\n\nQuestion: " + shots[0].Question + "\nAnswer: " + shots[0].Answer + "\n\nQuestion: What is 1 + 1?\nAnswer:"
	if !reflect.DeepEqual(got, Prompt{Raw: raw}) {
		t.Errorf("raw: %+v", got)
	}
}

// TestRawStops checks that the stop string of raw mode leaves the caller's
// options alone.
func TestRawStops(t *testing.T) {
	c := evaluation("")
	c.Raw, c.Limit, c.Settings = true, 1, c.Settings[:1]
	c.Options.StopStrings = make([]string, 1, 4)
	c.Options.StopStrings[0] = "a"
	var got []string
	runner := runnerFunc(func(_ context.Context, _ Prompt, o decoder.Options) (decoder.Summary, error) {
		got = o.StopStrings
		return decoder.Summary{}, nil
	})
	if _, err := RunGSM8K(context.Background(), runner, c); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, []string{"a", "\nQuestion:"}) || c.Options.StopStrings[:2][1] != "" {
		t.Errorf("stop strings %q, the caller's %q", got, c.Options.StopStrings[:2])
	}
}

type runnerFunc func(context.Context, Prompt, decoder.Options) (decoder.Summary, error)

func (f runnerFunc) Run(ctx context.Context, p Prompt, o decoder.Options) (decoder.Summary, error) {
	return f(ctx, p, o)
}
