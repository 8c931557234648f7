package engine

import (
	"encoding/json"
	"fmt"
	"regexp"
	"testing"

	"windrow/decoder"
	"windrow/grammar"
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
