package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"windrow/answer"
	"windrow/decoder"
	"windrow/grammar"
)

const (
	openTemplate = `{%- if tools %}{{- '<tool_call>{"name": , "arguments": }</tool_call>' + tools|tojson }}{%- endif %}{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endfor %}` +
		`{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n<think>\n' }}{%- endif %}`
	coderTemplate = `{%- if tools %}{{- '<tool_call>\n<function=x>\n<parameter=x>' + tools|tojson }}{%- endif %}{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endfor %}` +
		`{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}`
	heldTools = `"tools":[
		{"type":"function","function":{"name":"multiply","strict":true,"parameters":{"type":"object","properties":{"factors":{"type":"array","items":{"type":"integer","minimum":0,"maximum":99},"minItems":2,"maxItems":2},"exact":{"type":"boolean"}},"required":["factors","exact"],"additionalProperties":false}}},
		{"type":"function","function":{"name":"now","strict":false}}]`
)

// calling is the embedded model with another template.
func calling(t *testing.T, template string) *Model {
	m := open(t)
	m.Tokenizer = tokens(t, template)
	return m
}

// heldAnswer is what a test looks at of a reply.
type heldAnswer struct {
	reasoning, content, finish string
	calls                      []string // name and arguments
}

func askHeld(t *testing.T, h *httptest.Server, more string) (a heldAnswer) {
	t.Helper()
	reply, data := ask(t, h, "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"A hall has 5 rows with 9 chairs in each row. How many chairs are there?"}],"seed":5,`+more+`}`)
	if reply.StatusCode != 200 {
		t.Fatalf("%s: %d %s", more, reply.StatusCode, data)
	}
	v := object(t, data)
	message := at(v, "choices", 0, "message")
	a.finish = fmt.Sprint(at(v, "choices", 0, "finish_reason"))
	a.reasoning, _ = at(message, "reasoning_content").(string)
	a.content, _ = at(message, "content").(string)
	calls, _ := at(message, "tool_calls").([]any)
	for _, c := range calls {
		arguments := fmt.Sprint(at(c, "function", "arguments"))
		var compact bytes.Buffer
		if json.Compact(&compact, []byte(arguments)) == nil {
			arguments = compact.String()
		}
		a.calls = append(a.calls, fmt.Sprint(at(c, "function", "name"), " ", arguments))
	}
	return a
}

// rightCall says what is wrong with a call of heldTools.
func rightCall(call string) error {
	name, arguments, _ := strings.Cut(call, " ")
	var v struct {
		Factors *[]int
		Exact   *bool
	}
	d := json.NewDecoder(strings.NewReader(arguments))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		return err
	}
	switch {
	case name == "now" && v.Factors == nil && v.Exact == nil:
	case name == "multiply" && v.Factors != nil && v.Exact != nil && len(*v.Factors) == 2 && max((*v.Factors)[0], (*v.Factors)[1]) <= 99:
	default:
		return fmt.Errorf("not as its schema has it")
	}
	return nil
}

// TestToolChoice: required, a name and one call at most are obeyed, in both forms of
// calls; arguments are of their schema; ar and verified, greedy and sampled, agree.
func TestToolChoice(t *testing.T) {
	templates := map[string]string{"json": toolTemplate, "coder": coderTemplate}
	if testing.Short() {
		t.Log("left out: calls as JSON: leave -short out")
		delete(templates, "json")
	}
	for name, template := range templates {
		h := httptest.NewServer(New(calling(t, template), Options{}))
		defer h.Close()
		for _, c := range []struct {
			choice string
			right  func(a heldAnswer) bool
		}{
			{`"tool_choice":"required","parallel_tool_calls":false`, func(a heldAnswer) bool { return len(a.calls) == 1 }},
			{`"tool_choice":{"type":"function","function":{"name":"multiply"}},"parallel_tool_calls":false`, func(a heldAnswer) bool { return len(a.calls) == 1 && strings.HasPrefix(a.calls[0], "multiply ") }},
			{`"tool_choice":{"type":"function","function":{"name":"now"}},"parallel_tool_calls":false`, func(a heldAnswer) bool { return slices.Equal(a.calls, []string{"now {}"}) }},
			{`"tool_choice":"required"`, func(a heldAnswer) bool { return len(a.calls) > 0 }},
		} {
			for _, heat := range []string{`"temperature":0`, `"temperature":0.8`} {
				more := heldTools + `,"chat_template_kwargs":{"enable_thinking":false},"max_tokens":150,` + c.choice + "," + heat
				want := askHeld(t, h, more+`,"mode":"ar"`)
				if want.finish != "tool_calls" && want.finish != "length" || want.content != "" && want.finish != "length" || want.reasoning != "" || !c.right(want) {
					t.Errorf("%s, %s, %s: %+v", name, c.choice, heat, want)
				}
				for i, call := range want.calls {
					if err := rightCall(call); err != nil && (want.finish == "tool_calls" || i+1 < len(want.calls)) {
						t.Errorf("%s, %s, %s: %s: %v", name, c.choice, heat, call, err)
					}
				}
				for _, mode := range []string{`,"mode":"verified"`, `,"mode":"verified","window":5`} {
					if got := askHeld(t, h, more+mode); fmt.Sprint(got) != fmt.Sprint(want) {
						t.Errorf("%s, %s, %s%s: %+v, ar %+v", name, c.choice, heat, mode, got, want)
					}
				}
			}
		}
		// Cut in the middle of a call.
		cut := askHeld(t, h, heldTools+`,"tool_choice":{"type":"function","function":{"name":"multiply"}},"chat_template_kwargs":{"enable_thinking":false},"max_tokens":24`)
		if cut.finish != "length" {
			t.Errorf("%s: cut: %+v", name, cut)
		}
	}
}

// TestHeldBehindThinking: a form and a call begin behind the end of thinking, which is
// free; whether they do is the model's where it may choose.
func TestHeldBehindThinking(t *testing.T) {
	const schema = `"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"type":"object","properties":{"n":{"type":"integer","maximum":999,"minimum":0}},"required":["n"],"additionalProperties":false}}}`
	for name, template := range map[string]string{"tagged": toolTemplate, "opened": openTemplate} {
		m := calling(t, template)
		if name == "opened" { // the model ends no reasoning by itself
			constrain := m.Constrain
			m.Constrain = func(g *grammar.Grammar) (decoder.Constraint, error) {
				inner, err := constrain(g)
				if err != nil {
					return nil, err
				}
				return newBudget(m.Tokenizer, answer.ThinkingOpened, 12, inner)
			}
		}
		h := httptest.NewServer(New(m, Options{}))
		defer h.Close()
		for _, held := range []string{
			schema, `"regex":"(yes|no), [0-9]{1,3}"`, heldTools + `,"tool_choice":"required","parallel_tool_calls":false`, heldTools + "," + schema,
		} {
			want := askHeld(t, h, held+`,"max_tokens":120,"mode":"ar"`)
			if want.reasoning == "" && name == "opened" {
				t.Errorf("%s, %s: no reasoning", name, held)
			}
			switch {
			case want.finish == "length" && name == "tagged" && want.reasoning != "" && want.content == "":
				// The model chose to think, and went on with it.
			case len(want.calls) > 0:
				if err := rightCall(want.calls[0]); err != nil || want.finish != "tool_calls" || want.content != "" {
					t.Errorf("%s, %s: %+v: %v", name, held, want, err)
				}
			case strings.Contains(held, "tool_choice"), want.finish != "stop":
				t.Errorf("%s, %s: %+v", name, held, want)
			case strings.Contains(held, "regex"):
				if !strings.HasPrefix(want.content, "yes, ") && !strings.HasPrefix(want.content, "no, ") {
					t.Errorf("%s, %s: %+v", name, held, want)
				}
			default:
				var v struct{ N *int }
				if err := json.Unmarshal([]byte(want.content), &v); err != nil || v.N == nil {
					t.Errorf("%s, %s: %+v: %v", name, held, want, err)
				}
			}
			if got := askHeld(t, h, held+`,"max_tokens":120`); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s, %s: verified %+v, ar %+v", name, held, got, want)
			}
		}
	}
}

// TestFreeCalls: where the model may call, what begins a call must go on as one; in
// wedlm nothing is held, and what must be is refused.
func TestFreeCalls(t *testing.T) {
	m := calling(t, toolTemplate)
	s := &script{pieces: []string{"hello"}}
	m.Scheduler = s
	h := httptest.NewServer(New(m, Options{}))
	defer h.Close()
	last := func(more string) decoder.Constraint {
		if reply, data := ask(t, h, "POST", "/v1/chat/completions", "{"+hello+","+heldTools+","+more+"}"); reply.StatusCode != 200 {
			t.Fatalf("%s: %d %s", more, reply.StatusCode, data)
		}
		return s.requests[len(s.requests)-1].Options.Constraint
	}
	takes := func(c decoder.Constraint, text string) bool {
		ids, err := m.Tokenizer.Encode(text)
		if err != nil {
			t.Fatal(err)
		}
		c = c.Clone()
		for _, id := range ids {
			if !c.Advance(id) {
				return false
			}
		}
		return true
	}
	const call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"
	for _, free := range []struct {
		more, text string
		want       bool
	}{
		{`"mode":"ar"`, "So.\n" + call + "\n" + call + "And", true},
		{`"mode":"ar"`, "So.\n<tool_call>\n{\"name\": \"then\"", false},
		{`"mode":"ar"`, "<think><tool_call> then</think>" + call, true},
		{`"mode":"verified","tool_choice":"auto"`, "<tool_call>\n{\"name\": \"multiply\", \"arguments\": {\"factors\":[1,2], \"exact\":true}}\n</tool_call>", true},
		{`"mode":"verified","tool_choice":"auto"`, "<tool_call>\n{\"name\": \"multiply\", \"arguments\": {\"factors\":[1,200", false},
		{`"parallel_tool_calls":false`, "So. " + call, true},
		{`"parallel_tool_calls":false`, "So. " + call + call, false},
		{`"chat_template_kwargs":{"enable_thinking":false}`, "<think><tool_call> then", false},
	} {
		if got := takes(last(free.more), free.text); got != free.want {
			t.Errorf("%s: %q: %t", free.more, free.text, got)
		}
	}
	for _, none := range []string{`"mode":"wedlm"`, `"tool_choice":"none"`, `"ignore_eos":true`} {
		if c := last(none); c != nil {
			t.Errorf("%s: the answer is held to a grammar", none)
		}
	}
	for more, want := range map[string]string{
		`"mode":"wedlm","tool_choice":"required",` + heldTools:                      "tool_choice: want mode ar or verified",
		`"mode":"wedlm","parallel_tool_calls":false,` + heldTools:                   "parallel_tool_calls: want mode ar or verified",
		`"ignore_eos":true,"tool_choice":"required",` + heldTools:                   "ignore_eos: want none beside tool_choice",
		`"tool_choice":"required"`:                                                  "tool_choice: want tools beside it",
		`"tool_choice":{"type":"function","function":{"name":"then"}},` + heldTools: "tool_choice.function.name: there is no such tool",
		`"tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"b","parameters":{"type":"object","properties":{"x":{"not":{}}}}}}]`: "tools[1].function.parameters#/properties/x/not is not supported",
		`"tools":[{"type":"function","function":{"name":"a","parameters":{"type":"string"}}}]`:                                                                           "tools[0].function.parameters allows no text at all",
		`"regex":"(?s)<.*",` + heldTools: "regex: want an answer that does not begin with \"<think>\"",
		`"regex":" ?<tool_call>",` + heldTools + `,"chat_template_kwargs":{"enable_thinking":false}`: "regex: want an answer that does not begin with \"<tool_call>\"",
	} {
		reply, data := ask(t, h, "POST", "/v1/chat/completions", "{"+hello+","+more+"}")
		v := object(t, data)
		if message := fmt.Sprint(at(v, "error", "message")); reply.StatusCode != 400 || !strings.HasPrefix(message, want) {
			t.Errorf("%s: %d %s, want %q", more, reply.StatusCode, data, want)
		}
		if param, _ := at(v, "error", "param").(string); !strings.HasPrefix(want, param) || param == "" {
			t.Errorf("%s: param %q", more, param)
		}
	}
}
