package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"windrow/decoder"
	"windrow/grammar"
	"windrow/models/tinygsm"
)

// TestConstraint: answers are of the grammar's language, verified gives ar's, greedy
// and sampled, and a limit is the only way to end before the text may.
func TestConstraint(t *testing.T) {
	e := openTiny(t, Options{})
	ids, err := e.Encode(t.Context(), Prompt{Raw: "There are 5 rows with 9 chairs. JSON:"})
	if err != nil {
		t.Fatal(err)
	}
	number := regexp.MustCompile(`^#### [0-9]{1,4}(\.[0-9])?$`)
	for name, c := range map[string]struct {
		make  func() (*grammar.Grammar, error)
		right func(text string) error
	}{
		"schema": {func() (*grammar.Grammar, error) {
			return grammar.CompileSchema([]byte(`{"type":"object","properties":{"rows":{"type":"integer","minimum":0,"maximum":999},"why":{"type":"string","maxLength":12}},
				"required":["rows","why"],"additionalProperties":false}`), grammar.Options{})
		}, func(text string) error {
			var v struct {
				Rows *int
				Why  *string
			}
			if err := json.Unmarshal([]byte(text), &v); err != nil {
				return err
			}
			if v.Rows == nil || v.Why == nil {
				return fmt.Errorf("a property is missing")
			}
			return nil
		}},
		"regex": {func() (*grammar.Grammar, error) {
			return grammar.CompileRegex(`#### [0-9]{1,4}(\.[0-9])?`, grammar.Options{})
		},
			func(text string) error {
				if !number.MatchString(text) {
					return fmt.Errorf("no match")
				}
				return nil
			}},
	} {
		g, err := c.make()
		if err != nil {
			t.Fatal(err)
		}
		constraint, err := e.Constraint(g)
		if err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(6) {
			o := decoder.Options{Mode: decoder.AR, MaxTokens: 120, Constraint: constraint}
			if seed > 0 {
				o.Sampling = decoder.Sampling{Temperature: 0.7, TopP: 0.95, Seed: seed}
			}
			want, err := e.Answer(t.Context(), ids, o, decoder.Hooks{})
			if err != nil {
				t.Fatal(err)
			}
			if want.FinishReason == decoder.FinishStop {
				if err := c.right(want.Text); err != nil {
					t.Errorf("%s, seed %d: %q: %v", name, seed, want.Text, err)
				}
			} else if seed == 0 {
				t.Errorf("%s: greedy did not end: %q", name, want.Text)
			}
			for _, window := range []int{0, 3, 16} {
				o.Mode, o.Window = decoder.Verified, window
				got, err := e.Answer(t.Context(), ids, o, decoder.Hooks{})
				if err != nil {
					t.Fatal(err)
				}
				if got.Text != want.Text || got.FinishReason != want.FinishReason {
					t.Errorf("%s, seed %d, window %d: verified %q, ar %q", name, seed, window, got.Text, want.Text)
				}
			}
		}
	}
}

// longNames is a schema whose property names are most of its texts.
const longNames = `{"type":"object","properties":{
	"total_number_of_chairs_in_the_hall":{"type":"integer","minimum":0,"maximum":999},
	"number_of_rows_in_the_hall":{"type":"integer","minimum":0,"maximum":999},
	"chairs_in_each_of_the_rows":{"type":"integer","minimum":0,"maximum":999},
	"the_answer_has_been_checked":{"type":"boolean"}},
	"required":["total_number_of_chairs_in_the_hall","number_of_rows_in_the_hall","chairs_in_each_of_the_rows","the_answer_has_been_checked"],"additionalProperties":false}`

// openMaskless is the embedded model without its mask token.
func openMaskless(t *testing.T) *Engine {
	t.Helper()
	folder := t.TempDir()
	for name, data := range tinygsm.Files() {
		if name == "config.json" {
			data = bytes.Replace(data, []byte(`"mask_token_id": 4095,`), nil, 1)
		}
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e, err := Open(t.Context(), folder, Options{Backend: CPU, Measurements: Measurements{Folder: NoFolder}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	if e.Defaults(decoder.Options{}).Mode != decoder.AR {
		t.Fatal("the model has a mask token")
	}
	return e
}

// TestForcedText: what a schema forces costs few forwards, also in a model without a
// mask token, and changes nothing.
func TestForcedText(t *testing.T) {
	for name, e := range map[string]*Engine{"masks": openTiny(t, Options{}), "no masks": openMaskless(t)} {
		ids, err := e.Encode(t.Context(), Prompt{Raw: "There are 5 rows with 9 chairs. JSON:"})
		if err != nil {
			t.Fatal(err)
		}
		g, err := grammar.CompileSchema([]byte(longNames), grammar.Options{Compact: true})
		if err != nil {
			t.Fatal(err)
		}
		constraint, err := e.Constraint(g)
		if err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(4) {
			o := decoder.Options{Mode: decoder.AR, MaxTokens: 200, Constraint: constraint}
			if seed > 0 {
				o.Sampling = decoder.Sampling{Temperature: 0.7, Seed: seed}
			}
			want, err := e.Answer(t.Context(), ids, o, decoder.Hooks{})
			if err != nil {
				t.Fatal(err)
			}
			o.Mode = "" // verified, under a constraint
			got, err := e.Answer(t.Context(), ids, o, decoder.Hooks{})
			if err != nil {
				t.Fatal(err)
			}
			if got.Text != want.Text || got.FinishReason != decoder.FinishStop || !json.Valid([]byte(got.Text)) {
				t.Errorf("%s, seed %d: %q (%s), ar %q", name, seed, got.Text, got.FinishReason, want.Text)
			}
			t.Logf("%s, seed %d: %d tokens in %d forwards, %d of %d drafts stood", name, seed, got.Stats.Tokens, got.Stats.Forwards, got.Stats.Accepted, got.Stats.Drafts)
			if want.Stats.Forwards < want.Stats.Tokens-1 || 2*got.Stats.Forwards > got.Stats.Tokens {
				t.Errorf("%s, seed %d: %d forwards for %d tokens, ar %d", name, seed, got.Stats.Forwards, got.Stats.Tokens, want.Stats.Forwards)
			}
		}
	}
}
