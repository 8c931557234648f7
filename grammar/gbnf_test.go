package grammar

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
)

// jsonGBNF is in the form of llama.cpp's grammar of JSON.
const jsonGBNF = `# JSON
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

ws ::= | " " | "\n" [ \t]{0,20}
`

// TestGBNF compares grammars with regular expressions for the same texts, both
// ways round: texts are generated from each.
func TestGBNF(t *testing.T) {
	t.Parallel()
	v := smallVocabulary(t)
	for _, c := range []struct{ gbnf, expr string }{
		{`root ::= "abc"`, `abc`},
		{`root ::= "a" | "b" "c"? | ""`, `a|bc?|`},
		{`root ::= [a-c]* "x"+ [^a-z]{2,3}`, `[a-c]*x+[^a-z]{2,3}`},
		{"root ::= x (\",\" # comment\n x)*\nx ::= [0-9]{2} | \"-\"", `(\d\d|-)(,(\d\d|-))*`},
		{"root ::= a\na ::= \"x\" a | \"y\"", `x*y`},
		{"root ::= a b\na ::= b b\nb ::= \"z\"?", `z{0,3}`},
		{`root ::= "\x41\u00e9\U0001F600\t\"\\" [\]\\^-]`, `Aé😀\t"\\[\]\\^-]`},
		{`root ::= ("a" | "b"){3,} .`, `[ab]{3,}(?s:.)`},
		{`root ::= "ab"{2} "c"{0,2} "d"{0}`, `ababc{0,2}`},
		{"root ::=\n  \"a\" |\n  \"b\"\n\n", `a|b`},
		{"root ::= long long\nlong ::= \"" + strings.Repeat("a", 70) + "\" | \"b\"", `(a{70}|b){2}`},
		{"root ::= a | b\na ::= [a-z]+ \"1\"\nb ::= [a-z]+ \"2\"", `[a-z]+[12]`},
		{"root ::= root-a\nroot-a ::= root-a | \"q\"", `q`}, // a rule that is itself adds nothing
		// A token of several letters leaves w after each, and enters it again.
		{"root ::= w w w \".\"\nw ::= [a-z] | \"" + strings.Repeat("-", 70) + "\"", `(-{70}|[a-z]){3}\.`},
		{"root ::= s s \".\"\ns ::= \" \" [a-z]{1,2} | \"" + strings.Repeat("-", 70) + "\"", `(-{70}| [a-z]{1,2}){2}\.`},
		{`root ::= "é" [à-ü] [日本]`, `é[à-ü][日本]`},
	} {
		g, err := CompileGBNF(c.gbnf, unhurried)
		if err != nil {
			t.Errorf("%s: %v", c.gbnf, err)
			continue
		}
		h, err := CompileRegex(c.expr, unhurried)
		if err != nil {
			t.Fatal(err)
		}
		want := regexp.MustCompile(`\A(?:` + c.expr + `)\z`)
		x, y := NewConstraint(g, v), NewConstraint(h, v)
		r := rand.New(rand.NewPCG(5, 6))
		texts := 0
		for range 200 {
			for _, from := range []*Constraint{x, y} {
				s, ok := generate(from, r, 200)
				if !ok {
					continue
				}
				texts++
				for _, s := range []string{s, mutate(s, r, "abcxyzq12,-é")} {
					if got := accepts(x, s); got != (validUTF8(s) && want.MatchString(s)) {
						t.Fatalf("%s: %q: accepted %v, want %v", c.gbnf, s, got, !got)
					}
				}
			}
		}
		if texts < 100 {
			t.Errorf("%s: only %d texts", c.gbnf, texts)
		}
		walkMasks(t, g, v, r, 4, 8)
	}
}

// TestGBNFNested: brackets that match need a stack; a^n b^n with two ways on at
// each a would need 2^n stacks if calls of one rule were not made together.
func TestGBNFNested(t *testing.T) {
	t.Parallel()
	v := smallVocabulary(t)
	balanced := func(s string, pairs ...string) bool {
		for was := ""; was != s; {
			was = s
			for _, p := range pairs {
				s = strings.ReplaceAll(s, p, "")
			}
		}
		return s == ""
	}
	for _, c := range []struct {
		gbnf  string
		pairs []string
	}{
		{"root ::= (\"(\" root \")\" | \"[\" root \"]\")*", []string{"()", "[]"}},
		{"root ::= s\ns ::= \"(\" s \")\" s | \"[\" s \"]\" s | \"\"", []string{"()", "[]"}},
		{"root ::= \"\" | \"(\" root \")\" root | \"(\" root \"]\" root", []string{"()", "(]"}},
		{"root ::= a | b\na ::= \"\" | \"(\" root \")\" root\nb ::= \"(\" root \"]\" root", []string{"()", "(]"}},
	} {
		g, err := CompileGBNF(c.gbnf, unhurried)
		if err != nil {
			t.Fatalf("%s: %v", c.gbnf, err)
		}
		x := NewConstraint(g, v)
		r := rand.New(rand.NewPCG(7, 8))
		for range 500 {
			s, ok := generate(x, r, 30)
			if ok && !balanced(s, c.pairs...) {
				t.Fatalf("%s: %q is accepted", c.gbnf, s)
			}
			var b strings.Builder
			for range r.IntN(8) {
				b.WriteByte("()[]"[r.IntN(4)])
			}
			if got := accepts(x, b.String()); got != balanced(b.String(), c.pairs...) {
				t.Fatalf("%s: %q: accepted %v", c.gbnf, b.String(), got)
			}
		}
		deep := c.pairs[len(c.pairs)-1]
		if s := strings.Repeat(deep[:1], 300) + strings.Repeat(deep[1:], 300); !accepts(x, s) {
			t.Errorf("%s: 300 brackets inside each other are refused", c.gbnf)
		}
		walkMasks(t, g, v, r, 4, 8)
	}
}

func TestGBNFJSON(t *testing.T) {
	t.Parallel()
	v := smallVocabulary(t)
	g, err := CompileGBNF(jsonGBNF, unhurried)
	if err != nil {
		t.Fatal(err)
	}
	c := NewConstraint(g, v)
	for s, want := range map[string]bool{
		`{}`: true, `{"a": [1, 2.5e-3, {"b": null}], "c\n": "é\u00e9"}`: true, "{\n  \"a\":1}\n": true,
		`[]`: false, `{"a"}`: false, `{"a":01}`: false, `{"a":1,}`: false, `{"a":"` + "\x01" + `"}`: false,
	} {
		if got := accepts(c, s); got != want {
			t.Errorf("%s: accepted %v", s, got)
		}
	}
	walkMasks(t, g, v, rand.New(rand.NewPCG(9, 9)), 10, 20)
}

func TestGBNFRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		kind error
		what string
	}{
		{``, ErrSyntax, "has no rule root"},
		{`main ::= "a"`, ErrSyntax, "has no rule root"},
		{"root ::= \"a\"\nroot ::= \"b\"", ErrSyntax, `line 2 defines rule "root" a second time`},
		{"root ::=\n x", ErrSyntax, `line 2 names rule "x", which is not defined`},
		{`root = "a"`, ErrSyntax, "needs ::="},
		{`root ::= "a`, ErrSyntax, "ends inside"},
		{`root ::= [a`, ErrSyntax, "ends inside"},
		{`root ::= ("a"`, ErrSyntax, "needs a )"},
		{`root ::= "a")`, ErrSyntax, "where the next part"},
		{`root ::= "a"{2`, ErrSyntax, "needs a }"},
		{`root ::= "a"{x}`, ErrSyntax, "where a number is expected"},
		{`root ::= "a"{3,2}`, ErrSyntax, "the smaller one"},
		{`root ::= "\q"`, ErrSyntax, "escape"},
		{`root ::= "\x4"`, ErrSyntax, "hexadecimal"},
		{`root ::= "\ud800"`, ErrSyntax, "surrogate"},
		{`root ::= [z-a]`, ErrSyntax, "wrong way round"},
		{"root ::= \"\xff\"", ErrSyntax, "not UTF-8"},
		{`root ::= []`, ErrEmpty, "allows no text"},
		{`root ::= "a" root`, ErrEmpty, "allows no text"},
		{`root ::= <think>`, ErrUnsupported, "refers to a token"},
		{`root ::= root "a" | "b"`, ErrUnsupported, `left recursion: rule "root"`},
		{"root ::= a \"x\" | \"y\"\na ::= b\nb ::= e root\ne ::= \"\" | \"e\"", ErrUnsupported, "left recursion"},
		{strings.Repeat("#", 70_000), ErrLimit, "at most 65536"},
		{"root ::= " + strings.Repeat("(", 100) + `"a"` + strings.Repeat(")", 100), ErrLimit, "brackets"},
		{`root ::= "a"{1000000000000000000000}`, ErrLimit, "repeats"},
		{`root ::= (("a"{1000}){1000}){1000}`, ErrLimit, "100000 nodes"},
		{`root ::= "a"` + strings.Repeat("?", 60_000), ErrLimit, "repeats of one item"},
		{doubling(40), ErrLimit, "nodes"},
	} {
		_, err := CompileGBNF(c.text, unhurried)
		wantError(t, fmt.Sprintf("%.40q", c.text), err, c.kind, c.what)
	}
}

// doubling is a grammar whose rules would be written out 2^n times.
func doubling(n int) string {
	text := "root ::= (r0 \"x\"){90000}\n"
	for i := range n {
		text += fmt.Sprintf("r%d ::= r%d r%d\n", i, i+1, i+1)
	}
	return text + fmt.Sprintf("r%d ::= \"a\"\n", n)
}
