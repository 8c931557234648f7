package jinja

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"testing"
	"time"
)

type goldenAnswer struct{ Text, Error string }

type goldenCase struct {
	goldenAnswer
	Template, Differs string
}

type goldenFile struct {
	Cases     []goldenCase
	Templates []struct {
		Name     string
		Rendered []goldenAnswer
	}
}

func readGolden(t testing.TB) (g goldenFile) {
	t.Helper()
	readJSON(t, "testdata/golden.json", &g)
	return g
}

func readJSON(t testing.TB, name string, v any) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// variablesOf reads the variables of a rendering with their order kept.
func variablesOf(t testing.TB, raw []byte) map[string]any {
	t.Helper()
	v, err := FromJSON(raw, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := v.(*Dict)
	variables := make(map[string]any)
	for i, key := range d.keys {
		variables[key] = d.values[i]
	}
	return variables
}

// renderFixed renders at the time at which the goldens were made.
func renderFixed(source string, variables map[string]any, limits Limits) (string, error) {
	template, err := Compile(source)
	if err != nil {
		return "", err
	}
	ev := &evaluator{now: func() time.Time { return time.Date(2024, 7, 5, 9, 8, 7, 654321000, time.UTC) }}
	return template.render(context.Background(), ev, variables, limits)
}

var address = regexp.MustCompile(`(?i)( at 0x)[0-9a-f]+(>|&gt;)`)

// TestGolden compares with Jinja2 itself: see testdata/make.py.
func TestGolden(t *testing.T) {
	raw, err := os.ReadFile("testdata/variables.json")
	if err != nil {
		t.Fatal(err)
	}
	variables := variablesOf(t, raw)
	for _, c := range readGolden(t).Cases {
		got, err := renderFixed(c.Template, variables, Limits{})
		same := (err != nil) == (c.Error != "") && got == c.Text
		if c.Differs != "" {
			if same && c.Error == "" {
				t.Errorf("%s\nis as in Jinja2, although it is marked: %s", c.Template, c.Differs)
			}
			continue
		}
		if !same {
			t.Errorf("%s\n got %q, %v\nwant %q, %s", c.Template, got, err, c.Text, c.Error)
		}
		checkError(t, c.Template, err)
	}
}

// TestTemplates renders conversations with templates that use the idioms of
// published ones: docs/chat-templates.md.
func TestTemplates(t *testing.T) {
	var conversations []json.RawMessage
	readJSON(t, "testdata/conversations.json", &conversations)
	golden := readGolden(t).Templates
	if len(golden) < 5 {
		t.Fatalf("only %d templates", len(golden))
	}
	for _, g := range golden {
		source, err := os.ReadFile("testdata/templates/" + g.Name)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range g.Rendered {
			got, err := renderFixed(string(source), variablesOf(t, conversations[i]), Limits{})
			if (err != nil) != (want.Error != "") || got != want.Text {
				t.Errorf("%s, conversation %d:\n got %q, %v\nwant %q, %s", g.Name, i, got, err, want.Text, want.Error)
			}
			checkError(t, g.Name, err)
		}
	}
}
