package grammar

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

var expressions = []string{
	`abc`, `a*`, `(a|b)*abb`, `[a-z]+`, `[a-z ]{1,20}`, `\d{3}-\d{4}`, `x{2,5}y?`, `(ab|a)(bc|c)?`, `(?i)Straße|k`, `[^"\\]*`, `.`, `.*`, `(?s).+`,
	`\p{L}{1,3}`, `[^a-y]`, `日本|日曜`, `é+`, `^a$`, `^$`, `(^a|b)c`, `a(b$|c)`, `(a?){3}a{3}`, `((a|b)*c){2}`, `\x00|\n`, `[\x{10000}-\x{10FFFF}]`, `(?:)`,
	`(a|b)*a(a|b){8}`, `[a-zA-Z_][a-zA-Z0-9_]{0,63}`, `"(?:[^"\\]|\\.)*"`, `(?:the |x)+1?`, `-?(0|[1-9]\d*)(\.\d+)?`,
}

// TestRegex compares with package regexp, on generated texts and changed ones.
func TestRegex(t *testing.T) {
	t.Parallel()
	v := smallVocabulary(t)
	for _, expr := range expressions {
		t.Run(expr, func(t *testing.T) {
			t.Parallel()
			g, err := CompileRegex(expr, unhurried)
			if err != nil {
				t.Fatal(err)
			}
			want := regexp.MustCompile(`\A(?:` + expr + `)\z`)
			c := NewConstraint(g, v)
			r := rand.New(rand.NewPCG(1, 2))
			yes, no := 0, 0
			for range 300 {
				s, ok := generate(c, r, 60)
				if !ok {
					continue
				}
				if !validUTF8(s) || !want.MatchString(s) {
					t.Fatalf("%q is accepted and does not match", s)
				}
				yes++
				s = mutate(s, r, "ab c10-.\"\\\nétK")
				if !validUTF8(s) {
					if accepts(c, s) {
						t.Fatalf("%q is accepted and is not UTF-8", s)
					}
					continue
				}
				if got := accepts(c, s); got != want.MatchString(s) {
					t.Fatalf("%q: accepted %v, want %v", s, got, !got)
				} else if !got {
					no++
				}
			}
			if yes < 50 {
				t.Errorf("only %d texts were generated, %d were refused", yes, no)
			}
		})
	}
}

func TestRegexRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		expr string
		kind error
		what string
	}{
		{`a(`, ErrSyntax, "missing closing"},
		{`a(?!b)`, ErrSyntax, "not a regular expression"},
		{`\bword`, ErrUnsupported, "word boundary"},
		{`(?m)^a`, ErrUnsupported, "flag m"},
		{`a\zb`, ErrEmpty, "allows no text"},
		{`((a{100}){100}){100}`, ErrLimit, "too large"},
		{strings.Repeat("(", 2000) + strings.Repeat(")", 2000), ErrLimit, "too large"},
		{strings.Repeat("a", 70_000), ErrLimit, "at most 65536"},
		{strings.Repeat(`\pL{1000}`, 100), ErrLimit, "the regular expression"},
	} {
		_, err := CompileRegex(c.expr, unhurried)
		wantError(t, fmt.Sprintf("%.20q", c.expr), err, c.kind, c.what)
	}
}
