package grammar

import (
	"strings"
	"testing"
)

// TestSegments compares masks at each place of counted repeats, up to their
// ends: a token must not reach over a bound that the first copies are far from.
func TestSegments(t *testing.T) {
	t.Parallel()
	v := smallVocabulary(t)
	for _, c := range []struct {
		name    string
		compile func() (*Grammar, error)
		text    string
		kept    int // segments
	}{
		{"at most", func() (*Grammar, error) {
			return CompileSchema([]byte(`{"type": "string", "maxLength": 120}`), unhurried)
		}, `"` + strings.Repeat("aé", 60) + `"`, 1},
		{"at least", func() (*Grammar, error) {
			return CompileSchema([]byte(`{"type": "string", "minLength": 110}`), unhurried)
		}, `"` + strings.Repeat("b", 110) + `"`, 1},
		{"both", func() (*Grammar, error) { return CompileGBNF(`root ::= "x" [a-c]{60,170} "y"`, unhurried) }, "x" + strings.Repeat("a", 170) + "y", 2},
		{"pairs", func() (*Grammar, error) { return CompileGBNF(`root ::= ("a" "b"?){0,130} "x"`, unhurried) }, strings.Repeat("ab", 130) + "x", 1},
		{"copies that may be empty", func() (*Grammar, error) { return CompileGBNF(`root ::= ("a"? "b"?){100} "x"`, unhurried) }, strings.Repeat("ab", 100) + "x", 0},
		{"calls", func() (*Grammar, error) {
			return CompileGBNF("root ::= (\"a\" r){0,90} \"x\"\nr ::= \"(\" r? \")\" | \"b\"", unhurried)
		}, strings.Repeat("aba()", 45) + "x", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g, err := c.compile()
			x := constraint(t, v, g, err)
			if len(g.segments) != c.kept {
				t.Errorf("%d segments are kept, want %d", len(g.segments), c.kept)
			}
			m := x.Start()
			moved := 0
			for i := range len(c.text) {
				sameMask(t, m, v, c.text[:i])
				for _, group := range m.s.groups {
					if x.e.canonical(group.l, v.deep) != group.l {
						moved++
					}
				}
				if !m.AdvanceBytes([]byte(c.text[i : i+1])) {
					t.Fatalf("after %q %q is refused", c.text[:i], c.text[i:i+1])
				}
			}
			if !m.CanEnd() {
				t.Error("the text cannot end")
			}
			if moved == 0 && c.kept > 0 {
				t.Error("no place shares the mask of another")
			}
		})
	}
}
