package grammar

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"windrow/internal/testhelp"
)

// fuzzed checks what holds of any text: an error is one line and of a kind,
// compiling ends in time, what is generated is accepted and a mask is what its
// tokens are one by one.
func fuzzed(t *testing.T, v *Vocabulary, compile func(Options) (*Grammar, error), check func(text string) bool) {
	var g *Grammar
	var err error
	if took := testhelp.Took(func() { g, err = compile(Options{Limits: Limits{Nodes: 20_000}}) }); took > 5*time.Second {
		t.Fatalf("compiling took %v", took)
	}
	if err != nil {
		var e *Error
		if !errors.As(err, &e) || strings.ContainsAny(err.Error(), "\n\r") || len(err.Error()) > 500 {
			t.Fatalf("%q is no error of one line", err)
		}
		return
	}
	c := NewConstraint(g, v)
	r := rand.New(rand.NewPCG(1, 1))
	for range 3 {
		s, ok := generate(c, r, 40)
		if !ok {
			continue
		}
		if !accepts(c, s) {
			t.Fatalf("%q was generated and is refused", s)
		}
		if !check(s) {
			t.Fatalf("%q was generated and is wrong", s)
		}
	}
	m := c.Start()
	for range 4 {
		sameMask(t, m, v, "")
		next := nextBytes(m)
		if len(next) == 0 {
			if !m.CanEnd() {
				t.Fatal("a place with no way on")
			}
			break
		}
		m.AdvanceBytes(next[r.IntN(len(next)):][:1])
	}
	m.Forced()
}

func FuzzSchema(f *testing.F) {
	for _, s := range schemas {
		f.Add(s)
	}
	f.Add(`{"not": {}}`)
	f.Add(benchSchema)
	v := smallVocabulary(f)
	f.Fuzz(func(t *testing.T, schema string) {
		fuzzed(t, v, func(o Options) (*Grammar, error) { return CompileSchema([]byte(schema), o) }, func(s string) bool { return json.Valid([]byte(s)) })
	})
}

func FuzzGBNF(f *testing.F) {
	f.Add(jsonGBNF)
	f.Add("root ::= [^a-z]{2,3} (\"\\x41\" | root2)* # c\nroot2 ::= \"(\" root2? \")\"\n")
	f.Add(doubling(6))
	f.Add("root ::= root \"a\" | \"b\"")
	v := smallVocabulary(f)
	f.Fuzz(func(t *testing.T, text string) {
		fuzzed(t, v, func(o Options) (*Grammar, error) { return CompileGBNF(text, o) }, validUTF8)
	})
}

func FuzzRegex(f *testing.F) {
	for _, e := range expressions {
		f.Add(e)
	}
	v := smallVocabulary(f)
	f.Fuzz(func(t *testing.T, expr string) {
		fuzzed(t, v, func(o Options) (*Grammar, error) { return CompileRegex(expr, o) }, func(s string) bool {
			re, err := regexp.Compile(`\A(?:` + expr + `)\z`)
			return validUTF8(s) && (err != nil || re.MatchString(s)) // with more around it, it may be too large
		})
	})
}
