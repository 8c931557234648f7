package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"windrow/checkpoint"
	"windrow/decoder"
	"windrow/engine"
)

func generation(temperature *float32) *checkpoint.GenerationConfig {
	return &checkpoint.GenerationConfig{Temperature: temperature}
}

// TestRefusedByModel: what the model lacks names the field that asked for it.
func TestRefusedByModel(t *testing.T) {
	for err, want := range map[error]string{
		&engine.ModeError{Model: "m", Mode: decoder.WeDLM}:                              "mode",
		&engine.ModeError{Model: "m", Mode: decoder.WeDLM, Recurrent: true}:             "mode",
		&engine.ModeError{Model: "m", Mode: decoder.Verified, Draft: decoder.DraftMask}: "draft",
		&engine.HeadError{Model: "m"}:                                                   "draft",
	} {
		if e := errorOf(err); e.status != http.StatusBadRequest || e.Param == nil || *e.Param != want {
			t.Errorf("%v: %+v, want %s", err, e, want)
		}
	}
}

// TestRefused: what cannot be obeyed is 400 and names its field.
func TestRefused(t *testing.T) {
	h := serving(t, &script{pieces: []string{"x"}}, Options{})
	for body, param := range map[string]string{
		`"x":1`:                                               "messages",
		`"messages":[]`:                                       "messages",
		`"messages":[{"role":"king"}]`:                        "messages[0].role",
		`"messages":[{"role":"user"}]`:                        "messages[0].content",
		`"messages":[{"role":"user","content":4}]`:            "messages[0].content",
		`"messages":["x"]`:                                    "messages[0]",
		hello + `,"n":0`:                                      "n",
		hello + `,"n":17`:                                     "n",
		hello + `,"n":1e300`:                                  "n",
		hello + `,"n":1.5`:                                    "n",
		hello + `,"max_tokens":-1`:                            "max_tokens",
		hello + `,"max_tokens":99999999999999999999`:          "max_tokens",
		hello + `,"temperature":-1`:                           "temperature",
		hello + `,"temperature":"1"`:                          "temperature",
		hello + `,"top_p":1.1`:                                "top_p",
		hello + `,"top_k":-2`:                                 "top_k",
		hello + `,"seed":1.5`:                                 "seed",
		hello + `,"seed":99999999999999999999`:                "seed",
		hello + `,"stop":[""]`:                                "stop",
		hello + `,"stop":[1]`:                                 "stop",
		hello + `,"stop":"` + strings.Repeat("x", 2000) + `"`: "stop",
		hello + `,"logit_bias":{"-1":1}`:                      "logit_bias",
		hello + `,"logit_bias":[1]`:                           "logit_bias",
		hello + `,"stream":"yes"`:                             "stream",
		hello + `,"stream_options":{"include_usage":true}`:    "stream_options",
		hello + `,"mode":"fast"`:                              "mode",
		hello + `,"window":0`:                                 "window",
		hello + `,"mode":"wedlm","window":"auto"`:             "window",
		hello + `,"draft":"oracle"`:                           "draft",
		hello + `,"draft":"model:small"`:                      "draft",
		hello + `,"mode":"ar","draft":"lookup"`:               "draft",
		hello + `,"logprobs":1`:                               "logprobs",
		hello + `,"logprobs":true,"top_logprobs":21`:          "top_logprobs",
		hello + `,"top_logprobs":3`:                           "top_logprobs",
		hello + `,"response_format":{"type":"json_object"}`:   "response_format",
		hello + `,"response_format":{"type":"json_schema","json_schema":{}}`:                 "response_format.json_schema.schema",
		hello + `,"response_format":{"type":"json_schema"}`:                                  "response_format.json_schema",
		hello + `,"response_format":{"type":"json_object"},"mode":"wedlm"`:                   "response_format",
		hello + `,"response_format":{"type":"json_object"},"regex":"a"`:                      "regex",
		hello + `,"regex":"a","ignore_eos":true`:                                             "ignore_eos",
		hello + `,"grammar":7`:                                                               "grammar",
		hello + `,"response_format":{"type":"x"}`:                                            "response_format.type",
		hello + `,"response_format":"text"`:                                                  "response_format",
		hello + "," + adder + `,"tool_choice":"required"`:                                    "tool_choice",
		hello + "," + adder + `,"tool_choice":{"type":"function","function":{"name":"add"}}`: "tool_choice",
		hello + "," + adder + `,"tool_choice":{"type":"function","function":{"name":"sub"}}`: "tool_choice.function.name",
		hello + "," + adder + `,"tool_choice":"x"`:                                           "tool_choice",
		hello + "," + adder + `,"parallel_tool_calls":false`:                                 "parallel_tool_calls",
		hello + `,"tools":[{"type":"x"}]`:                                                    "tools[0].type",
		hello + `,"tools":[{"type":"function"}]`:                                             "tools[0].function",
		hello + `,"tools":[{"type":"function","function":{"name":""}}]`:                      "tools[0].function.name",
		hello + `,"tools":{}`:                                                                "tools",
		hello + `,"functions":[]`:                                                            "functions",
		hello + `,"modalities":["audio"]`:                                                    "modalities",
		hello + `,"chat_template_kwargs":{"x":1}`:                                            "chat_template_kwargs.x",
		hello + `,"model":4`:                                                                 "model",
		hello + `,"grammar":"root ::= x"`:                                                    "grammar",
	} {
		w, data := ask(t, h, "POST", "/v1/chat/completions", "{"+body+"}")
		v := object(t, data)
		if w.StatusCode != 400 || at(v, "error", "param") != param || at(v, "error", "type") != "invalid_request_error" || at(v, "error", "code") == nil {
			t.Errorf("%.80s: %d %s, want 400 of %s", body, w.StatusCode, data, param)
		}
	}
	for body, param := range map[string]string{
		`"x":1`: "prompt", `"prompt":""`: "prompt", `"prompt":[]`: "prompt", `"prompt":["a",""]`: "prompt[1]", `"prompt":["a",7]`: "prompt[1]", `"prompt":[[1],["a"]]`: "prompt[1]", `"prompt":[[1],[-2]]`: "prompt[1][0]", `"prompt":[[1],[4096]]`: "prompt[1][0]", `"prompt":[` + strings.Repeat(`"a",`, 8) + `"a"],"n":16`: "n", `"prompt":[` + strings.Repeat(`"a",`, 64) + `"a"]`: "prompt",
		`"prompt":[4096]`: "prompt[0]", `"prompt":[-1]`: "prompt[0]",
		`"prompt":"a","max_tokens":-1`: "max_tokens", `"prompt":"a","suffix":"b"`: "suffix", `"prompt":"a","response_format":{"type":"xml"}`: "response_format.type", `"prompt":"a","tools":[{"type":"function","function":{"name":"f"}}]`: "tools", `"prompt":"a","best_of":2`: "best_of", `"prompt":"a","logprobs":21`: "logprobs", `"prompt":"a","logprobs":true`: "logprobs",
	} {
		w, data := ask(t, h, "POST", "/v1/completions", "{"+body+"}")
		if v := object(t, data); w.StatusCode != 400 || at(v, "error", "param") != param {
			t.Errorf("%s: %d %s, want 400 of %s", body, w.StatusCode, data, param)
		}
	}
}

// TestErrorObjects: every error is the API's object, with a request's id.
func TestErrorObjects(t *testing.T) {
	keys := new(Keys)
	if err := keys.Add("ann", "secret-of-ann"); err != nil {
		t.Fatal(err)
	}
	open, locked := serving(t, &script{}, Options{}), serving(t, &script{}, Options{Keys: keys})
	panics := serving(t, &script{panics: true}, Options{})
	for _, c := range []struct {
		h                          *httptest.Server
		method, path, body, header string
		status                     int
		kind                       string
	}{
		{open, "GET", "/v1/nothing", "", "", 404, typeNotFound},
		{open, "GET", "/v1/models/other", "", "", 404, typeNotFound},
		{open, "GET", "//", "", "", 404, typeNotFound},
		{open, "GET", "/v1/chat/completions", "", "", 405, typeInvalid},
		{open, "DELETE", "/v1/models", "", "", 405, typeInvalid},
		{open, "POST", "/v1/embeddings", "{}", "", 501, typeInvalid},
		{open, "POST", "/v1/chat/completions", strings.Repeat(" ", maxBody+1), "", 413, typeInvalid},
		{open, "POST", "/v1/chat/completions", `{"messages":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`, "", 400, typeInvalid},
		{open, "POST", "/v1/chat/completions", "{\"user\":\"\xff\"}", "", 400, typeInvalid},
		{open, "POST", "/v1/chat/completions", "null", "", 400, typeInvalid},
		{open, "GET", "/v1/models", "", "Host: evil.example", 403, typePermission},
		{open, "POST", "/v1/chat/completions", "{" + hello + "}", "Origin: https://evil.example", 403, typePermission},
		{locked, "GET", "/v1/models", "", "", 401, typeAuth},
		{locked, "GET", "/v1/nothing", "", "", 401, typeAuth},
		{locked, "GET", "/metrics", "", "", 401, typeAuth},
		{locked, "GET", "/v1/models", "", "Authorization: Bearer wrong-secret", 401, typeAuth},
		{panics, "POST", "/v1/chat/completions", "{" + hello + "}", "", 500, typeServer},
	} {
		name, value, _ := strings.Cut(c.header, ": ")
		var header []string
		if name != "" {
			header = []string{name, value}
		}
		w, data := ask(t, c.h, c.method, c.path, c.body, header...)
		v := object(t, data)
		e, _ := v["error"].(map[string]any)
		if w.StatusCode != c.status || e["type"] != c.kind || e["message"] == "" || !has(v, "param", "error") || !has(v, "code", "error") || w.Header.Get("Request-Id") == "" {
			t.Errorf("%s %s: %d %s, want %d %s", c.method, c.path, w.StatusCode, data, c.status, c.kind)
		}
	}
	if w, _ := ask(t, locked, "GET", "/v1/models", "", "Authorization", "Bearer secret-of-ann"); w.StatusCode != 200 {
		t.Errorf("with the key: %d", w.StatusCode)
	}
	if w, _ := ask(t, locked, "GET", "/health", ""); w.StatusCode != 200 {
		t.Errorf("/health: %d", w.StatusCode)
	}
	w, _ := ask(t, open, "GET", "/v1/models", "", "X-Request-Id", "mine-1")
	if w.Header.Get("X-Request-Id") != "mine-1" {
		t.Errorf("request id %q", w.Header.Get("X-Request-Id"))
	}
}

// TestMalformed: a good request that is cut or spoiled at any byte is refused, at once.
func TestMalformed(t *testing.T) {
	s := &script{pieces: []string{"x"}}
	h := New(fake(t, s), Options{})
	good := "{" + hello + "," + adder + `,"stop":["a"],"temperature":0.5,"stream":false,"logit_bias":{"5":1}}`
	send := func(body string) int {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "http://localhost/v1/chat/completions", strings.NewReader(body))
		h.ServeHTTP(w, r)
		if !json.Valid(w.Body.Bytes()) {
			t.Fatalf("%q: %s", body, w.Body)
		}
		return w.Code
	}
	if code := send(good); code != 200 {
		t.Fatalf("the good one: %d", code)
	}
	for i := range good {
		for _, body := range []string{good[:i], good[:i] + "\x01" + good[i+1:], good[:i] + "\xff" + good[i+1:], good[:i] + "\x00" + good[i:]} {
			if code := send(body); code != 400 {
				t.Errorf("%q: %d", body, code)
			}
		}
	}
}

// FuzzRequest: no body makes a parser panic; what it takes is within bounds.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{"{" + hello + "}", "{" + hello + "," + adder + `,"n":3,"stop":["x"],"seed":-1,"logit_bias":{"1":2}}`, `{"prompt":[1,2],"max_tokens":1e3}`,
		`{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"a","arguments":{}}}]}]}`, `{"tool_choice":{}}`, "{" + anthropicHello + "," + anthropicAdder + `,"tool_choice":{"type":"any"},"system":[{"type":"text","text":"s"}],"thinking":{"type":"enabled","budget_tokens":9}}`,
		`{"messages":[{"role":"system","content":"s"},{"role":"assistant","content":[{"type":"tool_use","name":"a","input":{}}]},{"role":"user","content":[{"type":"tool_result","content":[{"type":"text"}]}]}]}`,
		`{"input":"a",` + responsesAdder + `,"tool_choice":{"type":"function","name":"add"},"text":{"format":{"type":"json_schema","schema":{}}}}`,
		`{"input":[{"type":"reasoning","summary":[]},{"type":"function_call","name":"a"},{"type":"function_call_output","output":[]},{"role":"developer","content":"d"}],"metadata":{}}`, "null", "[]", `{"a":1,"a":null}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		chat, err := parseFields(data)
		if err != nil {
			if errorOf(err).status != http.StatusBadRequest {
				t.Fatal(err)
			}
			return
		}
		q := readChat(chat)
		if chat.err == nil && (q.choices < 1 || q.choices > maxChoices || len(q.messages) < 1 || len(q.messages) > maxMessages || q.maxTokens < 0 || q.window < 0) {
			t.Fatalf("%+v", q)
		}
		if chat.err != nil && errorOf(chat.err).status != http.StatusBadRequest {
			t.Fatal(chat.err)
		}
		other, _ := parseFields(data)
		readCompletion(other)
		other.unknown()
		for name, read := range map[string]func(*fields) chatRequest{"messages": readAnthropic, "responses": func(f *fields) chatRequest {
			q, a := readResponses(f)
			if _, err := json.Marshal(response{asked: a}); f.err == nil && err != nil {
				t.Fatal(err)
			}
			return q
		}} {
			f, _ := parseFields(data)
			q := read(f)
			if f.err != nil && errorOf(f.err).status != http.StatusBadRequest {
				t.Fatalf("%s: %v", name, f.err)
			}
			if f.err == nil && (q.choices != 1 || len(q.messages) < 1 || q.maxTokens < 0 || q.thinkingBudget < 0 || q.tools != nil && !json.Valid(q.tools)) {
				t.Fatalf("%s: %+v", name, q)
			}
			for _, m := range q.messages {
				if f.err == nil && (m.Role != "system" && m.Role != "user" && m.Role != "assistant" && m.Role != "tool") {
					t.Fatalf("%s: %+v", name, m)
				}
			}
		}
	})
}

// TestIgnored: unknown fields are named, or refused where the server is strict.
func TestIgnored(t *testing.T) {
	body := "{" + hello + `,"wibble":1,"user":"u","metadata":{}}`
	w, _ := ask(t, serving(t, &script{}, Options{}), "POST", "/v1/chat/completions", body)
	if got := fmt.Sprint(w.Header.Values("Windrow-Ignored")); got != "[wibble]" {
		t.Errorf("ignored %s", got)
	}
	w, data := ask(t, serving(t, &script{}, Options{StrictFields: true}), "POST", "/v1/chat/completions", body)
	if w.StatusCode != 400 || at(object(t, data), "error", "param") != "wibble" {
		t.Errorf("strict: %d %s", w.StatusCode, data)
	}
}

// TestLog: a line a request, and nothing of what was said.
func TestLog(t *testing.T) {
	var b bytes.Buffer
	h := New(fake(t, &script{pieces: []string{"an-answer"}}), Options{Log: slog.New(slog.NewJSONHandler(&b, nil))})
	r := httptest.NewRequest("POST", "http://localhost/v1/chat/completions", strings.NewReader(`{"messages":[{"role":"user","content":"a-question"}]}`))
	h.ServeHTTP(httptest.NewRecorder(), r)
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "http://localhost/a-path", nil))
	if s := b.String(); strings.Count(s, "\n") != 2 || strings.Contains(s, "an-answer") || strings.Contains(s, "a-question") || strings.Contains(s, "a-path") || !strings.Contains(s, `"generated":10`) {
		t.Error(s)
	}
}

// TestCompletions: whole and streamed, of text and of ids.
func TestCompletions(t *testing.T) {
	s := &script{pieces: []string{"<think>", "b"}}
	h := serving(t, s, Options{})
	w, data := ask(t, h, "POST", "/v1/completions", `{"prompt":"a","timings_per_token":true}`)
	v := object(t, data)
	if w.StatusCode != 200 || v["object"] != "text_completion" || at(v, "choices", 0, "text") != "<think>b" || at(v, "choices", 0, "finish_reason") != "stop" || at(v, "timings", "predicted_n") != 9.0 {
		t.Errorf("%s", data)
	}
	_, data = ask(t, h, "POST", "/completions", `{"prompt":[5,6],"stream":true,"n":2,"stream_options":{"include_usage":true}}`)
	list, done := chunks(t, data)
	text := ""
	for _, c := range list {
		piece, _ := at(c, "choices", 0, "text").(string)
		text += piece
	}
	if !done || len(text) != 16 || at(list[len(list)-1], "usage", "prompt_tokens") != 2.0 || len(list) != 7 {
		t.Errorf("%s", data)
	}
}

// TestProbes: what a server is asked about itself.
func TestProbes(t *testing.T) {
	h := serving(t, &script{}, Options{})
	for path, want := range map[string]string{
		"/health": `"ok"`, "/ready": `"ready"`, "/props": `"n_ctx":1000`, "/slots": `"waiting":3`, "/": "windrow",
		"/metrics": "windrow_num_requests_waiting{model_name=\"fake/model\"} 3", "/v1/models": `"max_model_len":1000`,
	} {
		if w, data := ask(t, h, "GET", path, ""); w.StatusCode != 200 || !strings.Contains(string(data), want) {
			t.Errorf("%s: %d %s", path, w.StatusCode, data)
		}
		if w, data := ask(t, h, "HEAD", path, ""); w.StatusCode != 200 || len(data) != 0 {
			t.Errorf("HEAD %s: %d", path, w.StatusCode)
		}
	}
	for _, c := range [][3]string{
		{"/tokenize", `{"content":"<|im_end|>"}`, `[4094]`},
		{"/tokenize", `{"content":"ab","with_pieces":true}`, `"piece"`},
		{"/tokenize", `{"content":""}`, `{"tokens":[]}`},
		{"/detokenize", `{"tokens":[4094]}`, `im_end`},
		{"/apply-template", "{" + hello + "}", `im_start|\u003euser\nhello`},
	} {
		if w, data := ask(t, h, "POST", c[0], c[1]); w.StatusCode != 200 || !strings.Contains(string(data), c[2]) {
			t.Errorf("%s %s: %d %s", c[0], c[1], w.StatusCode, data)
		}
	}
	if w, data := ask(t, h, "POST", "/detokenize", `{"tokens":[4096]}`); w.StatusCode != 400 {
		t.Errorf("%s", data)
	}
	if w, data := ask(t, h, "POST", "/tokenize", `{"content":"<|im_end|>","parse_special":false}`); w.StatusCode != 200 || strings.Contains(string(data), "4094") {
		t.Errorf("%s", data)
	}
}

// TestStuck: a server is not ready where requests wait and no forward ends.
func TestStuck(t *testing.T) {
	s := New(fake(t, &script{}), Options{})
	s.pool.entries[0].loaded.Model.busySince.Store(time.Now().Add(-time.Minute).UnixNano())
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/ready", nil))
	if body, _ := io.ReadAll(w.Body); w.Code != 503 {
		t.Errorf("%d %s", w.Code, body)
	}
}

// TestTemplateRefuses: what a template says of a conversation is the client's to know.
func TestTemplateRefuses(t *testing.T) {
	for template, want := range map[string]string{failingTemplate: "roles must alternate", "": "/v1/completions"} {
		m := fake(t, &script{})
		m.Tokenizer = tokens(t, template)
		w := httptest.NewRecorder()
		New(m, Options{}).ServeHTTP(w, httptest.NewRequest("POST", "http://localhost/v1/chat/completions", strings.NewReader("{"+hello+"}")))
		if w.Code != 400 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%q: %d %s", template, w.Code, w.Body)
		}
	}
}
