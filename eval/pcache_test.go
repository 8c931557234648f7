package eval

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"windrow/decoder"
)

func pcacheRun(t *testing.T, r Runner) *PCacheReport {
	t.Helper()
	prompts, err := LoadPrompts("mixed")
	if err != nil {
		t.Fatal(err)
	}
	report, err := RunPCache(context.Background(), r, PCache{
		Name: "mixed", Prompts: prompts, Settings: DefaultSettings(), Model: "script", Options: decoder.Options{MaxTokens: 100},
	})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// bySurety yields more tokens a forward for counting than for open questions.
func bySurety(_ context.Context, p Prompt, o decoder.Options) (decoder.Summary, error) {
	perForward := 1
	if o.Mode != decoder.AR {
		question := p.Messages[len(p.Messages)-1].Content
		for prefix, n := range map[string]int{"Count": 12, "What is": 6, "Compute": 6, "Calculate": 6, "A ": 4, "Vera": 4, "Hana": 4} {
			if strings.HasPrefix(question, prefix) {
				perForward = n
			}
		}
	}
	s := decoder.Stats{Tokens: 48, Forwards: 48 / perForward, DecodeSeconds: 0.001 * float64(48/perForward)}
	s.Rows = s.Forwards * max(1, o.Window+perForward)
	if o.Mode == decoder.AR {
		s.Rows = s.Forwards
	}
	return decoder.Summary{Stats: s}, nil
}

func TestRunPCache(t *testing.T) {
	report := pcacheRun(t, runnerFunc(bySurety))
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "pcache.json", append(text, '\n'))
	var b bytes.Buffer
	if err := WritePCacheTable(&b, report); err != nil {
		t.Fatal(err)
	}
	golden(t, "pcache.txt", b.Bytes())
	for _, s := range report.Settings {
		if s.All.Prompts != 16 || len(s.Categories) != 4 {
			t.Errorf("%s: %d prompts, %d categories", s.Name, s.All.Prompts, len(s.Categories))
		}
	}
}

func TestRunPCacheInterrupted(t *testing.T) {
	n := 0
	runner := runnerFunc(func(ctx context.Context, p Prompt, o decoder.Options) (decoder.Summary, error) {
		if n++; n > 2 {
			return decoder.Summary{FinishReason: decoder.FinishCancelled}, nil
		}
		return decoder.Summary{Stats: decoder.Stats{Tokens: 1, Forwards: 1, Rows: 1}}, nil
	})
	c := PCache{
		Prompts: []PCachePrompt{{"a", "x"}, {"a", "y"}}, System: "s", Raw: true,
		Settings: []Setting{{Mode: decoder.AR}, {Mode: decoder.Verified}},
	}
	var notes []string
	c.Progress = func(done, total int, note string) { notes = append(notes, fmt.Sprintf("%d/%d %s", done, total, note)) }
	report, err := RunPCache(context.Background(), runner, c)
	if !errors.Is(err, context.Canceled) || report == nil || report.Complete || report.Settings[1].All.Prompts != 1 {
		t.Errorf("%+v, %v", report, err)
	}
	if want := []string{"0/4 ", "1/4 a, ar", "2/4 a, verified W16 τnone λ0"}; !reflect.DeepEqual(notes, want) {
		t.Errorf("progress %q", notes)
	}
	if _, err := RunPCache(context.Background(), runner, PCache{Settings: DefaultSettings()}); err == nil {
		t.Error("no prompts: no error")
	}
	if _, err := RunPCache(context.Background(), runner, PCache{Prompts: c.Prompts}); err == nil {
		t.Error("no settings: no error")
	}
}

func TestPCachePrompt(t *testing.T) {
	p := PCachePrompt{"a", "x"}
	if got := (PCache{Raw: true, System: "s"}).prompt(p); !reflect.DeepEqual(got, Prompt{Raw: "x"}) {
		t.Errorf("raw: %+v", got)
	}
	want := Prompt{Messages: []Message{{Role: "system", Content: "s"}, {Role: "user", Content: "x"}}}
	if got := (PCache{System: "s"}).prompt(p); !reflect.DeepEqual(got, want) {
		t.Errorf("chat: %+v", got)
	}
}

var promptTests = []struct{ text, want string }{
	{`{"prompt":"a"}`, ""},
	{`{"question":"a","answer":"#### 1"}`, ""},
	{"\ufeff" + `{"prompt":"a","category":"b"}` + "\n\n" + `{"prompt":"c"}`, ""},
	{"", "no prompts"},
	{"x", "line 1: not JSON"},
	{"\n{}", `line 2: field "prompt": missing or empty`},
	{`{"prompt":5}`, `line 1: field "prompt": found number`},
}

func TestReadPrompts(t *testing.T) {
	for _, test := range promptTests {
		prompts, err := ReadPrompts(strings.NewReader(test.text))
		if test.want == "" && (err != nil || prompts[0].Prompt != "a" || prompts[0].Category == "") {
			t.Errorf("%q: %v, %v", test.text, prompts, err)
		}
		if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%q: %v, want %q", test.text, err, test.want)
		}
	}
	if _, err := LoadPrompts("most"); err == nil || !strings.Contains(err.Error(), `prompts "most": want mixed or`) {
		t.Error(err)
	}
	path := filepath.Join(t.TempDir(), "p.jsonl")
	if _, err := LoadPrompts(path); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadPrompts(path); err == nil || !strings.HasPrefix(err.Error(), path+": line 1") {
		t.Error(err)
	}
}

func FuzzReadPrompts(f *testing.F) {
	for _, test := range promptTests {
		f.Add([]byte(test.text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		prompts, err := ReadPrompts(bytes.NewReader(data))
		if (err == nil) != (len(prompts) > 0) {
			t.Fatalf("%d prompts, %v", len(prompts), err)
		}
	})
}
