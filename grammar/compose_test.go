package grammar

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// tool is a call in the manner of Qwen's.
func tool(name, schema string) Piece {
	return Sequence{Literal(`{"name":"` + name + `","arguments":`), Named{name, Schema{JSON: []byte(schema), Object: true}}, Literal("}</c>")}
}

var compositions = map[string]struct {
	piece     Piece
	yes, no   []string // whole texts
	dead      []string // beginnings of no text
	endsEarly bool
}{
	"thinking, then a form": {
		piece: Free{Triggers: []Trigger{{Text: "</t>", Then: Sequence{Repeat{Literal("\n"), 0, 2}, Schema{JSON: []byte(`{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}`)}}}}},
		yes:   []string{`</t>{"a":1}`, "x <b> </t\n</t>\n\n" + `{"a": 12}`, "</</t>{\"a\":0}", "\xe6</t>\n{\"a\":0}"},
		no:    []string{"", "x", "</t>", `{"a":1}`, "x</t>\n"},
		dead:  []string{"x</t>\n\n\n", "x</t>y", `</t>{"b`, `</t>{"a":1}</t>`},
	},
	"calls in free text": {
		piece: Free{Ends: true, Triggers: []Trigger{{Text: "<c>", Again: true, Then: Choice{tool("f", `{"properties":{"x":{"type":"boolean"}},"required":["x"],"additionalProperties":false}`), tool("g", `{}`)}}}},
		yes:   []string{"", "x", "<c", "a<c>" + `{"name":"f","arguments":{"x":true}}</c>`, `<c>{"name":"g","arguments":{}}</c> and <c>{"name":"f","arguments":{"x":false}}</c>!`, `<c>{"name":"g","arguments":{"<c>":"<c>"}}</c>`},
		no:    []string{"<c>", `<c>{"name":"f","arguments":{"x":true}}`},
		dead:  []string{"<c>x", "<<c>x", `<c>{"name":"h`, `<c>{"name":"f","arguments":{"y`, `<c>{"name":"g","arguments":[`, `<c>{"name":"g","arguments":{}}</c><c>z`},
	},
	"one call": {
		piece: Free{Ends: true, Triggers: []Trigger{{Text: "<c>", Then: tool("g", `{}`)}}},
		yes:   []string{"abc", `abc<c>{"name":"g","arguments":{}}</c>`},
		dead:  []string{`<c>{"name":"g","arguments":{}}</c> `, `<c>{"name":"g","arguments":{}}</c><`},
	},
	"a tag that counts at the beginning": {
		piece: Free{Ends: true, Triggers: []Trigger{{Text: "<t>", First: true, Then: Free{Triggers: []Trigger{{Text: "</t>"}}}}, {Text: "<c>", Then: Literal("1")}}},
		yes:   []string{"", " \n<t>a<c>2</t>", "x<t>", "x<t><c>1", "<c>1", " <t", "<<t>a"},
		no:    []string{"<t>", "<t>a<c>1", "\n<t>"},
		dead:  []string{"x<c>2", "<t></t>x", "<c>1 "},
	},
	"triggers inside each other": {
		piece: Free{Triggers: []Trigger{{Text: "abab", Then: Literal("1")}, {Text: "bb", Then: Literal("2")}, {Text: "ba b", Then: Literal("3")}}},
		yes:   []string{"abab1", "aabab1", "abb2", "xbb2", "aba b3", "ababa"[:4] + "1"},
		dead:  []string{"abab2", "abb1", "xababx"},
	},
	"any of three, twice": {
		piece: Repeat{Choice{GBNF("root ::= \"<\" root? \">\""), Regex("[0-9]{2}"), Literal("é")}, 2, 2},
		yes:   []string{"<>12", "<<>>é", "é12", "1212"},
		no:    []string{"12", "", "é"},
		dead:  []string{"1<", "<>12<", "éé1"},
	},
	"an optional tag before a pattern": {
		piece: Choice{Regex("a+"), Sequence{Literal("<t>"), Free{Triggers: []Trigger{{Text: "</t>", Then: Regex("a+")}}}}},
		yes:   []string{"a", "aaa", "<t></t>a", "<t>aaa</t>aa"},
		no:    []string{"<t>a", "<t></t>"},
		dead:  []string{"<a", "<t></t>b", "a<"},
	},
}

func TestCompose(t *testing.T) {
	t.Parallel()
	v := smallVocabulary(t)
	for name, c := range compositions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, err := Compose(c.piece, unhurried.Limits)
			if err != nil {
				t.Fatal(err)
			}
			k := NewConstraint(g, v)
			for _, s := range c.yes {
				if !accepts(k, s) {
					t.Errorf("%q is refused", s)
				}
			}
			for _, s := range c.no {
				m := k.Start()
				if !m.AdvanceBytes([]byte(s)) {
					t.Errorf("%q is no beginning", s)
				} else if m.CanEnd() {
					t.Errorf("%q is accepted", s)
				}
			}
			for _, s := range c.dead {
				if m := k.Start(); m.AdvanceBytes([]byte(s)) {
					t.Errorf("%q is a beginning", s)
				}
			}
			r := rand.New(rand.NewPCG(1, 2))
			walkMasks(t, g, v, r, 8, 12)
			// Masks behind the texts of the table, which random walks do not find.
			for _, s := range append(c.yes, c.no...) {
				m := k.Start()
				for i := range len(s) {
					if i%2 == 0 {
						sameMask(t, m, v, s[:i])
					}
					m.AdvanceBytes([]byte(s[i : i+1]))
				}
				sameMask(t, m, v, s)
			}
		})
	}
}

// TestComposeTokens: a token that is a tag, or that goes over the end of a piece, is
// allowed where the text is; an end only where all pieces may.
func TestComposeTokens(t *testing.T) {
	tokens := [][]byte{[]byte("<c>"), []byte("x<"), []byte(`c>{"`), []byte("c>!"), []byte(`}</c>`), []byte("a"), []byte(`{"name":"g","arguments":{`), []byte("}"), []byte("end"), []byte("special<c>")}
	v, err := NewVocabulary(tokens, VocabularyOptions{End: []int32{8}, Special: []int32{9}})
	if err != nil {
		t.Fatal(err)
	}
	g, err := Compose(compositions["calls in free text"].piece, unhurried.Limits)
	if err != nil {
		t.Fatal(err)
	}
	m := NewConstraint(g, v).Start()
	for _, step := range []struct {
		take int32
		want []int32
	}{
		{-1, []int32{0, 1, 2, 3, 4, 5, 6, 7, 8}}, // "c>!" begins no tag
		{1, []int32{0, 1, 2, 4, 5, 6, 7, 8}},     // x<
		{0, []int32{6}},                          // <c>
		{6, []int32{7}},
		{7, []int32{4, 7}},
		{4, []int32{0, 1, 2, 3, 4, 5, 6, 7, 8}},
	} {
		if step.take >= 0 && !m.Advance(step.take) {
			t.Fatalf("token %d is refused", step.take)
		}
		got := make([]uint64, v.Words())
		if err := m.Mask(got); err != nil {
			t.Fatal(err)
		}
		want := make([]uint64, v.Words())
		for _, id := range step.want {
			want[0] |= 1 << id
		}
		if got[0] != want[0] {
			t.Errorf("behind token %d: %b, want %b", step.take, got[0], want[0])
		}
	}
}

func TestComposeErrors(t *testing.T) {
	named := func(s string) Piece { return Named{"tools[1].parameters", Schema{JSON: []byte(s)}} }
	for name, c := range map[string]struct {
		piece Piece
		kind  error
		what  string
	}{
		"a keyword":     {Choice{Literal("a"), named(`{"properties":{"x":{"not":{}}}}`)}, ErrUnsupported, "tools[1].parameters#/properties/x/not is not supported"},
		"no JSON":       {named(`{`), ErrSyntax, "tools[1].parameters is not JSON"},
		"empty":         {Choice{Literal("a"), named(`false`)}, ErrEmpty, "tools[1].parameters allows no text"},
		"empty inside":  {Sequence{named(`true`), Named{"x", Schema{JSON: []byte(`{"enum":[1],"type":"string"}`)}}}, ErrEmpty, "x allows no text"},
		"GBNF":          {Named{"grammar", GBNF("root ::= \"")}, ErrSyntax, "grammar, line 1"},
		"left":          {Named{"grammar", GBNF("root ::= root \"a\" | \"b\"")}, ErrUnsupported, "left recursion"},
		"a large one":   {named(`"` + strings.Repeat("x", 70000) + `"`), ErrLimit, "tools[1].parameters has 70002 bytes"},
		"no end":        {Free{Triggers: []Trigger{{Text: "x", Then: Schema{JSON: []byte("false")}}}}, ErrEmpty, "the grammar allows no text"},
		"not an object": {Named{"x", Schema{JSON: []byte(`{"type":"array"}`), Object: true}}, ErrEmpty, "x allows no text"},
	} {
		_, err := Compose(c.piece, unhurried.Limits)
		wantError(t, name, err, c.kind, c.what)
	}
}

func TestMayBegin(t *testing.T) {
	for _, c := range []struct {
		expr, s string
		want    bool
	}{
		{"<think>a", "<think>", true}, {`\s{0,3}<t`, "<t", true}, {`.*`, "<think>", true}, {`[^<]*`, "<think>", false}, {"<thi", "<think>", false}, {`a<t>`, "<t>", false},
		{`[ \n]*x`, "<t>", false}, {`(?s).*x`, "<t>", true},
	} {
		g, err := CompileRegex(c.expr, unhurried)
		if err != nil {
			t.Fatal(err)
		}
		if got := g.MayBegin(c.s); got != c.want {
			t.Errorf("%s may begin with %q: %t", c.expr, c.s, got)
		}
	}
}

func TestMembers(t *testing.T) {
	t.Parallel()
	members := func(schema string, kinds map[string][]string) Members {
		return Members{
			JSON: []byte(schema), Before: "<p=", AfterName: ">", After: "</p>", Kinds: func(n string) []string { return kinds[n] },
			Names: `[a-z]{1,9}`, Avoid: `</p>(?:<p=|\z)`, AvoidLong: "</p",
		}
	}
	v := smallVocabulary(t)
	for _, c := range []struct {
		schema  string
		kinds   map[string][]string
		yes, no []string
	}{
		{`{"properties":{"a":{"type":"string"},"n":{"type":"integer"}},"required":["a"]}`, map[string][]string{"n": {"number"}},
			[]string{"<p=a>x</p>", "<p=a></p>", "<p=a>12\n\"é</p>x</p>", "<p=a>1</p><p=n>2</p>"},
			[]string{"", "<p=n>2</p>", "<p=a>1</p><p=n>x</p>", "<p=a>1</p><p=b>x</p>", "<p=a>\xff</p>"}},
		{`{"properties":{"a":{"type":["string","null","integer"],"maxLength":4}}}`, map[string][]string{"a": {"string", "null", "number"}},
			[]string{"", "<p=a>ab</p>", "<p=a>null</p>", "<p=a>123456</p>", "<p=a>1x</p>"},
			[]string{"<p=a>None</p>", "<p=a>1.5</p>", "<p=a>abcde</p>", "<p=a> 12</p>"}},
		{`{"properties":{"a":{"enum":["x",2,"3"]},"b":{}},"required":["b"]}`, map[string][]string{"a": {"string", "number"}},
			[]string{"<p=a>x</p><p=b>{}</p>", "<p=a>2</p><p=b>null</p>", "<p=b></p>"}, []string{"<p=a>3</p><p=b></p>", "<p=a>\"x\"</p><p=b></p>"}},
		{`{"properties":{"a":{"anyOf":[{"type":"boolean"},{"type":"string","pattern":"^[ft]"}]}}}`, map[string][]string{"a": {"boolean", "string"}},
			[]string{"<p=a>true</p>", "<p=a>truex</p>", "<p=a>f</p>"}, []string{"<p=a>True</p>", "<p=a>x</p>"}},
		{`{"properties":{"a":{"type":"object","properties":{"s":{"type":"string"}},"required":["s"]}}}`, map[string][]string{"a": {"object"}},
			[]string{`<p=a>{"s":"x"}</p>`, `<p=a>{"s": "</p> <p="}</p>`}, []string{`<p=a>{"s":"</p><p="}</p>`, `<p=a>{}</p>`}},
		{`{"type":"object"}`, nil, []string{"", "<p=x>y</p><p=z></p>"}, []string{"<p=X>y</p>", "<p=>y</p>"}},
		{`{"properties":{"a":{"type":"string","maxLength":300}}}`, nil, []string{"<p=a><b></p>"}, []string{"<p=a></p></p>"}},
	} {
		g, err := Compose(members(c.schema, c.kinds), unhurried.Limits)
		if err != nil {
			t.Errorf("%s: %v", c.schema, err)
			continue
		}
		k := NewConstraint(g, v)
		for _, s := range c.yes {
			if !accepts(k, s) {
				t.Errorf("%s: %q is refused", c.schema, s)
			}
		}
		for _, s := range c.no {
			if accepts(k, s) {
				t.Errorf("%s: %q is accepted", c.schema, s)
			}
		}
		walkMasks(t, g, v, rand.New(rand.NewPCG(5, 6)), 3, 10)
	}
	for schema, what := range map[string]string{
		`{"properties":{"A":{}},"required":["A"]}`:                        "#/properties/A has a name that cannot",
		`{"anyOf":[{"required":["a"]}]}`:                                  "#/anyOf is not supported where members",
		`{"properties":{"a":{"enum":["</p><p="]}}}`:                       "has the constant",
		`{"properties":{"a":{"type":"integer"}},"required":["a"]}`:        "allows no text", // it is read as a string
		`{"properties":{"a":{"anyOf":[{"$ref":"#/properties/a"},true]}}}`: "too many alternatives",
	} {
		_, err := Compose(members(schema, nil), unhurried.Limits)
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v, want %q", schema, err, what)
		}
	}
}

// FuzzCompose: masks of a composition are those of its tokens one by one, what is
// generated is accepted, and a free text holds no trigger but at its end.
func FuzzCompose(f *testing.F) {
	f.Add(uint64(1), "</t>", "<c>", `{"type":"string"}`, "a*")
	f.Add(uint64(2), "aa", "aab", `{"properties":{"aa":{"type":"integer"}},"required":["aa"]}`, "(aa|b)+")
	f.Add(uint64(3), "<", "<<", `{}`, "<?")
	v := smallVocabulary(f)
	f.Fuzz(func(t *testing.T, seed uint64, one, two, schema, expr string) {
		if one == "" || two == "" || len(one)+len(two) > 40 {
			return
		}
		r := rand.New(rand.NewPCG(seed, 1))
		sources := []Piece{Schema{JSON: []byte(schema)}, Regex(expr), Literal("é\"")}
		then := func() Piece { return sources[r.IntN(len(sources))] }
		p := Sequence{
			Free{Ends: r.IntN(2) == 0, Triggers: []Trigger{{Text: one, Then: then(), Again: r.IntN(2) == 0}, {Text: two, First: r.IntN(2) == 0, Then: then()}}},
			Choice{then(), Repeat{then(), 0, 2}},
		}
		fuzzed(t, v, func(o Options) (*Grammar, error) { return Compose(p, o.Limits) }, func(string) bool { return true })
		until := Free{Triggers: []Trigger{{Text: one}, {Text: two}}}
		found := func(s string) bool { return strings.Contains(s, one) || strings.Contains(s, two) }
		fuzzed(t, v, func(o Options) (*Grammar, error) { return Compose(until, o.Limits) }, func(s string) bool {
			return found(s) && !found(s[:len(s)-1])
		})
	})
}
