package server

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"windrow/schedule"
)

const responsesAdder = `"tools":[{"type":"function","name":"add","description":"adds","parameters":{"type":"object"},"strict":null}]`

// outline is a short form of a response's events. Neighbouring deltas of an item are one
// line.
func outline(events []named) (lines []string) {
	delta := ""
	for i, e := range events {
		line := strings.TrimPrefix(e.name, "response.")
		if at, ok := e.data["output_index"]; ok {
			line += fmt.Sprint(" ", at)
		}
		for _, key := range []string{"item", "part"} {
			if v, ok := e.data[key].(map[string]any); ok {
				line += fmt.Sprint(" ", v["type"])
				if v["status"] != nil {
					line += fmt.Sprint(" ", v["status"])
				}
			}
		}
		for _, key := range []string{"text", "arguments"} {
			if s, ok := e.data[key].(string); ok {
				line += fmt.Sprintf(" %q", s)
			}
		}
		if s, ok := e.data["delta"].(string); ok {
			delta += s
			if next := events[i+1]; next.name == e.name && next.data["item_id"] == e.data["item_id"] {
				continue
			}
			line += fmt.Sprintf(" %q", delta)
			delta = ""
		}
		lines = append(lines, line)
	}
	return lines
}

// followResponse checks what all streams of responses keep to, and returns the last
// response.
func followResponse(t testing.TB, events []named) map[string]any {
	t.Helper()
	items := map[float64]map[string]any{}
	texts := map[any]string{}
	ids := map[any]bool{}
	for i, e := range events {
		if e.data["sequence_number"] != float64(i) {
			t.Fatalf("event %d has number %v", i, e.data["sequence_number"])
		}
		noNullArrays(t, e.data)
		index, _ := e.data["output_index"].(float64)
		item, _ := e.data["item"].(map[string]any)
		id := e.data["item_id"]
		if id != nil && items[index]["id"] != id {
			t.Fatalf("%s of item %v, at %v stands %v", e.name, id, index, items[index]["id"])
		}
		switch e.name {
		case "response.output_item.added":
			if index != float64(len(items)) || ids[item["id"]] {
				t.Fatalf("item %v comes at %v behind %d", item, index, len(items))
			}
			items[index], ids[item["id"]] = item, true
			if item["type"] == "function_call" {
				if item["arguments"] != "" || ids[item["call_id"]] || !strings.HasPrefix(item["id"].(string), "fc_") || !strings.HasPrefix(item["call_id"].(string), "call_") {
					t.Errorf("call %v", item)
				}
				ids[item["call_id"]] = true
			} else if len(list(item["content"])) != 0 {
				t.Errorf("item %v begins with something", item)
			}
		case "response.content_part.added":
			if at(e.data, "part", "text") != "" {
				t.Errorf("part %v begins with something", e.data)
			}
		case "response.output_text.delta", "response.reasoning_text.delta", "response.function_call_arguments.delta":
			texts[id] += e.data["delta"].(string)
		case "response.output_text.done", "response.reasoning_text.done":
			if e.data["text"] != texts[id] {
				t.Errorf("text %v, deltas %q", e.data["text"], texts[id])
			}
		case "response.function_call_arguments.done":
			if e.data["arguments"] != texts[id] || e.data["name"] == nil {
				t.Errorf("arguments %v, deltas %q", e.data, texts[id])
			}
		case "response.content_part.done":
			if at(e.data, "part", "text") != texts[id] {
				t.Errorf("part %v, deltas %q", e.data["part"], texts[id])
			}
		case "response.output_item.done":
			if item["id"] != items[index]["id"] || item["status"] == "in_progress" {
				t.Errorf("item %v ends as %v", items[index], item)
			}
			items[index] = item
		}
	}
	last := events[len(events)-1]
	p, _ := last.data["response"].(map[string]any)
	for i, e := range events {
		first := at(events[0].data, "response", "id")
		if r := e.data["response"]; r != nil && at(r, "id") != first {
			t.Errorf("event %d is of response %v, not %v", i, at(r, "id"), first)
		}
	}
	return p
}

// noNullArrays looks for arrays that are null: clients go through them.
func noNullArrays(t testing.TB, v any) {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		for key, x := range v {
			switch key {
			case "content", "output", "tools", "annotations", "summary", "logprobs":
				if _, ok := x.([]any); !ok && !(key == "summary" && v["type"] == nil) {
					t.Errorf("%s is %v", key, x)
				}
			}
			noNullArrays(t, x)
		}
	case []any:
		for _, x := range v {
			noNullArrays(t, x)
		}
	}
}

// withoutIDs is a value without what is new in every reply.
func withoutIDs(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range []string{"id", "created_at"} {
			delete(v, key)
		}
		for _, x := range v {
			withoutIDs(x)
		}
	case []any:
		for _, x := range v {
			withoutIDs(x)
		}
	}
	return v
}

// TestResponsesOrder: the events of a response, each in its place.
func TestResponsesOrder(t *testing.T) {
	message := func(i int, text string) []string {
		return []string{fmt.Sprintf("output_item.added %d message in_progress", i), fmt.Sprintf("content_part.added %d output_text", i), fmt.Sprintf("output_text.delta %d %q", i, text),
			fmt.Sprintf("output_text.done %d %q", i, text), fmt.Sprintf("content_part.done %d output_text", i), fmt.Sprintf("output_item.done %d message completed", i)}
	}
	call := func(i int) []string {
		a := fmt.Sprintf("%q", `{"a": 1}`)
		return []string{fmt.Sprintf("output_item.added %d function_call in_progress", i), fmt.Sprintf("function_call_arguments.delta %d %s", i, a),
			fmt.Sprintf("function_call_arguments.done %d %s", i, a), fmt.Sprintf("output_item.done %d function_call completed", i)}
	}
	thought := []string{"output_item.added 0 reasoning in_progress", "content_part.added 0 reasoning_text", `reasoning_text.delta 0 "hmm"`,
		`reasoning_text.done 0 "hmm"`, "content_part.done 0 reasoning_text", "output_item.done 0 reasoning completed"}
	join := func(lists ...[]string) (all []string) {
		for _, l := range lists {
			all = append(all, l...)
		}
		return all
	}
	for _, c := range []struct {
		name, more string
		script     *script
		want       []string
		end        string
	}{
		{"text", "", &script{pieces: []string{"Hi ", "there"}}, message(0, "Hi there"), "completed"},
		{"nothing", "", &script{}, nil, "completed"},
		{"limit", "", &script{pieces: []string{"Hi"}, limit: true}, strings.Split(strings.Replace(strings.Join(message(0, "Hi"), "\n"), "completed", "incomplete", 1), "\n"), "incomplete"},
		{"thinking", "", &script{pieces: []string{"<think>\nhm", "m\n</think>\n\nyes"}}, join(thought, message(1, "yes")), "completed"},
		{"calls", "," + responsesAdder, &script{pieces: []string{addCall, addCall}}, join(call(0), call(1)), "completed"},
		{"all", "," + responsesAdder, &script{pieces: []string{"<think>\nhmm\n</think>\n\nSo " + addCall + " done"}}, join(thought, message(1, "So"), call(2), message(3, " \n done")), "completed"},
		{"a call at the limit", "," + responsesAdder, &script{pieces: []string{addCall}, limit: true}, call(0), "incomplete"},
		{"a call that is cut", "," + responsesAdder, &script{pieces: []string{addCall[:45]}, limit: true}, []string{
			"output_item.added 0 function_call in_progress", `function_call_arguments.delta 0 "{\"a\""`, `function_call_arguments.done 0 "{\"a\""`, "output_item.done 0 function_call incomplete"}, "incomplete"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := serving(t, c.script, Options{})
			body := `{"input":"hello","seed":5` + c.more
			w, data := ask(t, h, "POST", "/v1/responses", body+`,"stream":true}`)
			if w.StatusCode != 200 || w.Header.Get("Content-Type") != "text/event-stream" {
				t.Fatalf("%d %s", w.StatusCode, data)
			}
			events := namedEvents(t, data)
			last := followResponse(t, events)
			lines := outline(events)
			want := join([]string{"created", "in_progress"}, c.want, []string{c.end})
			if got := strings.Join(lines, "\n"); got != strings.Join(want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
			}
			if last["status"] != c.end || (last["incomplete_details"] != nil) != (c.end == "incomplete") || at(last, "usage", "output_tokens").(float64) < 1 {
				t.Errorf("%v", last)
			}
			_, data = ask(t, h, "POST", "/v1/responses", body+"}")
			whole := object(t, data)
			noNullArrays(t, whole)
			if got, want := text(withoutIDs(last)), text(withoutIDs(whole)); got != want {
				t.Errorf("streamed %s\nwhole %s", got, want)
			}
		})
	}
}

// TestResponsesCuts: how an answer is cut into steps changes nothing of what it is.
func TestResponsesCuts(t *testing.T) {
	answer := "<think>\nhm 😀\n</think>\n\nbefore é\n" + addCall + "\n" + strings.Replace(addCall, "1", `"\u00e9 \"x"`, 1) + " after <tool"
	body := `{"input":"hello","seed":5,` + responsesAdder
	_, data := ask(t, serving(t, &script{pieces: []string{answer}}, Options{}), "POST", "/v1/responses", body+"}")
	want := object(t, data)
	if len(list(want["output"])) != 5 {
		t.Fatalf("%s", data)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		s := &script{pieces: cut(r, answer)}
		_, data := ask(t, serving(t, s, Options{}), "POST", "/v1/responses", body+`,"stream":true}`)
		got := followResponse(t, namedEvents(t, data))
		if text(withoutIDs(got)) != text(withoutIDs(want)) {
			t.Fatalf("cut %q:\n%s\nwant\n%s", s.pieces, text(got), text(want))
		}
	}
}

// TestResponsesInput: what becomes of items, as the template has them.
func TestResponsesInput(t *testing.T) {
	for name, c := range map[string][2]string{
		"text":         {`"input":"a"`, "|user\na|"},
		"instructions": {`"instructions":"s","input":"a"`, "|system\ns|user\na|"},
		"developer":    {`"input":[{"role":"developer","content":"d"},{"type":"message","role":"user","content":"a"}]`, "|system\nd|user\na|"},
		"both":         {`"instructions":"s","input":[{"role":"developer","content":[{"type":"input_text","text":"d"}]},{"role":"system","content":"e"},{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]}]`, "|system\ns\nd\ne|user\na\nb|"},
		"later":        {`"input":[{"role":"user","content":"a"},{"role":"developer","content":"d"},{"role":"user","content":"b"}]`, "|user\na|system\nd|user\nb|"},
		"turns": {`"input":[{"role":"user","content":"a"},
			{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"hm"}],"encrypted_content":null},
			{"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[{"type":"output_text","text":"b","annotations":[],"logprobs":[]}]},
			{"type":"function_call","id":"fc_1","status":"completed","call_id":"call_1","name":"add","arguments":"{\"a\":1}"},
			{"type":"function_call","call_id":"call_2","name":"add","arguments":""},
			{"type":"function_call_output","call_id":"call_1","output":"1"},{"type":"function_call_output","call_id":"call_2","output":[{"type":"input_text","text":"2"}]},
			{"type":"reasoning","id":"rs_2","summary":[{"type":"summary_text","text":"x"}]},{"role":"assistant","content":"c"},{"role":"assistant","content":"d"},{"role":"user","content":"e"}]`,
			`|user
a|assistant
b[{"id": "call_1", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}, {"id": "call_2", "type": "function", "function": {"name": "add", "arguments": {}}}]|tool
1|tool
2|assistant
c|assistant
d|user
e|`},
	} {
		s := &script{pieces: []string{"x"}}
		w, data := ask(t, serving(t, s, Options{}), "POST", "/v1/responses", "{"+c[0]+"}")
		if w.StatusCode != 200 {
			t.Errorf("%s: %s", name, data)
			continue
		}
		prompt := strings.NewReplacer("<|im_end|>\n", "", "<|im_start|>", "|").Replace(s.prompt(t))
		if want := c[1] + "assistant\n"; prompt != want {
			t.Errorf("%s: prompt %q, want %q", name, prompt, want)
		}
	}
}

// TestResponsesFields: what is obeyed, and what a response repeats.
func TestResponsesFields(t *testing.T) {
	s := &script{pieces: []string{"x"}}
	s.cached = 2
	w, data := ask(t, serving(t, s, Options{}), "POST", "/v1/responses", `{"input":"a","store":true,"instructions":"s","max_output_tokens":9,"temperature":0.5,"top_p":0.25,"metadata":{"k":"v"},"user":"u","text":{"verbosity":"low"},
		"reasoning":{"effort":"none","summary":"auto"},"include":["reasoning.encrypted_content"],"truncation":"disabled","previous_response_id":null,"stream":false,"wibble":1,
		"tools":[{"type":"web_search"},{"type":"function","name":"add","parameters":{"type":"object"},"strict":false},{"type":"custom","name":"patch"}],"tool_choice":"auto"}`)
	if w.StatusCode != 200 {
		t.Fatalf("%s", data)
	}
	q, p := s.requests[0], object(t, data)
	if q.Options.MaxTokens != 9 || q.Options.Sampling.Temperature != 0.5 || !strings.HasSuffix(s.prompt(t), "<think>\n\n</think>\n\n") || strings.Contains(s.prompt(t), "patch") || !strings.Contains(s.prompt(t), `"name": "add"`) {
		t.Errorf("%+v %s", q.Options, s.prompt(t))
	}
	want := map[string]any{"object": "response", "status": "completed", "store": false, "instructions": "s", "max_output_tokens": 9.0, "temperature": 0.5, "top_p": 0.25, "user": "u",
		"parallel_tool_calls": true, "tool_choice": "auto", "truncation": "disabled", "background": false, "model": "fake/model"}
	for key, v := range want {
		if p[key] != v {
			t.Errorf("%s is %v, want %v", key, p[key], v)
		}
	}
	for _, key := range []string{"error", "incomplete_details", "previous_response_id"} {
		if !has(p, key) || p[key] != nil {
			t.Errorf("%s is %v, want null", key, p[key])
		}
	}
	if at(p, "reasoning", "effort") != "none" || at(p, "metadata", "k") != "v" || at(p, "text", "format", "type") != "text" || len(list(p["tools"])) != 1 {
		t.Errorf("%s", data)
	}
	if u := p["usage"]; at(u, "input_tokens_details", "cached_tokens") != 2.0 || at(u, "output_tokens_details", "reasoning_tokens") != 0.0 || at(u, "total_tokens") != at(u, "input_tokens").(float64)+at(u, "output_tokens").(float64) {
		t.Errorf("usage %v", u)
	}
	if got := fmt.Sprint(w.Header.Values("Windrow-Ignored")); got != "[wibble tools[0] tools[2]]" {
		t.Errorf("ignored %s", got)
	}
}

// TestResponsesRefused: what cannot be obeyed is 400 and names its field.
func TestResponsesRefused(t *testing.T) {
	h := serving(t, &script{pieces: []string{"x"}}, Options{})
	item := func(s string) string { return `"input":[` + s + `]` }
	const good = `"input":"a"`
	for body, param := range map[string]string{
		`"x":1`:                               "input",
		`"input":[]`:                          "input",
		`"input":7`:                           "input",
		item(`"a"`):                           "input[0]",
		item(`{"role":"king","content":"a"}`): "input[0].role",
		item(`{"role":"user"}`):               "input[0].content",
		item(`{"role":"user","content":[{"type":"input_image","image_url":"x"}]}`):    "input[0].content[0].type",
		item(`{"type":"item_reference","id":"msg_1"}`):                                "input[0].type",
		item(`{"type":"web_search_call"}`):                                            "input[0].type",
		item(`{"type":"function_call","call_id":"c"}`):                                "input[0].name",
		item(`{"type":"function_call_output","output":7}`):                            "input[0].output",
		item(`{"type":"reasoning","content":[{"type":"text"}]}`):                      "input[0].content[0].type",
		good + `,"previous_response_id":"resp_1"`:                                     "previous_response_id",
		good + `,"conversation":"conv_1"`:                                             "conversation",
		good + `,"prompt":{"id":"p"}`:                                                 "prompt",
		good + `,"background":true`:                                                   "background",
		good + `,"truncation":"auto"`:                                                 "truncation",
		good + `,"max_output_tokens":0`:                                               "max_output_tokens",
		good + `,"text":{"format":{"type":"x"}}`:                                      "text.format.type",
		good + `,"text":{"format":{"type":"json_schema","name":"a"}}`:                 "text.format.schema",
		good + `,"text":"a"`:                                                          "text",
		good + `,"reasoning":{"effort":7}`:                                            "reasoning.effort",
		good + `,"tools":[{"type":"function"}]`:                                       "tools[0].name",
		good + `,"tools":[{}]`:                                                        "tools[0].type",
		good + "," + responsesAdder + `,"tool_choice":{"type":"function","name":"x"}`: "tool_choice.name",
		good + "," + responsesAdder + `,"tool_choice":{"type":"web_search"}`:          "tool_choice.type",
		good + "," + responsesAdder + `,"tool_choice":"x"`:                            "tool_choice",
		good + `,"mode":"wedlm","text":{"format":{"type":"json_object"}}`:             "text.format",
		good + `,"regex":"a","text":{"format":{"type":"json_object"}}`:                "text.format",
	} {
		w, data := ask(t, h, "POST", "/v1/responses", "{"+body+"}")
		v := object(t, data)
		if w.StatusCode != 400 || at(v, "error", "param") != param || at(v, "error", "type") != "invalid_request_error" {
			t.Errorf("%.90s: %d %s, want 400 of %s", body, w.StatusCode, data, param)
		}
	}
	if w, data := ask(t, h, "GET", "/v1/responses/resp_1", ""); w.StatusCode != 404 {
		t.Errorf("a response that was not kept: %d %s", w.StatusCode, data)
	}
	w, data := ask(t, h, "POST", "/v1/responses", `{"input":"a","max_output_tokens":1000,"stream":true}`)
	if v := object(t, data); w.StatusCode != 400 || at(v, "error", "code") != "context_length_exceeded" {
		t.Errorf("too long: %d %s", w.StatusCode, data)
	}
	w, data = ask(t, serving(t, &script{submit: &schedule.FullError{What: "the queue", RetryAfter: time.Second}}, Options{}), "POST", "/v1/responses", "{"+good+"}")
	if v := object(t, data); w.StatusCode != 429 || at(v, "error", "code") != "queue_full" {
		t.Errorf("full: %d %s", w.StatusCode, data)
	}
}

// TestResponsesBroken: what is no call after all is text; nobody is told that a call ended.
func TestResponsesBroken(t *testing.T) {
	s := &script{pieces: []string{"<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": oops"}}
	_, data := ask(t, serving(t, s, Options{}), "POST", "/v1/responses", `{"input":"a","stream":true,`+responsesAdder+"}")
	events := namedEvents(t, data)
	last := followResponse(t, events)
	for _, e := range events {
		if e.name == "response.function_call_arguments.done" || e.name == "response.output_item.done" && at(e.data, "item", "type") == "function_call" {
			t.Errorf("%v", e)
		}
	}
	if len(list(last["output"])) != 1 || !strings.Contains(fmt.Sprint(at(last, "output", 0, "content", 0, "text")), "oops") {
		t.Errorf("%s", data)
	}
}

// TestResponsesMalformed: a good request that is cut or spoiled at any byte is refused.
func TestResponsesMalformed(t *testing.T) {
	spoil(t, "/v1/responses", `{"input":[{"role":"user","content":"a"}],"instructions":"s",`+responsesAdder+`,"temperature":0.5,"stream":false,"text":{"format":{"type":"text"}}}`)
}

// TestResponsesTypes: no field takes a value of another type.
func TestResponsesTypes(t *testing.T) {
	retype(t, "/v1/responses", `{"model":"fake/model","instructions":"s","max_output_tokens":9,"stream":false,"store":true,"temperature":0.5,"top_p":0.5,"background":false,"truncation":"disabled",
		"metadata":{},"user":"u","include":["x"],"parallel_tool_calls":true,"text":{"format":{"type":"json_schema","name":"a","schema":{"type":"object"},"strict":true}},"reasoning":{"effort":"none","summary":"auto"},"max_tool_calls":1,
		"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]},{"type":"reasoning","summary":[{"type":"summary_text","text":"s"}],"content":[{"type":"reasoning_text","text":"t"}]},
			{"type":"function_call","call_id":"c","name":"add","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"1"}]}]}`,
		"text.format.schema boolean", "input string", "input.0.content string", "input.3.output string")
	retype(t, "/v1/responses", `{"input":"a","tools":[{"type":"function","name":"add","description":"d","parameters":{"type":"object"},"strict":false}],"tool_choice":"auto"}`,
		"tools.0.parameters.type")
}

// TestResponsesFailed: an error in a stream is the last event.
func TestResponsesFailed(t *testing.T) {
	_, data := ask(t, serving(t, &script{pieces: []string{"Hi"}, fail: errors.New("a fault")}, Options{}), "POST", "/v1/responses", `{"input":"a","stream":true}`)
	events := namedEvents(t, data)
	p := followResponse(t, events)
	if last := events[len(events)-1]; last.name != "response.failed" || p["status"] != "failed" || at(p, "error", "code") != "server_error" || at(p, "error", "message") == "" {
		t.Errorf("%s", data)
	}
	s := &script{wait: make(chan struct{}), pieces: []string{"x"}}
	h := serving(t, s, Options{KeepAlive: 20 * time.Millisecond})
	data = askPinged(t, h, s, "/v1/responses", `{"input":"a","stream":true}`, ": ping\n", 2)
	if !strings.HasPrefix(string(data), ": ping\n: ping\n") || strings.Contains(string(data), ": ping\n\n") {
		t.Errorf("%q", data)
	}
	followResponse(t, namedEvents(t, data))
}
