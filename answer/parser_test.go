package answer_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"windrow/answer"
)

// TestStreams writes texts byte by byte: what is certain comes at once.
func TestStreams(t *testing.T) {
	object := `{"note": "some text, é", "list": [1, 2.5e3, {"x": null}]}`
	value := "a value\nof two lines <b> and </parameters>"
	for name, c := range map[string]struct {
		before, text, after string
		form                answer.Form
		thinking            answer.Thinking
		want                func(sofar string) string
	}{
		"content":               {text: "Some text; a = 1.\n\nMore: é", form: answer.FormJSON, want: func(s string) string { return strings.TrimRight(s, " \n") }},
		"content with no calls": {text: "Some text.\n\n  More < é <tool", want: func(s string) string { return s }},
		"reasoning":             {before: "<think>", text: "Some text.\n\nMore", after: "</think>", thinking: answer.ThinkingTagged, want: func(s string) string { return strings.TrimRight(s, "\n") }},
		"arguments":             {before: `<tool_call>{"name": "add", "arguments": `, text: object, after: "}</tool_call>", form: answer.FormJSON, want: func(s string) string { return s }},
		"arguments of coder calls": {before: "<tool_call><function=add><parameter=note>", text: value, after: "</parameter></function>", form: answer.FormCoder, want: func(s string) string {
			// A newline, and what begins as a tag, waits.
			if i := strings.LastIndexByte(s, '<'); i >= 0 && strings.HasPrefix("</parameter>", s[i:]) {
				s = s[:i]
			}
			s = strings.TrimSuffix(s, "\n")
			if s == "" {
				return ""
			}
			return `"` + strings.ReplaceAll(s, "\n", `\n`)
		}},
	} {
		o := testOptions()
		o.Form, o.Thinking = c.form, c.thinking
		p, err := answer.New(o)
		if err != nil {
			t.Fatal(err)
		}
		p.Write(c.before)
		got := ""
		for i := range len(c.text) {
			for _, e := range p.Write(c.text[i : i+1]) {
				got += e.Text
			}
			sofar := string([]rune(strings.ToValidUTF8(c.text[:i+1], "")))
			if want := c.want(sofar); got != want {
				t.Errorf("%s: after %q came %q, want %q", name, c.text[:i+1], got, want)
				break
			}
		}
	}
}

func TestStates(t *testing.T) {
	o := testOptions()
	o.Form, o.Thinking, o.Stop = answer.FormJSON, answer.ThinkingOpened, []string{"END"}
	p, err := answer.New(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text                     string
		reasoning, call, stopped bool
	}{
		{"", true, false, false},
		{"\nhm", true, false, false},
		{"</think", true, false, false},
		{">\n", false, false, false},
		{"text <tool_call", false, false, false},
		{">", false, true, false},
		{`{"name": "now"`, false, true, false},
		{"}", false, false, false},
		{"</tool_call> EN", false, false, false},
		{"D</think>", false, false, true},
	} {
		p.Write(c.text)
		if p.InReasoning() != c.reasoning || p.InCall() != c.call || p.Stopped() != c.stopped {
			t.Errorf("after %q: reasoning %v, call %v, stopped %v; want %+v", c.text, p.InReasoning(), p.InCall(), p.Stopped(), c)
		}
	}
}

// TestBytes gives bytes that are no text: every event has whole characters.
func TestBytes(t *testing.T) {
	for text, want := range map[string]string{
		"\xe2\x82\xac":             "€",
		"a\xffb":                   "a\ufffdb",
		"\xe2\x82":                 "\ufffd\ufffd",
		"\xf0\x9f(":                "\ufffd\ufffd(",
		"\xed\xa0\xbd\xed\xb9\x82": strings.Repeat("\ufffd", 6), // surrogates
	} {
		s := sample{name: "bytes", text: text, options: testOptions()}
		for i := range len(text) + 1 {
			if got := parse(t, s, i); len(got) != 2 || got[0].Text != want {
				t.Errorf("%q, cut at %d: %v, want %q", text, i, got, want)
			}
		}
	}
}

func TestBadTools(t *testing.T) {
	for _, tools := range []string{`{`, `{"a": 1}`, `[{"function": 5}]`, `["x"]`} {
		_, err := answer.New(answer.Options{Tools: json.RawMessage(tools)})
		if err == nil || !strings.HasPrefix(err.Error(), "tools: ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v", tools, err)
		}
		if _, err := answer.Parse("", answer.Ended, answer.Options{Tools: json.RawMessage(tools)}); err == nil {
			t.Errorf("%s: no error", tools)
		}
	}
	for _, tools := range []string{``, `null`, `[]`, `[{"type": "web_search"}]`, `[{"function": {"name": "f", "parameters": null}}]`, `[{"function": {"name": "f", "parameters": [true]}}]`} {
		if _, err := answer.New(answer.Options{Form: answer.FormCoder, Tools: json.RawMessage(tools)}); err != nil {
			t.Errorf("%s: %v", tools, err)
		}
	}
}

// TestTypes gives values to parameters of all kinds of schemas.
func TestTypes(t *testing.T) {
	for _, c := range []struct{ schema, value, want string }{
		{`{"type": "integer"}`, "5", `5`},
		{`{"type": "integer"}`, "5.0", `5.0`},
		{`{"type": "integer"}`, "+5", `"+5"`},
		{`{"type": "number"}`, "NaN", `"NaN"`},
		{`{"type": "number"}`, "1e999", `1e999`},
		{`{"type": "int32"}`, "-5", `-5`},
		{`{"type": "float"}`, " .5", `" .5"`},
		{`{"type": "bool"}`, "FALSE", `false`},
		{`{"type": "boolean"}`, "1", `"1"`},
		{`{"type": "string"}`, "5", `"5"`},
		{`{"type": "string"}`, "null", `"null"`},
		{`{"type": "str"}`, "true", `"true"`},
		{`{"type": "null"}`, "None", `null`},
		{`{"type": ["string", "null"]}`, "null", `null`},
		{`{"type": ["string", "integer"]}`, "5", `5`},
		{`{"type": ["string", "integer"]}`, "five", `"five"`},
		{`{"type": ["string", "integer"]}`, "null", `"null"`},
		{`{"anyOf": [{"type": "object"}, {"type": "array"}]}`, "[1]", `[1]`},
		{`{"oneOf": [{"const": 1}, {"const": "a"}]}`, "1", `1`},
		{`{"allOf": [{"$ref": "#/$defs/list"}]}`, `["a"]`, `["a"]`},
		{`{"$ref": "#/$defs/self"}`, "5", `"5"`},
		{`{"$ref": "#/$defs/absent"}`, "5", `"5"`},
		{`{"$ref": "http://example.com"}`, "5", `"5"`},
		{`{"enum": ["1", "2"]}`, "1", `"1"`},
		{`{"enum": [1, 2, null]}`, "None", `null`},
		{`{"enum": [true]}`, "true", `true`},
		{`{"properties": {}}`, `{"a": 1}`, `{"a": 1}`},
		{`{"items": {}}`, `{"a": 1}`, `"{\"a\": 1}"`},
		{`{"type": "object"}`, `{"a": 1} {}`, `"{\"a\": 1} {}"`},
		{`{"type": "object"}`, ``, `""`},
		{`{"type": "dict[str, int]"}`, `{}`, `{}`},
		{`{"type": 5}`, `5`, `"5"`},
		{`true`, `5`, `"5"`},
		{`{}`, `[1]`, `"[1]"`},
	} {
		tools := fmt.Sprintf(`[{"function": {"name": "f", "parameters": {"properties": {"x": %s}, "$defs": {"list": {"type": "array"}, "self": {"$ref": "#/$defs/self"}}}}}]`, c.schema)
		m, err := answer.Parse("<tool_call>\n<function=f>\n<parameter=x>\n"+c.value+"\n</parameter>\n</function>\n</tool_call>", answer.Ended, answer.Options{Form: answer.FormCoder, Tools: json.RawMessage(tools)})
		if err != nil || len(m.Calls) != 1 || m.Calls[0].Arguments != `{"x":`+c.want+`}` {
			t.Errorf("%s: %q: %+v, %v; want %s", c.schema, c.value, m.Calls, err, c.want)
		}
	}
}

func TestIDs(t *testing.T) {
	seen := map[string]bool{}
	two := `<tool_call>{"name": "now"}</tool_call>`
	for range 2 {
		m, err := answer.Parse(two+two, answer.Ended, answer.Options{Form: answer.FormJSON})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range m.Calls {
			seen[c.ID] = true
		}
	}
	for _, key := range []string{"prompt", "prompt, and more", ""} {
		a, b := answer.IDs(key), answer.IDs(key)
		for i := range 20 {
			if a(i) != b(i) {
				t.Errorf("%q, %d: %s and %s", key, i, a(i), b(i))
			}
			seen[a(i)] = true
		}
	}
	if len(seen) != 4+60 {
		t.Errorf("%d ids, want 64", len(seen))
	}
	for id := range seen {
		if len(id) != 29 || !strings.HasPrefix(id, "call_") {
			t.Errorf("id %q", id)
		}
	}
}

// BenchmarkWrite writes 1 MB in pieces of 16 bytes: plain ones, and ones that
// are held back as long as they can be.
func BenchmarkWrite(b *testing.B) {
	const size = 1 << 20
	fill := func(head, unit string) string { return head + strings.Repeat(unit, size/len(unit)) }
	value := "<tool_call><function=add><parameter=note>"
	for _, c := range []struct {
		name, text string
		form       answer.Form
		stop       []string
	}{
		{"content", fill("", "Some text, and more. "), answer.FormJSON, nil},
		{"stops", fill("", "Some text, and more. "), answer.FormJSON, []string{"\n\n", "END", "Observation:", "###"}},
		{"longstop", fill("", "a"), answer.FormJSON, []string{strings.Repeat("a", 10_000) + "b"}},
		{"blank", fill("", " "), answer.FormJSON, nil},
		{"tags", fill("", "<tool_cal"), answer.FormJSON, nil},
		{"json", fill(`<tool_call>{"name": "f", "arguments": {"s": "`, "some text "), answer.FormJSON, nil},
		{"broken", fill("", `<tool_call>{"name": "f", "arguments": {x`), answer.FormJSON, nil},
		{"value", fill(value, "some text "), answer.FormCoder, nil},
		{"valuetags", fill(value, "</parameter> </function> <parameter=x"), answer.FormCoder, nil},
		{"valueblank", fill(value, "</parameter>"+strings.Repeat(" ", 60)), answer.FormCoder, nil},
	} {
		b.Run(c.name, func(b *testing.B) {
			o := testOptions()
			o.Form, o.Stop = c.form, c.stop
			b.SetBytes(int64(len(c.text)))
			b.ReportAllocs()
			for b.Loop() {
				p, err := answer.New(o)
				if err != nil {
					b.Fatal(err)
				}
				for i := 0; i < len(c.text); i += 16 {
					p.Write(c.text[i:min(i+16, len(c.text))])
				}
				p.Close(answer.Ended)
			}
		})
	}
}
