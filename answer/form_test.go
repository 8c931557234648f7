package answer_test

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"windrow/answer"
	"windrow/jinja"
)

// coderTemplate writes messages as the coder models' templates do, and fails
// like them on arguments that are no object.
const coderTemplate = `{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for call in m.tool_calls or [] %}{% set f = call.function %}
{{ '' if loop.first and not m.content else '\n' }}<tool_call>
<function={{ f.name }}>
{% for key, value in f.arguments|items %}<parameter={{ key }}>
{{ value if value is string else value | tojson }}
</parameter>
{% endfor %}</function>
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`

// qwen3Template is Qwen3's.
func qwen3Template(t testing.TB) string {
	t.Helper()
	data, err := os.ReadFile("../tokenizer/testdata/qwen3/tokenizer_config.json")
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Template string `json:"chat_template"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	return config.Template
}

func TestFormOf(t *testing.T) {
	for name, c := range map[string]struct {
		template string
		want     answer.Form
	}{
		"Qwen3":      {qwen3Template(t), answer.FormJSON},
		"coder":      {coderTemplate, answer.FormCoder},
		"Hermes":     {`'<tool_call>\n{"arguments": ' + (call.arguments | tojson) + ', "name": "'`, answer.FormJSON},
		"GLM":        {`<tool_call>{{ name }}\n<arg_key>{{ k }}</arg_key> "name": arguments`, answer.FormNone},
		"Seed-OSS":   {`<seed:tool_call>\n<function={{ name }}>\n<parameter=x>`, answer.FormNone},
		"functions":  {`<function={{ name }}>{{ arguments }}</function>`, answer.FormNone},
		"no tools":   {`{{ messages[0].content }}`, answer.FormNone},
		"none":       {``, answer.FormNone},
		"other tags": {`<tool_call>name\n{{ arguments }}</tool_call>`, answer.FormNone},
	} {
		if got := answer.FormOf(c.template); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestThinkingOf(t *testing.T) {
	yes, no := true, false
	thinks := "{{ '<think>' }}"
	for name, c := range map[string]struct {
		template, prompt string
		enabled          *bool
		want             answer.Thinking
	}{
		"the template has it":       {thinks, "assistant\n", nil, answer.ThinkingTagged},
		"asked for":                 {thinks, "assistant\n", &yes, answer.ThinkingTagged},
		"switched off":              {thinks, "assistant\n", &no, answer.ThinkingOff},
		"off in the prompt":         {thinks, "assistant\n<think>\n\n</think>\n\n", nil, answer.ThinkingOff},
		"opened":                    {thinks, "assistant\n<think>\n", nil, answer.ThinkingOpened},
		"opened, but switched off":  {thinks, "assistant\n<think>\n", &no, answer.ThinkingOpened},
		"the template has not":      {"{{ x }}", "assistant\n", nil, answer.ThinkingOff},
		"asked for, but has it not": {"{{ x }}", "assistant\n", &yes, answer.ThinkingOff},
	} {
		if got := answer.ThinkingOf(c.template, c.prompt, c.enabled); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// render renders one assistant message behind a user's and returns its text.
func render(t testing.TB, template, content string, calls json.RawMessage) string {
	t.Helper()
	compiled, err := jinja.Compile(template)
	if err != nil {
		t.Fatal(err)
	}
	user, message := &jinja.Dict{}, &jinja.Dict{}
	user.Set("role", "user")
	user.Set("content", "x")
	message.Set("role", "assistant")
	message.Set("content", content)
	if calls != nil {
		v, err := jinja.FromJSON(calls, func(s string) string { return s })
		if err != nil {
			t.Fatal(err)
		}
		message.Set("tool_calls", v)
	}
	text, err := compiled.Render(t.Context(), map[string]any{"messages": []any{user, message, user}}, jinja.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ = strings.Cut(text, "<|im_start|>assistant\n")
	text, _, _ = strings.Cut(text, "<|im_end|>")
	return text
}

// TestTemplates renders calls with a model's template, and finds them in the
// text again.
func TestTemplates(t *testing.T) {
	calls := []answer.Call{
		{ID: "id0", Name: "add", Arguments: `{"a":1,"note":"two\nlines </parameter> \"}\"","point":{"x":[]}}`},
		{ID: "id1", Name: "now", Arguments: `{}`},
	}
	for name, template := range map[string]string{"Qwen3": qwen3Template(t), "coder": coderTemplate} {
		form := answer.FormOf(template)
		content, list := form.ToolCalls("Let me.", calls)
		text := render(t, template, content, list)
		o := testOptions()
		o.Form = form
		m, err := answer.Parse(text, answer.Ended, o)
		if err != nil {
			t.Fatal(err)
		}
		for i := range m.Calls {
			var compact strings.Builder
			e := json.NewEncoder(&compact)
			e.SetEscapeHTML(false)
			e.Encode(json.RawMessage(m.Calls[i].Arguments))
			m.Calls[i].Arguments = strings.TrimSuffix(compact.String(), "\n")
		}
		want := answer.Message{Content: "Let me.", Calls: calls, Reason: answer.ReasonToolCalls}
		if !reflect.DeepEqual(m, want) {
			t.Errorf("%s: %q\n got %+v\nwant %+v", name, text, m, want)
		}
	}
}

// TestSyntax compares the literal text of a form with what templates write, and
// gives it to the parser.
func TestSyntax(t *testing.T) {
	for name, template := range map[string]string{"Qwen3": qwen3Template(t), "coder": coderTemplate} {
		form := answer.FormOf(template)
		s := form.Syntax()
		arguments := `{"note": "x"}`
		if s.Key != "" {
			arguments = s.Key + "note" + s.AfterKey + "x" + s.AfterValue
		}
		one := s.Open + s.BeforeName + "add" + s.AfterName + arguments + s.AfterArguments + s.Close
		call := answer.Call{Name: "add", Arguments: `{"note": "x"}`}
		_, list := form.ToolCalls("", []answer.Call{call, call})
		if got, want := strings.Trim(render(t, template, "", list), "\n"), one+s.Between+one; got != want {
			t.Errorf("%s: the template writes\n%q, want\n%q", name, got, want)
		}
		if force := form.Force("add"); !strings.HasPrefix(one, force) || len(force) != strings.Index(one, arguments) {
			t.Errorf("%s: %q forces a call, want the beginning of %q", name, force, one)
		}
		o := testOptions()
		o.Form = form
		for _, odd := range []string{"add", `a"b\`, `"a"`} {
			text := form.Force(odd) + arguments + s.AfterArguments + s.Close
			m, err := answer.Parse(text, answer.Ended, o)
			if err != nil || len(m.Calls) != 1 || m.Calls[0].Name != odd || m.Content != "" {
				t.Errorf("%s: %q is %+v, %v", name, text, m, err)
			}
		}
	}
	if s := answer.FormNone.Syntax(); s != (answer.Syntax{}) || answer.FormNone.Force("f") != "" {
		t.Errorf("no form has %+v", s)
	}
}

func TestTemplateArguments(t *testing.T) {
	for arguments, want := range map[string]string{
		`{"b": 1, "a": [2]}`: `{"b": 1, "a": [2]}`,
		` {} `:               `{}`,
		``:                   `{}`,
		` null`:              `{}`,
		`a = "b"` + "\n":     `"a = \"b\"\n"`,
		`{"a": `:             `"{\"a\": "`,
		`[1]`:                `"[1]"`,
		`5`:                  `"5"`,
		"\xff":               `"�"`,
	} {
		if got := string(answer.TemplateArguments(arguments)); got != want || !json.Valid([]byte(got)) {
			t.Errorf("%q: %s, want %s", arguments, got, want)
		}
	}
}

// TestHistory renders earlier calls whose arguments are not JSON: as text, and
// no template fails.
func TestHistory(t *testing.T) {
	calls := []answer.Call{{Name: "now"}, {Name: "add", Arguments: `a: 1`}, {Name: "add", Arguments: `{"a": null, "note": "x"}`}}
	for name, c := range map[string]struct{ template, want string }{
		"Qwen3": {qwen3Template(t), "Hm.\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"add\", \"arguments\": a: 1}\n</tool_call>\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": null, \"note\": \"x\"}}\n</tool_call>"},
		"coder": {coderTemplate, "Hm.\n<tool_call>\n<function=now>\n</function>\n</tool_call>\n<tool_call>\n<function=add>\na: 1\n</function>\n</tool_call>\n<tool_call>\n<function=add>\n<parameter=a>\nnull\n</parameter>\n<parameter=note>\nx\n</parameter>\n</function>\n</tool_call>"},
	} {
		content, list := answer.FormOf(c.template).ToolCalls("Hm.", calls)
		if got := render(t, c.template, content, list); got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", name, got, c.want)
		}
	}
	if content, list := answer.FormCoder.ToolCalls("x", nil); content != "x" || list != nil {
		t.Errorf("no calls: %q, %s", content, list)
	}
}
