package answer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"windrow/grammar"
)

// pieceVocabulary is all bytes, and tags and pieces of calls as one token each.
var pieceVocabulary = func() *grammar.Vocabulary {
	var tokens [][]byte
	for b := range 256 {
		tokens = append(tokens, []byte{byte(b)})
	}
	for _, s := range []string{
		"<think>", "</think>", "<tool_call>", "</tool_call>", "<function=", "</function>", "<parameter=", "</parameter>", "<function=add>", "\n<parameter=", ">\n", "</parameter>\n",
		"\n</parameter>\n", "\n\n", "ab", " the", `{"`, `":`, `": `, `"}`, `, "`, "null", "true", "12", "é", "日", "\xe6\x97", "hello", "<", "</", "<tool_", "think>",
	} {
		tokens = append(tokens, []byte(s))
	}
	v, err := grammar.NewVocabulary(append(tokens, nil), grammar.VocabularyOptions{End: []int32{int32(len(tokens))}})
	if err != nil {
		panic(err)
	}
	return v
}()

// wander writes a random text that a grammar allows; whole reports whether it has come
// to an end within so many bytes.
func wander(c *grammar.Constraint, r *rand.Rand, longest int) (text string, whole bool) {
	m := c.Start()
	var out []byte
	favourites := []string{"<tool_call>", "</think>", "<think>", "\n</parameter>\n", `"`, "}", "]", "</parameter>", "<function=add>", "</function>", "\n<parameter=a>", "\n</parameter>\n</function>\n</tool_call>", "\n</parameter>\n<parameter="}
	for len(out) < longest {
		if m.CanEnd() && (m.Done() || r.IntN(20) == 0) {
			return string(out), true
		}
		if forced := m.Forced(); len(forced) > 0 {
			m.AdvanceBytes(forced)
			out = append(out, forced...)
			continue
		}
		if r.IntN(2) == 0 || len(out) > longest/2 {
			s := favourites[r.IntN(len(favourites))]
			if m.AdvanceBytes([]byte(s)) {
				out = append(out, s...)
				continue
			}
		}
		for {
			b := byte(r.IntN(256))
			if r.IntN(2) == 0 {
				b = "abdx01 \n\"<{>/,"[r.IntN(14)]
			}
			if m.AdvanceBytes([]byte{b}) {
				out = append(out, b)
				break
			}
		}
	}
	return string(out), false
}

var grammarTools = []string{
	`[{"type":"function","function":{"name":"add","parameters":{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":["number","null"]}},"required":["a"]}}}]`,
	`[{"type":"function","function":{"name":"add","parameters":{"type":"object","properties":{"a":{"type":"string"},"text":{"type":"string","maxLength":5},"c":{"enum":["x","y\nz"]}},"required":["a","c"]}}},
	  {"type":"function","function":{"name":"now"}},
	  {"type":"web_search"},
	  {"type":"function","function":{"name":"any","parameters":{"type":"object"}}}]`,
	`[{"type":"function","function":{"name":"add two","parameters":{"type":"object","properties":{
		"list":{"type":"array","items":{"type":"string"},"maxItems":3},"of":{"type":"object","properties":{"k":{"type":"string"},"n":{"$ref":"#/$defs/n"}},"required":["k"]},
		"flag":{"type":"boolean"},"mix":{"anyOf":[{"type":"string","minLength":1},{"type":"integer","minimum":3},{"type":"null"}]},"when":{"type":"string","format":"date"},
		"maybe":{"type":["string","null"],"maxLength":300},"two":{"type":["boolean","array","string"],"items":{"type":"integer"}}},"required":["list","mix"],"$defs":{"n":{"type":"number","maximum":9}}}}}]`,
}

// schemasOf compiles the parameters of a request's tools.
func schemasOf(tools string) (map[string]*jsonschema.Schema, error) {
	var list []struct {
		Function struct {
			Name       string
			Parameters json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(tools), &list); err != nil {
		return nil, err
	}
	out := map[string]*jsonschema.Schema{}
	for i, x := range list {
		schema := x.Function.Parameters
		if schema == nil {
			schema = []byte(noParameters)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
		if err != nil {
			return nil, err
		}
		c := jsonschema.NewCompiler()
		c.AssertFormat()
		at := fmt.Sprintf("mem:///%d.json", i)
		if err := c.AddResource(at, doc); err != nil {
			return nil, err
		}
		if out[x.Function.Name], err = c.Compile(at); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// checkHeld parses a whole text that a grammar allowed, in random cuts, and says what
// is wrong with what was found.
func checkHeld(o Options, h Held, text string, schemas map[string]*jsonschema.Schema, r *rand.Rand) error {
	p, err := New(o)
	if err != nil {
		return err
	}
	var m Message
	var events []Event
	for rest := text; rest != ""; {
		n := 1 + r.IntN(len(rest))
		events = append(events, p.Write(rest[:n])...)
		rest = rest[n:]
	}
	for _, e := range append(events, p.Close(Ended)...) {
		if e.Kind == CallBroken {
			return fmt.Errorf("call %d is broken", e.Index)
		}
		m.Add(e)
	}
	for _, c := range m.Calls {
		schema := schemas[c.Name]
		if schema == nil || h.Name != "" && c.Name != h.Name {
			return fmt.Errorf("%q is called", c.Name)
		}
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(c.Arguments))
		if err != nil {
			return fmt.Errorf("%q: %w", c.Arguments, err)
		}
		if err := schema.Validate(v); err != nil {
			return fmt.Errorf("%q: %w", c.Arguments, err)
		}
	}
	open := 0
	for _, tag := range openers(o.Form, o.tools()) {
		if !o.Either {
			open += strings.Count(m.Content, tag)
		}
	}
	switch {
	case open > 0:
		return fmt.Errorf("content %q holds a tag", m.Content)
	case h.Single && len(m.Calls) > 1:
		return fmt.Errorf("%d calls", len(m.Calls))
	case h.Required && (len(m.Calls) == 0 || m.Content != "" || m.Reason != ReasonToolCalls):
		return fmt.Errorf("%d calls, content %q", len(m.Calls), m.Content)
	case h.Form != nil && len(m.Calls) > 0 && m.Content != "":
		return fmt.Errorf("%d calls and content %q", len(m.Calls), m.Content)
	case h.Form != nil && len(m.Calls) == 0 && !json.Valid([]byte(m.Content)):
		return fmt.Errorf("content %q", m.Content)
	}
	return nil
}

// heldCases calls f with all mixes of thinking, forms of calls and what is held.
func heldCases(f func(name string, o Options, h Held)) {
	form := grammar.Schema{JSON: []byte(`{"type":"object","properties":{"n":{"type":"integer"},"s":{"type":"string"}},"required":["n"],"additionalProperties":false}`)}
	for _, thinking := range []Thinking{ThinkingOff, ThinkingTagged, ThinkingOpened} {
		for _, f2 := range []Form{FormJSON, FormCoder} {
			for i, tools := range grammarTools {
				for k, h := range []Held{{}, {Single: true}, {Required: true}, {Required: true, Single: true}, {Form: form}, {Form: form, Single: true}, {Required: true, Name: "add"}} {
					if i == 2 && h.Name != "" {
						h.Name = "add two"
					}
					f(fmt.Sprintf("thinking %d, %v, tools %d, held %d", thinking, f2, i, k), Options{Thinking: thinking, Form: f2, Tools: json.RawMessage(tools), Either: h.Form != nil}, h)
				}
			}
		}
	}
}

// TestGrammar: what a grammar allows is what the parser reads: calls of the tools, with
// arguments that satisfy their schemas by another program's judgement; and cut anywhere
// nothing else than a call is half there.
func TestGrammar(t *testing.T) {
	calls := 0
	heldCases(func(name string, o Options, h Held) {
		p, err := o.Grammar(h)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		g, err := grammar.Compose(p, grammar.Limits{Time: time.Minute})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		c := grammar.NewConstraint(g, pieceVocabulary)
		r := rand.New(rand.NewPCG(7, 7))
		schemas, err := schemasOf(string(o.Tools))
		if err != nil {
			t.Fatal(err)
		}
		whole := 0
		for range 40 {
			text, ok := wander(c, r, 3000)
			if !ok {
				continue
			}
			whole++
			calls += strings.Count(text, callOpen)
			if err := checkHeld(o, h, text, schemas, r); err != nil {
				t.Errorf("%s: %q: %v", name, text, err)
				return
			}
		}
		if whole < 10 {
			t.Errorf("%s: %d texts came to an end", name, whole)
		}
	})
	if calls < 1000 {
		t.Errorf("%d calls", calls)
	}
}

// TestGrammarTakes: what models write by their templates is allowed.
func TestGrammarTakes(t *testing.T) {
	jsonCall := "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2}}\n</tool_call>"
	coderCall := "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\nnull\n</parameter>\n</function>\n</tool_call>"
	for _, c := range []struct {
		o    Options
		h    Held
		text string
		want bool
	}{
		{Options{Form: FormJSON}, Held{}, "Let me see.\n" + jsonCall + "\n" + jsonCall, true},
		{Options{Form: FormJSON}, Held{}, "Let me see", true},
		{Options{Form: FormJSON}, Held{}, "<tool_call> x", false},
		{Options{Form: FormJSON}, Held{Required: true}, "Let me see.\n" + jsonCall, false},
		{Options{Form: FormJSON}, Held{Required: true}, jsonCall + "\n" + jsonCall, true},
		{Options{Form: FormJSON}, Held{Required: true, Single: true}, jsonCall + "\n" + jsonCall, false},
		{Options{Form: FormJSON, Thinking: ThinkingTagged}, Held{Required: true}, "<think>\nI <tool_call> it.\n</think>\n\n" + jsonCall, true},
		{Options{Form: FormJSON, Thinking: ThinkingTagged}, Held{}, "<think>\n<tool_call>\n</think>\n\nSo:" + jsonCall, true},
		{Options{Form: FormJSON, Thinking: ThinkingTagged}, Held{}, "<think>\n<tool_call>\n</think>\n\nSo:<tool_call>no", false},
		{Options{Form: FormJSON, Thinking: ThinkingOpened}, Held{Required: true}, "I think.\n</think>\n\n" + jsonCall, true},
		{Options{Form: FormJSON, Thinking: ThinkingOpened}, Held{Required: true}, jsonCall, false},
		{Options{Form: FormCoder}, Held{}, "So:\n" + coderCall + "\nand\n" + coderCall, true},
		{Options{Form: FormCoder}, Held{}, strings.TrimPrefix(coderCall, "<tool_call>\n"), true},
		{Options{Form: FormCoder}, Held{Required: true}, coderCall + "\n" + coderCall, true},
		{Options{Form: FormCoder}, Held{Required: true}, strings.Replace(coderCall, "\n1\n", "\none\n", 1), false},
	} {
		c.o.Tools = json.RawMessage(grammarTools[0])
		p, err := c.o.Grammar(c.h)
		if err != nil {
			t.Fatal(err)
		}
		g, err := grammar.Compose(p, grammar.Limits{Time: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		m := grammar.NewConstraint(g, pieceVocabulary).Start()
		if got := m.AdvanceBytes([]byte(c.text)) && m.CanEnd(); got != c.want {
			t.Errorf("%v, thinking %d, %+v: %q: %t", c.o.Form, c.o.Thinking, c.h, c.text, got)
		}
	}
}

// TestGrammarErrors: what cannot be held is said by its place.
func TestGrammarErrors(t *testing.T) {
	for _, c := range []struct {
		form  Form
		tools string
		held  Held
		want  string
	}{
		{FormJSON, `[{"function":{"name":"f"}},{"function":{"name":"g","parameters":{"properties":{"x":{"not":{}}}}}}]`, Held{}, "tools[1].function.parameters#/properties/x/not is not supported"},
		{FormCoder, `[{"function":{"name":"g","parameters":{"properties":{"x":{"uniqueItems":true}}}}}]`, Held{}, "tools[0].function.parameters#/properties/x/uniqueItems is not supported"},
		{FormJSON, `[{"function":{"name":"g","parameters":{"type":"string"}}}]`, Held{}, "tools[0].function.parameters allows no text"},
		{FormCoder, `[{"function":{"name":"g>"}}]`, Held{}, "tools[0].function.name"},
		{FormCoder, `[{"function":{"name":"g","parameters":{"properties":{"a<":{}},"required":["a<"]}}}]`, Held{}, "tools[0].function.parameters#/properties/a< has a name"},
		{FormJSON, `[{"function":{"name":"f"}}]`, Held{Required: true, Name: "g"}, "tools"},
		{FormNone, `[{"function":{"name":"f"}}]`, Held{Required: true}, "tools"},
	} {
		p, err := Options{Form: c.form, Tools: json.RawMessage(c.tools)}.Grammar(c.held)
		if err == nil {
			_, err = grammar.Compose(p, grammar.Limits{Time: time.Minute})
		}
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.tools, err, c.want)
		}
	}
}

// FuzzGrammar is TestGrammar for any schema of one parameter.
func FuzzGrammar(f *testing.F) {
	for i, s := range []string{`{"type":"string"}`, `{"type":["string","number","null"],"pattern":"^[0-9n<]"}`, `{"anyOf":[{"type":"object","properties":{"</parameter>":{"type":"string"}}},{"enum":["null","2",2,"</parameter>"]}]}`, `{"items":{"type":"string"},"maxItems":2}`, `true`} {
		f.Add(s, "a", uint64(i))
	}
	f.Fuzz(func(t *testing.T, schema, key string, seed uint64) {
		if !json.Valid([]byte(schema)) || len(schema) > 500 {
			return
		}
		name, _ := json.Marshal(key)
		tools := fmt.Sprintf(`[{"type":"function","function":{"name":"add","parameters":{"type":"object","properties":{%s:%s,"z":{"type":"string"}},"required":["z"]}}}]`, name, schema)
		var given map[string]any
		if json.Unmarshal([]byte(fmt.Sprintf(`{%s:0,"z":0}`, name)), &given) != nil || len(given) < 2 {
			return
		}
		schemas, err := schemasOf(tools)
		if err != nil {
			return // what another program refuses nobody judges
		}
		r := rand.New(rand.NewPCG(seed, 1))
		for _, form := range []Form{FormJSON, FormCoder} {
			o := Options{Form: form, Thinking: Thinking(r.IntN(3)), Tools: json.RawMessage(tools)}
			h := Held{Required: r.IntN(2) == 0, Single: r.IntN(2) == 0}
			p, err := o.Grammar(h)
			if err != nil {
				return
			}
			g, err := grammar.Compose(p, grammar.Limits{Nodes: 20_000})
			if err != nil {
				continue
			}
			c := grammar.NewConstraint(g, pieceVocabulary)
			for range 3 {
				text, ok := wander(c, r, 800)
				if !ok {
					continue
				}
				if err := checkHeld(o, h, text, schemas, r); err != nil {
					t.Fatalf("%v, %s: %q: %v", form, tools, text, err)
				}
			}
		}
	})
}
