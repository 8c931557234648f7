package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"windrow/schedule"
)

// named is an event that has a name.
type named struct {
	name string
	data map[string]any
}

// namedEvents reads a stream of named events; its comments end in one newline.
func namedEvents(t testing.TB, data []byte) (list []named) {
	t.Helper()
	for part := range strings.SplitSeq(strings.TrimSuffix(string(data), "\n\n"), "\n\n") {
		for strings.HasPrefix(part, ": ping\n") {
			part = strings.TrimPrefix(part, ": ping\n")
		}
		name, payload, ok := strings.Cut(part, "\ndata: ")
		name, named1 := strings.CutPrefix(name, "event: ")
		if !ok || !named1 || strings.Contains(payload, "\n") {
			t.Fatalf("event %q", part)
		}
		e := named{name, object(t, []byte(payload))}
		if e.data["type"] != name {
			t.Errorf("event %s has type %v", name, e.data["type"])
		}
		list = append(list, e)
	}
	return list
}

// told is a short form of events of /v1/messages.
func told(list []named) (lines []string) {
	for _, e := range list {
		line := e.name
		if i, ok := e.data["index"]; ok {
			line += fmt.Sprint(" ", i)
		}
		for _, key := range []string{"content_block", "delta"} {
			if v, ok := e.data[key].(map[string]any); ok && v["type"] != nil {
				line += fmt.Sprint(" ", v["type"])
				for _, text := range []string{"text", "thinking", "partial_json", "name"} {
					if s, ok := v[text].(string); ok && s != "" {
						line += fmt.Sprintf(" %q", s)
					}
				}
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// accumulate makes the whole answer of a stream, as clients do.
func accumulate(t testing.TB, events []named) map[string]any {
	t.Helper()
	var message map[string]any
	var blocks []any
	var partial string
	open := -1
	for i, e := range events {
		index, _ := e.data["index"].(float64)
		switch e.name {
		case "ping":
		case "message_start":
			if message != nil {
				t.Fatal("two beginnings")
			}
			message = e.data["message"].(map[string]any)
			if u, ok := at(message, "usage", "input_tokens").(float64); !ok || u <= 0 || len(list(message["content"])) != 0 || message["stop_reason"] != nil {
				t.Errorf("beginning %v", message)
			}
		case "content_block_start":
			if open >= 0 || int(index) != len(blocks) {
				t.Fatalf("block %v begins while %d is open of %d", index, open, len(blocks))
			}
			open, partial = int(index), ""
			blocks = append(blocks, e.data["content_block"])
		case "content_block_delta":
			if open != int(index) {
				t.Fatalf("delta of %v in %d", index, open)
			}
			b, d := blocks[open].(map[string]any), e.data["delta"].(map[string]any)
			switch d["type"] {
			case "text_delta":
				b["text"] = b["text"].(string) + d["text"].(string)
			case "thinking_delta":
				b["thinking"] = b["thinking"].(string) + d["thinking"].(string)
			case "signature_delta":
				b["signature"] = b["signature"].(string) + d["signature"].(string)
			case "input_json_delta":
				partial += d["partial_json"].(string)
			default:
				t.Fatalf("delta %v", d)
			}
		case "content_block_stop":
			if open != int(index) {
				t.Fatalf("end of %v in %d", index, open)
			}
			if b := blocks[open].(map[string]any); b["type"] == "tool_use" {
				b["input"] = object(t, []byte(partial))
			}
			open = -1
		case "message_delta":
			for key, v := range e.data["delta"].(map[string]any) {
				message[key] = v
			}
			message["usage"] = e.data["usage"]
		case "message_stop":
			if i != len(events)-1 || open >= 0 {
				t.Fatal("it does not end at the end")
			}
		default:
			t.Fatalf("event %v", e)
		}
	}
	message["content"] = blocks
	return message
}

const anthropicHello = `"max_tokens":100,"messages":[{"role":"user","content":"hello"}]`
const anthropicAdder = `"tools":[{"name":"add","description":"adds","input_schema":{"type":"object"}}]`

// prompt is the text of a script's only request.
func (s *script) prompt(t testing.TB) string {
	t.Helper()
	if len(s.requests) == 0 {
		t.Fatal("no request came")
	}
	return tokens(t, toolTemplate).Decode(s.requests[len(s.requests)-1].Prompt, false)
}

// TestAnthropicOrder: the events of an answer, each in its place.
func TestAnthropicOrder(t *testing.T) {
	thinking := `,"thinking":{"type":"enabled","budget_tokens":90}`
	for _, c := range []struct {
		name, more string
		script     *script
		want       []string
		reason     string
		stop       any
	}{
		{"text", "", &script{pieces: []string{"Hi ", "there"}}, []string{
			"content_block_start 0 text", `content_block_delta 0 text_delta "Hi "`, `content_block_delta 0 text_delta "there"`, "content_block_stop 0"}, "end_turn", nil},
		{"nothing", "", &script{}, nil, "end_turn", nil},
		{"limit", "", &script{pieces: []string{"Hi"}, limit: true}, []string{
			"content_block_start 0 text", `content_block_delta 0 text_delta "Hi"`, "content_block_stop 0"}, "max_tokens", nil},
		{"stop", `,"stop_sequences":["xx","the"]`, &script{pieces: []string{"Hi ", "there"}}, []string{
			"content_block_start 0 text", `content_block_delta 0 text_delta "Hi "`, "content_block_stop 0"}, "stop_sequence", "the"},
		{"thinking", thinking, &script{pieces: []string{"<think>\nhm", "m\n</think>\n\nyes"}}, []string{
			"content_block_start 0 thinking", `content_block_delta 0 thinking_delta "hm"`, `content_block_delta 0 thinking_delta "m"`, "content_block_delta 0 signature_delta", "content_block_stop 0",
			"content_block_start 1 text", `content_block_delta 1 text_delta "yes"`, "content_block_stop 1"}, "end_turn", nil},
		{"calls", "," + anthropicAdder, &script{pieces: []string{"So: " + addCall, addCall}}, []string{
			"content_block_start 0 text", `content_block_delta 0 text_delta "So:"`, "content_block_stop 0",
			`content_block_start 1 tool_use "add"`, `content_block_delta 1 input_json_delta "{\"a\": 1}"`, "content_block_stop 1",
			`content_block_start 2 tool_use "add"`, `content_block_delta 2 input_json_delta "{\"a\": 1}"`, "content_block_stop 2"}, "tool_use", nil},
		{"thinking, text, call, text", thinking + "," + anthropicAdder, &script{pieces: []string{"<think>\nhm\n</think>\n\nSo " + addCall + " done"}}, []string{
			"content_block_start 0 thinking", `content_block_delta 0 thinking_delta "hm"`, "content_block_delta 0 signature_delta", "content_block_stop 0",
			"content_block_start 1 text", `content_block_delta 1 text_delta "So"`, "content_block_stop 1",
			`content_block_start 2 tool_use "add"`, `content_block_delta 2 input_json_delta "{\"a\": 1}"`, "content_block_stop 2",
			"content_block_start 3 text", `content_block_delta 3 text_delta " \n done"`, "content_block_stop 3"}, "tool_use", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := serving(t, c.script, Options{})
			w, data := ask(t, h, "POST", "/v1/messages?beta=true", "{"+anthropicHello+c.more+`,"seed":5,"stream":true}`)
			if w.StatusCode != 200 || w.Header.Get("Content-Type") != "text/event-stream" {
				t.Fatalf("%d %s", w.StatusCode, data)
			}
			events := namedEvents(t, data)
			lines := told(events)
			n := len(lines)
			if lines[0] != "message_start" || n < 3 || lines[n-2] != "message_delta" || lines[n-1] != "message_stop" {
				t.Fatalf("%q", lines)
			}
			if got := joinTexts(lines[1 : n-2]); fmt.Sprint(got) != fmt.Sprint(joinTexts(c.want)) {
				t.Errorf("got  %q\nwant %q", got, joinTexts(c.want))
			}
			streamed := accumulate(t, events)
			if streamed["stop_reason"] != c.reason || streamed["stop_sequence"] != c.stop || !has(streamed, "stop_sequence") {
				t.Errorf("ended by %v, %v", streamed["stop_reason"], streamed["stop_sequence"])
			}
			_, data = ask(t, h, "POST", "/v1/messages", "{"+anthropicHello+c.more+`,"seed":5}`)
			whole := object(t, data)
			for _, key := range []string{"id", "windrow"} {
				delete(whole, key)
				delete(streamed, key)
			}
			if got, want := text(streamed["content"]), text(whole["content"]); got != want {
				t.Errorf("streamed %s, whole %s", got, want)
			}
			delete(whole, "content")
			delete(streamed, "content")
			if !reflect.DeepEqual(whole, streamed) {
				t.Errorf("streamed %v, whole %v", streamed, whole)
			}
		})
	}
}

// joinTexts makes one line of neighbours that are deltas of one block.
func joinTexts(lines []string) (list []string) {
	for _, line := range lines {
		key, text, ok := strings.Cut(line, ` "`)
		if n := len(list); ok && n > 0 && strings.Contains(line, "delta") && strings.HasPrefix(list[n-1], key+` "`) {
			list[n-1] = strings.TrimSuffix(list[n-1], `"`) + text
			continue
		}
		list = append(list, line)
	}
	return list
}

// text is a value as JSON.
func text(v any) string {
	if v == nil || reflect.ValueOf(v).Kind() == reflect.Slice && reflect.ValueOf(v).Len() == 0 {
		return "[]"
	}
	data, _ := json.Marshal(v)
	return string(data)
}

// TestAnthropicCuts: how an answer is cut into steps changes nothing of what it is.
func TestAnthropicCuts(t *testing.T) {
	answer := "<think>\nhm 😀\n</think>\n\nbefore é\n" + addCall + "\n" + strings.Replace(addCall, "1", `"\u00e9 \"x"`, 1) + " after <tool"
	body := "{" + anthropicHello + "," + anthropicAdder + `,"thinking":{"type":"adaptive"},"seed":3`
	_, data := ask(t, serving(t, &script{pieces: []string{answer}}, Options{}), "POST", "/v1/messages", body+"}")
	want := object(t, data)
	if len(list(want["content"])) != 5 {
		t.Fatalf("%s", data)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		s := &script{pieces: cut(r, answer)}
		_, data := ask(t, serving(t, s, Options{}), "POST", "/v1/messages", body+`,"stream":true}`)
		got := accumulate(t, namedEvents(t, data))
		if text(got["content"]) != text(want["content"]) || got["stop_reason"] != want["stop_reason"] {
			t.Fatalf("cut %q: %s, want %s", s.pieces, text(got["content"]), text(want["content"]))
		}
	}
}

// cut cuts a text anywhere between characters.
func cut(r *rand.Rand, s string) (pieces []string) {
	piece := ""
	for _, c := range s {
		piece += string(c)
		if r.IntN(5) == 0 {
			pieces, piece = append(pieces, piece), ""
		}
	}
	return append(pieces, piece)
}

// TestAnthropicConversation: what becomes of messages, as the template has them.
func TestAnthropicConversation(t *testing.T) {
	for name, c := range map[string][2]string{
		"text":                       {`"messages":[{"role":"user","content":"a"}]`, "|user\na|"},
		"system":                     {`"system":"s","messages":[{"role":"user","content":"a"}]`, "|system\ns|user\na|"},
		"blocks":                     {`"system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}},{"type":"text","text":"t"}],"messages":[{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},{"type":"text","text":"b"}]}]`, "|system\ns\nt|user\na\nb|"},
		"billing":                    {`"system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=1; cch=9;"},{"type":"text","text":"s"}],"messages":[{"role":"user","content":"a"}]`, "|system\ns|user\na|"},
		"billing in a text":          {`"system":"x-anthropic-billing-header: 1;\ns","messages":[{"role":"user","content":"a"}]`, "|system\ns|user\na|"},
		"billing alone":              {`"system":[{"type":"text","text":"x-anthropic-billing-header: 1"}],"messages":[{"role":"user","content":"a"}]`, "|user\na|"},
		"system first":               {`"system":"s","messages":[{"role":"system","content":"t"},{"role":"user","content":"a"}]`, "|system\ns\nt|user\na|"},
		"system first, alone":        {`"messages":[{"role":"system","content":"t"},{"role":"user","content":"a"}]`, "|system\nt|user\na|"},
		"system inside":              {`"system":"s","messages":[{"role":"user","content":"a"},{"role":"system","content":[{"type":"text","text":"t"}]},{"role":"user","content":"b"}]`, "|system\ns|user\na\nt\nb|"},
		"system behind an assistant": {`"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"system","content":"t"}]`, "|user\na|assistant\nb|user\nt|"},
		"assistant":                  {`"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"text","text":"b "},{"type":"text","text":"c"}]},{"role":"user","content":"d"}]`, "|user\na|assistant\nb c|user\nd|"},
		"calls": {`"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"x"},{"type":"redacted_thinking","data":"x"},{"type":"text","text":"b"},{"type":"tool_use","id":"toolu_1","name":"add","input":{"z":1,"a":"é"}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"2"},{"type":"tool_result","tool_use_id":"toolu_2","is_error":true,"content":[{"type":"text","text":"x"},{"type":"text","text":"y"}]},{"type":"tool_result","tool_use_id":"toolu_3"},{"type":"text","text":"go on"}]}]`,
			`|user
a|assistant
b[{"id": "toolu_1", "type": "function", "function": {"name": "add", "arguments": {"z": 1, "a": "é"}}}]|tool
2|tool
x
y|tool
|user
go on|`},
	} {
		s := &script{pieces: []string{"x"}}
		w, data := ask(t, serving(t, s, Options{}), "POST", "/v1/messages", `{"max_tokens":9,`+c[0]+"}")
		if w.StatusCode != 200 {
			t.Errorf("%s: %s", name, data)
			continue
		}
		prompt := strings.NewReplacer("<|im_end|>\n", "", "<|im_start|>", "|").Replace(s.prompt(t))
		if want := c[1] + "assistant\n<think>\n\n</think>\n\n"; prompt != want {
			t.Errorf("%s: prompt %q, want %q", name, prompt, want)
		}
		_, data = ask(t, serving(t, s, Options{}), "POST", "/v1/messages/count_tokens?beta=true", "{"+c[0]+"}")
		if got := at(object(t, data), "input_tokens"); got != float64(len(s.requests[0].Prompt)) {
			t.Errorf("%s: counted %v, the prompt has %d", name, got, len(s.requests[0].Prompt))
		}
	}
}

// TestAnthropicTools: tools come to the template in the form that it knows.
func TestAnthropicTools(t *testing.T) {
	s := &script{pieces: []string{"x"}}
	h := serving(t, s, Options{})
	ask(t, h, "POST", "/v1/messages", "{"+anthropicHello+`,"tools":[{"type":"custom","name":"add","description":"a < b","input_schema":{"type":"object","properties":{"z":{},"a":{}}}}],"tool_choice":{"type":"auto"}}`)
	if want := `[{"type": "function", "function": {"name": "add", "description": "a < b", "parameters": {"type": "object", "properties": {"z": {}, "a": {}}}}}]`; !strings.Contains(s.prompt(t), want) {
		t.Errorf("%s", s.prompt(t))
	}
	ask(t, h, "POST", "/v1/messages", "{"+anthropicHello+","+anthropicAdder+`,"tool_choice":{"type":"none"}}`)
	if strings.Contains(s.prompt(t), "adds") {
		t.Errorf("%s", s.prompt(t))
	}
}

// TestAnthropicRefused: what cannot be obeyed is 400, in the API's form, and names its field.
func TestAnthropicRefused(t *testing.T) {
	h := serving(t, &script{pieces: []string{"x"}}, Options{})
	block := func(b string) string { return `"messages":[{"role":"user","content":[` + b + `]}]` }
	said := func(b string) string {
		return `"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[` + b + `]},{"role":"user","content":"b"}]`
	}
	for body, field := range map[string]string{
		`"x":1`:         "messages: ",
		`"messages":[]`: "messages: ",
		`"messages":[{"role":"tool","content":"a"}]`:                                             "messages[0].role: ",
		`"messages":[{"role":"user"}]`:                                                           "messages[0].content: ",
		`"messages":[{"role":"user","content":[]}]`:                                              "messages[0].content: ",
		`"messages":[{"role":"user","content":7}]`:                                               "messages[0].content: ",
		`"messages":[{"role":"user","content":["a"]}]`:                                           "messages[0].content[0]: ",
		`"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]`:          "messages[1]: ",
		block(`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"x"}}`): "messages[0].content[0].type: ",
		block(`{"type":"document","source":{}}`):                                                 "messages[0].content[0].type: ",
		block(`{"type":"text","text":1}`):                                                        "messages[0].content[0].text: ",
		block(`{"type":"tool_result","tool_use_id":"a","content":[{"type":"image"}]}`):           "messages[0].content[0].content[0].type: ",
		block(`{"type":"tool_use","name":"a"}`):                                                  "messages[0].content[0].type: ",
		said(`{"type":"tool_use","id":"a","input":{}}`):                                          "messages[1].content[0].name: ",
		said(`{"type":"tool_use","id":"a","name":"b","input":"{}"}`):                             "messages[1].content[0].input: ",
		said(`{"type":"server_tool_use"}`):                                                       "messages[1].content[0].type: ",
		anthropicHello + `,"system":7`:                                                           "system: ",
		anthropicHello + `,"system":[{"type":"image"}]`:                                          "system[0].type: ",
		anthropicHello + `,"max_tokens":0`:                                                       "max_tokens: ",
		anthropicHello + `,"stop_sequences":[""]`:                                                "stop_sequences: ",
		anthropicHello + `,"thinking":true`:                                                      "thinking: ",
		anthropicHello + `,"thinking":{"type":"x"}`:                                              "thinking.type: ",
		anthropicHello + `,"thinking":{"type":"enabled"}`:                                        "thinking.budget_tokens: ",
		anthropicHello + `,"thinking":{"type":"enabled","budget_tokens":0}`:                      "thinking.budget_tokens: ",
		anthropicHello + `,"thinking":{"type":"enabled","budget_tokens":100}`:                    "thinking.budget_tokens: ",
		anthropicHello + `,"thinking":{"type":"enabled","budget_tokens":9},"mode":"wedlm"`:       "mode: ",
		anthropicHello + `,"tools":[{"name":"a"}]`:                                               "tools[0].input_schema: ",
		anthropicHello + `,"tools":[{"name":"","input_schema":{}}]`:                              "tools[0].name: ",
		anthropicHello + `,"tools":[{"type":"web_search_20250305","name":"a"}]`:                  "tools[0].type: ",
		anthropicHello + "," + anthropicAdder + `,"tool_choice":{"type":"tool","name":"x"}`:      "tool_choice.name: ",
		anthropicHello + "," + anthropicAdder + `,"tool_choice":"auto"`:                          "tool_choice: ",
		anthropicHello + "," + anthropicAdder + `,"tool_choice":{"type":"x"}`:                    "tool_choice.type: ",
		anthropicHello + `,"mcp_servers":[{}]`:                                                   "mcp_servers: ",
		anthropicHello + `,"output_config":{"format":{"type":"x"}}`:                              "output_config.format.type: ",
		anthropicHello + `,"output_config":{"format":{"type":"json_schema"}}`:                    "output_config.format.schema: ",
	} {
		w, data := ask(t, h, "POST", "/v1/messages", "{"+body+"}")
		v := object(t, data)
		message, _ := at(v, "error", "message").(string)
		if w.StatusCode != 400 || v["type"] != "error" || at(v, "error", "type") != "invalid_request_error" || !strings.HasPrefix(message, field) || v["request_id"] != w.Header.Get("Request-Id") {
			t.Errorf("%.90s: %d %s, want 400 of %s", body, w.StatusCode, data, field)
		}
	}
}

// TestAnthropicErrors are the errors of the other kinds, before and in a stream.
func TestAnthropicErrors(t *testing.T) {
	keys := new(Keys)
	if err := keys.Add("ann", "secret-of-ann"); err != nil {
		t.Fatal(err)
	}
	good := "{" + anthropicHello + "}"
	for _, c := range []struct {
		name    string
		script  *script
		o       Options
		method  string
		path    string
		body    string
		header  []string
		status  int
		kind    string
		message string
	}{
		{name: "too long", body: `{"messages":[{"role":"user","content":"a"}],"max_tokens":1000}`, status: 400, kind: "invalid_request_error", message: "input length and `max_tokens` exceed context limit: "},
		{name: "a prompt too long", body: `{"messages":[{"role":"user","content":"` + strings.Repeat("a b ", 900) + `"}]}`, status: 400, kind: "invalid_request_error", message: "prompt is too long: "},
		{name: "no key", o: Options{Keys: keys}, body: good, status: 401, kind: "authentication_error"},
		{name: "a wrong key", o: Options{Keys: keys}, body: good, header: []string{"X-Api-Key", "secret-of-bob"}, status: 401, kind: "authentication_error"},
		{name: "another host", body: good, header: []string{"Host", "evil.example"}, status: 403, kind: "permission_error"},
		{name: "a model", body: `{"model":"claude",` + anthropicHello + `}`, status: 404, kind: "not_found_error"},
		{name: "a path", path: "/v1/messages/batches", body: good, status: 404, kind: "not_found_error"},
		{name: "a method", method: "GET", status: 405, kind: "invalid_request_error"},
		{name: "a body", body: strings.Repeat(" ", maxBody+1), status: 413, kind: "request_too_large"},
		{name: "no JSON", body: "{", status: 400, kind: "invalid_request_error"},
		{name: "queue full", script: &script{submit: &schedule.FullError{What: "the queue", RetryAfter: 1500 * time.Millisecond}}, body: good, status: 529, kind: "overloaded_error"},
		{name: "draining", script: &script{submit: schedule.ErrDraining}, body: good, status: 529, kind: "overloaded_error"},
		{name: "late", script: &script{fail: &schedule.LateError{Waited: time.Minute}}, body: good, status: 529, kind: "overloaded_error"},
		{name: "a fault", script: &script{fail: errors.New("a fault")}, body: good, status: 500, kind: "api_error"},
		{name: "a panic", script: &script{panics: true}, body: good, status: 500, kind: "api_error"},
	} {
		method, path := c.method, c.path
		if method == "" {
			method = "POST"
		}
		if path == "" {
			path = "/v1/messages"
		}
		if c.script == nil {
			c.script = &script{}
		}
		w, data := ask(t, serving(t, c.script, c.o), method, path, c.body, c.header...)
		v := object(t, data)
		message, _ := at(v, "error", "message").(string)
		if w.StatusCode != c.status || v["type"] != "error" || at(v, "error", "type") != c.kind || message == "" || !strings.HasPrefix(message, c.message) || v["request_id"] != w.Header.Get("Request-Id") {
			t.Errorf("%s: %d %s", c.name, w.StatusCode, data)
		}
		if c.status == 529 && w.Header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", c.name)
		}
	}
	for _, header := range [][]string{{"X-Api-Key", "secret-of-ann"}, {"Authorization", "Bearer secret-of-ann"}, {"Authorization", "Bearer x", "X-Api-Key", "secret-of-ann"}} {
		h := serving(t, &script{pieces: []string{"x"}}, Options{Keys: keys})
		if w, data := ask(t, h, "POST", "/v1/messages", good, header...); w.StatusCode != 200 {
			t.Errorf("%q: %d %s", header, w.StatusCode, data)
		}
		if w, _ := ask(t, h, "HEAD", "/", ""); w.StatusCode != 200 {
			t.Errorf("HEAD /: %d", w.StatusCode)
		}
		if w, _ := ask(t, h, "GET", "/", ""); w.StatusCode != 401 {
			t.Errorf("GET /: %d", w.StatusCode)
		}
	}
	_, data := ask(t, serving(t, &script{pieces: []string{"Hi"}, fail: errors.New("a fault")}, Options{}), "POST", "/v1/messages", "{"+anthropicHello+`,"stream":true}`)
	events := namedEvents(t, data)
	if last := events[len(events)-1]; last.name != "error" || at(last.data, "error", "type") != "api_error" || bytes.Contains(data, []byte("message_stop")) {
		t.Errorf("a fault in a stream: %s", data)
	}
}

// TestAnthropicPing: a stream that waits has pings, before its beginning too.
func TestAnthropicPing(t *testing.T) {
	s := &script{wait: make(chan struct{}), pieces: []string{"x"}}
	h := serving(t, s, Options{KeepAlive: 20 * time.Millisecond})
	data := askPinged(t, h, s, "/v1/messages", "{"+anthropicHello+`,"stream":true}`, "event: ping\n", 2)
	if !strings.HasPrefix(string(data), "event: ping\ndata: {\"type\":\"ping\"}\n\n") {
		t.Errorf("%q", data)
	}
	if m := accumulate(t, namedEvents(t, data)); text(m["content"]) != `[{"text":"x","type":"text"}]` {
		t.Errorf("%v", m)
	}
}

// TestAnthropicCutCall: a call that a limit cut is no input, whole; streamed it stays as
// far as it came. One that breaks is text.
func TestAnthropicCutCall(t *testing.T) {
	s := &script{pieces: []string{"So " + addCall[:45]}, limit: true}
	_, data := ask(t, serving(t, s, Options{}), "POST", "/v1/messages", "{"+anthropicHello+","+anthropicAdder+"}")
	if v := object(t, data); text(v["content"]) != `[{"text":"So","type":"text"}]` || v["stop_reason"] != "max_tokens" {
		t.Errorf("%s", data)
	}
	s = &script{pieces: []string{"<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": oops"}}
	_, data = ask(t, serving(t, s, Options{}), "POST", "/v1/messages", "{"+anthropicHello+","+anthropicAdder+"}")
	if v := object(t, data); at(v, "content", 0, "type") != "text" || !strings.Contains(fmt.Sprint(at(v, "content", 0, "text")), "oops") || v["stop_reason"] != "end_turn" {
		t.Errorf("%s", data)
	}
	_, data = ask(t, serving(t, s, Options{}), "POST", "/v1/messages", "{"+anthropicHello+","+anthropicAdder+`,"stream":true}`)
	if lines := strings.Join(told(namedEvents(t, data)), "\n"); !strings.Contains(lines, "content_block_stop 0\ncontent_block_start 1 text\n") || !strings.HasSuffix(lines, "content_block_stop 1\nmessage_delta\nmessage_stop") {
		t.Errorf("%s", lines)
	}
}

// TestAnthropicMalformed: a good request that is cut or spoiled at any byte is refused.
func TestAnthropicMalformed(t *testing.T) {
	spoil(t, "/v1/messages", "{"+anthropicHello+","+anthropicAdder+`,"system":[{"type":"text","text":"s"}],"stop_sequences":["a"],"temperature":0.5,"stream":false,"thinking":{"type":"disabled"},"tool_choice":{"type":"auto"}}`)
	spoil(t, "/v1/messages/count_tokens", "{"+anthropicHello+"}")
}

// TestAnthropicTypes: no field takes a value of another type.
func TestAnthropicTypes(t *testing.T) {
	retype(t, "/v1/messages", `{"model":"fake/model","max_tokens":100,"stream":false,"temperature":0.5,"top_p":0.5,"top_k":5,"stop_sequences":["a"],
		"system":[{"type":"text","text":"s"}],"thinking":{"type":"enabled","budget_tokens":50},"metadata":{},"service_tier":"auto",
		"messages":[{"role":"user","content":[{"type":"text","text":"a"}]},
			{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"tool_use","id":"toolu_1","name":"add","input":{"a":1}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","is_error":false,"content":[{"type":"text","text":"2"}]}]}],
		"tools":[{"name":"add","type":"custom","description":"d","input_schema":{"type":"object"}}],"tool_choice":{"type":"auto","disable_parallel_tool_use":false}}`,
		// Any value is one of these.
		"metadata", "service_tier", "messages.1.content.1.input.a", "tools.0.input_schema.type",
		// A text stands for a list of one.
		"system string", "messages.0.content string", "messages.1.content string", "messages.2.content string", "messages.2.content.0.content string", "stop_sequences string")
}

func TestAnthropicUnknownFields(t *testing.T) {
	w, _ := ask(t, serving(t, &script{}, Options{}), "POST", "/v1/messages", "{"+anthropicHello+`,"metadata":{},"wibble":1,"context_management":{}}`)
	if got := fmt.Sprint(w.Header.Values("Windrow-Ignored")); got != "[context_management wibble]" {
		t.Errorf("ignored %s", got)
	}
	if w.Header.Get("Content-Type") != "application/json" || w.StatusCode != http.StatusOK {
		t.Errorf("%d %v", w.StatusCode, w.Header)
	}
}
