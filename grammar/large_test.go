package grammar

import (
	"math/rand/v2"
	"testing"
)

// TestLargeVocabulary compares masks over Qwen3's 151,643 tokens with each
// token by itself, along texts and off them.
func TestLargeVocabulary(t *testing.T) {
	t.Parallel()
	v := largeVocabulary(t)
	if n := v.Size(); n != 151_644 {
		t.Fatalf("%d tokens", n)
	}
	for name, compile := range map[string]func() (*Grammar, error){
		"schema": func() (*Grammar, error) { return CompileSchema([]byte(benchSchema), unhurried) },
		"object": func() (*Grammar, error) { return CompileObject(unhurried) },
		"gbnf":   func() (*Grammar, error) { return CompileGBNF(jsonGBNF, unhurried) },
		"calls":  compileCalls,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, err := compile()
			c := constraint(t, v, g, err)
			r := rand.New(rand.NewPCG(21, 22))
			text := benchText(r)
			if name == "calls" {
				text = benchAnswer(r)
			}
			m := c.Start()
			mask := make([]uint64, v.Words())
			at := ""
			for _, id := range cut(v, text) {
				if r.IntN(6) == 0 {
					sameMask(t, m, v, at)
				} else if err := m.Mask(mask); err != nil || mask[id/64]>>(id%64)&1 == 0 {
					t.Fatalf("after %q: token %q is not in the mask: %v", at, v.tokens[id], err)
				}
				if !m.Advance(id) {
					t.Fatalf("after %q: token %q is refused", at, v.tokens[id])
				}
				at += v.tokens[id]
			}
			if !m.CanEnd() {
				t.Error("the text cannot end")
			}
			walkMasks(t, g, v, r, 2, 6)
		})
	}
}

// TestLargeRegex: alphabets that the slices do not know.
func TestLargeRegex(t *testing.T) {
	t.Parallel()
	v := largeVocabulary(t)
	r := rand.New(rand.NewPCG(23, 24))
	for _, expr := range []string{`[a-z]{1,5}`, `[A-Za-z0-9_ ]{0,40}`, `[^"]*`, `(?s).{3,6}`, `[\p{Han}a-z]+`, `(?i)yes|no|maybe so`, ` ?[a-z]+( [a-z]+){2}\.`} {
		g, err := CompileRegex(expr, unhurried)
		if err != nil {
			t.Fatal(err)
		}
		walkMasks(t, g, v, r, 1, 4)
	}
}
