package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"windrow/internal/testhelp"
	"windrow/schedule"
)

// TestErrorTable: every kind of error has its status, type, code and headers, in chats
// and completions, streamed or whole.
func TestErrorTable(t *testing.T) {
	keys := new(Keys)
	if err := keys.Add("ann", "secret-of-ann"); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("word ", 2000)
	draining := func(s *Server) {
		s.pool.mutex.Lock()
		defer s.pool.mutex.Unlock()
		s.pool.draining = true
	}
	for _, c := range []struct {
		what       string
		script     *script
		o          Options
		spoil      func(*Server)
		more       string // fields of the request
		text       string // its prompt; "": hello
		header     string
		path       string // in place of both
		status     int
		kind, code string
		headers    string // that there must be
	}{
		{what: "a bad value", more: `"temperature":-1`, status: 400, kind: typeInvalid, code: codeValue},
		{what: "a field that is not there yet", more: `"logit_processors":[]`, status: 400, kind: typeInvalid, code: codeUnsupported},
		{what: "too long", more: `"max_tokens":1000`, status: 400, kind: typeInvalid, code: codeContext},
		{what: "too long by itself", text: long, status: 400, kind: typeInvalid, code: codeContext},
		{what: "no key", o: Options{Keys: keys}, status: 401, kind: typeAuth, code: "invalid_api_key", headers: "Www-Authenticate"},
		{what: "a wrong key", o: Options{Keys: keys}, header: "Authorization: Bearer wrong-one", status: 401, kind: typeAuth, code: "invalid_api_key"},
		{what: "another host", header: "Host: evil.example", status: 403, kind: typePermission, code: "host_not_allowed"},
		{what: "another origin", header: "Origin: https://evil.example", status: 403, kind: typePermission, code: "origin_not_allowed"},
		{what: "another model", more: `"model":"other"`, status: 404, kind: typeNotFound, code: "model_not_found"},
		{what: "no path", path: "/v1/nothing", status: 404, kind: typeNotFound, code: "not_found"},
		{what: "too large", text: strings.Repeat("x", maxBody), status: 413, kind: typeInvalid, code: "request_too_large"},
		{what: "a long header", header: "X-Long: " + strings.Repeat("x", maxHeader), status: 431, kind: typeInvalid, code: "header_too_large"},
		{what: "a full queue", script: &script{submit: &schedule.FullError{What: "the queue", RetryAfter: 7 * time.Second}}, status: 429, kind: typeRate, code: "queue_full", headers: "Retry-After"},
		{what: "waited too long", script: &script{fail: &schedule.LateError{Waited: time.Minute}}, status: 503, kind: typeServer, code: "queue_timeout", headers: "Retry-After"},
		{what: "going down", spoil: draining, status: 503, kind: typeServer, code: "draining", headers: "Retry-After"},
		{what: "going down meanwhile", script: &script{submit: schedule.ErrDraining}, status: 503, kind: typeServer, code: "draining", headers: "Retry-After"},
		{what: "closed while it waited", script: &script{fail: schedule.ErrClosed}, status: 503, kind: typeServer, code: "draining", headers: "Retry-After"},
		{what: "a fault of the engine", script: &script{fail: errors.New("a fault")}, status: 500, kind: typeServer, code: "internal_error", headers: "X-Should-Retry"},
		{what: "a fault at the start", script: &script{submit: errors.New("a fault")}, status: 500, kind: typeServer, code: "internal_error", headers: "X-Should-Retry"},
		{what: "a panic", script: &script{panics: true}, status: 500, kind: typeServer, code: "internal_error", headers: "X-Should-Retry"},
	} {
		if c.text == "" {
			c.text = "hello"
		}
		for path, prompt := range map[string]string{
			"/v1/chat/completions": fmt.Sprintf(`"messages":[{"role":"user","content":%q}]`, c.text), "/v1/completions": fmt.Sprintf(`"prompt":%q`, c.text),
		} {
			for _, stream := range []bool{false, true} {
				s := c.script
				if s == nil {
					s = &script{pieces: []string{"x"}}
				}
				server := New(fake(t, s), c.o)
				if c.spoil != nil {
					c.spoil(server)
				}
				if c.path != "" {
					path = c.path
				}
				body := fmt.Sprintf(`{%s,"stream":%t`, prompt, stream)
				if c.more != "" {
					body += "," + c.more
				}
				r := httptest.NewRequest("POST", "http://localhost"+path, strings.NewReader(body+"}"))
				if name, value, ok := strings.Cut(c.header, ": "); ok {
					r.Header.Set(name, value)
					if name == "Host" {
						r.Host = value
					}
				}
				w := httptest.NewRecorder()
				server.ServeHTTP(w, r)
				v := object(t, w.Body.Bytes())
				message, _ := at(v, "error", "message").(string)
				if w.Code != c.status || at(v, "error", "type") != c.kind || at(v, "error", "code") != c.code || message == "" || len(message) > 400 || strings.Contains(message, "\n") ||
					!has(v, "param", "error") || w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Request-Id") == "" || c.headers != "" && w.Header().Get(c.headers) == "" {
					t.Errorf("%s, %s, stream %t: %d %v %.400s, want %d %s %s", c.what, path, stream, w.Code, w.Header(), w.Body, c.status, c.kind, c.code)
				}
				if strings.Contains(message, "secret") || strings.Contains(message, "goroutine") {
					t.Errorf("%s: the message says too much: %s", c.what, message)
				}
			}
		}
	}
}

// TestWrongTypes: each field takes its types and null, and refuses every other by its
// name; nothing is taken for something else.
func TestWrongTypes(t *testing.T) {
	const (
		boolean = 1 << iota
		number
		text
		list
		mapping
	)
	values := map[string]int{
		"true": boolean, "false": boolean, "7": number, "-7": number, "0.5": number, "1e400": number, "1" + strings.Repeat("0", 400): number,
		`"x"`: text, `""`: text, `"7"`: text, `"` + strings.Repeat("y", 70_000) + `"`: text, `"\ud800"`: text,
		"[]": list, "[[]]": list, "[null]": list, `[{}]`: list, `["a",1]`: list, "{}": mapping, `{"a":{"b":[1]}}`: mapping, `{"":null}`: mapping,
	}
	shared := map[string]int{
		"model": text, "stream": boolean, "stream_options": mapping, "max_tokens": number, "max_completion_tokens": number, "stop": text | list, "n": number, "seed": number,
		"temperature": number, "top_p": number, "top_k": number, "min_p": number, "repetition_penalty": number, "presence_penalty": number, "frequency_penalty": number,
		"logit_bias": mapping, "mode": text, "draft": text, "window": number | text, "ignore_eos": boolean, "timings_per_token": boolean, "cache_salt": text, "grammar": text, "regex": text, "response_format": mapping,
	}
	ofChat := map[string]int{
		"messages": list, "tools": list, "tool_choice": text | mapping, "parallel_tool_calls": boolean, "chat_template_kwargs": mapping,
		"reasoning_effort": text, "logprobs": boolean, "top_logprobs": number, "modalities": list,
	}
	ofCompletion := map[string]int{"prompt": text | list, "parse_special": boolean, "echo": boolean, "suffix": text, "best_of": number}
	for path, c := range map[string]struct {
		base   string
		fields []map[string]int
	}{
		"/v1/chat/completions": {hello, []map[string]int{shared, ofChat}},
		"/v1/completions":      {`"prompt":"hello"`, []map[string]int{shared, ofCompletion}},
		"/tokenize":            {`"content":"hello"`, []map[string]int{{"content": text, "add_special": boolean, "parse_special": boolean, "with_pieces": boolean}}},
		"/detokenize":          {`"tokens":[1]`, []map[string]int{{"tokens": list}}},
		"/apply-template":      {hello, []map[string]int{{"messages": list, "tools": list, "chat_template_kwargs": mapping}}},
	} {
		h := New(fake(t, &script{pieces: []string{"x"}}), Options{})
		send := func(body string) (int, []byte) {
			w := httptest.NewRecorder()
			if d := testhelp.Took(func() {
				h.ServeHTTP(w, httptest.NewRequest("POST", "http://localhost"+path, strings.NewReader(body)))
			}); d > 5*time.Second {
				t.Errorf("%.80s took %v", body, d)
			}
			return w.Code, w.Body.Bytes()
		}
		for _, fields := range c.fields {
			for field, takes := range fields {
				base := c.base + ","
				if strings.HasPrefix(base, `"`+field+`"`) {
					base = ""
				}
				if status, reply := send(fmt.Sprintf(`{%s%q:null}`, base, field)); status != 200 && base != "" {
					t.Errorf("%s: %s null: %d %s", path, field, status, reply)
				}
				for value, kind := range values {
					status, reply := send(fmt.Sprintf(`{%s%q:%s}`, base, field, value))
					switch {
					case status == http.StatusOK && takes&kind != 0, status == http.StatusNotFound && field == "model":
					case status != http.StatusBadRequest:
						t.Errorf("%s: %s %.40s: %d %.200s", path, field, value, status, reply)
					default:
						var e errorBody
						if err := json.Unmarshal(reply, &e); err != nil || e.Error == nil || e.Error.Param == nil || e.Error.Code == nil ||
							!strings.HasPrefix(*e.Error.Param, field) || len(e.Error.Message) > 500 {
							// The length of an answer is the context's matter, which has a code of its own.
							if e.Error == nil || e.Error.Code == nil || *e.Error.Code != codeContext {
								t.Errorf("%s: %s %.40s: %.300s, want an error that names the field", path, field, value, reply)
							}
						}
					}
				}
			}
		}
	}
}

// TestExplosions: schemas, grammars and expressions that are small to write and large to
// compile are refused or compiled within a second, and an answer follows.
func TestExplosions(t *testing.T) {
	m := open(t)
	h := New(m, Options{})
	nested := func(depth int, open, middle, close string) string {
		return strings.Repeat(open, depth) + middle + strings.Repeat(close, depth)
	}
	alternatives := func(n int) string {
		return `{"anyOf":[` + strings.TrimSuffix(strings.Repeat(`{"type":"string","maxLength":1000},`, n), ",") + `]}`
	}
	var enum []string
	for i := range 20_000 {
		enum = append(enum, fmt.Sprintf(`"value number %d"`, i*7919))
	}
	schemas := map[string]string{
		"strings of lengths":    `{"type":"string","minLength":1000000,"maxLength":2000000000}`,
		"lists of lists":        nested(8, `{"type":"array","minItems":1000,"maxItems":1000,"items":`, `{"type":"integer"}`, "}"),
		"nested alternatives":   nested(12, `{"anyOf":[{"type":"string"},`, `{"type":"null"}`, "]}"),
		"many alternatives":     alternatives(500),
		"a pattern of patterns": `{"type":"string","pattern":"^(((a{1,100}){1,100}){1,100}){1,100}$"}`,
		"a reference to itself": `{"$ref":"#"}`,
		"references in a ring":  `{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}`,
		"doubling references":   doubling(30),
		"a long enum":           `{"enum":[` + strings.Join(enum, ",") + `]}`,
		"many properties":       properties(2000),
		"large numbers":         `{"type":"integer","minimum":-123456789012345678,"maximum":987654321987654321}`,
		"not a schema":          `{"type":"nothing"}`,
		"depth":                 nested(30, `{"type":"object","properties":{"a":`, `{}`, "}}"),
	}
	bodies := map[string]string{}
	for what, s := range schemas {
		bodies[what] = `"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":` + s + `}}`
	}
	for what, s := range map[string]string{
		"left recursion": "root ::= root \"a\"", "an endless rule": "root ::= root", "rules of rules": doublingGBNF(40),
		"repetition": `root ::= ((("a"{1000}){1000}){1000}){1000}`, "open": `root ::= (`, "unknown": `root ::= x`, "empty": `root ::= ""`,
	} {
		bodies["gbnf: "+what] = fmt.Sprintf(`"grammar":%q`, s)
	}
	for what, s := range map[string]string{"powers": `(((a{1,1000}){1,1000}){1,1000})`, "optional": strings.Repeat("a?", 2000) + strings.Repeat("a", 2000), "open": "(", "classes": strings.Repeat(`[\p{L}\p{N}]{1,500}`, 20), "look": `(?=a)b`} {
		bodies["regex: "+what] = fmt.Sprintf(`"regex":%q`, s)
	}
	for what, body := range bodies {
		w := httptest.NewRecorder()
		took := testhelp.Took(func() {
			h.ServeHTTP(w, httptest.NewRequest("POST", "http://localhost/v1/chat/completions", strings.NewReader(`{"messages":[{"role":"user","content":"hello"}],"max_tokens":4,`+body+"}")))
		})
		v := object(t, w.Body.Bytes())
		param, _ := at(v, "error", "param").(string)
		message, _ := at(v, "error", "message").(string)
		switch {
		case w.Code == 200 && at(v, "choices", 0, "finish_reason") != nil:
		case w.Code == 400 && param != "" && message != "" && len(message) < 1000 && !strings.Contains(message, "\n"):
		default:
			t.Errorf("%s: %d %.400s", what, w.Code, w.Body)
		}
		if took > 3*time.Second {
			t.Errorf("%s took %v", what, took)
		}
		t.Logf("%-30s %d in %v %.120s", what, w.Code, took.Round(time.Millisecond), message)
	}
}

// doubling is a schema in which each definition refers twice to the next.
func doubling(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"d%d":{"type":"object","properties":{"a":{"$ref":"#/$defs/d%d"},"b":{"$ref":"#/$defs/d%d"}},"required":["a","b"]},`, i, i+1, i+1)
	}
	return fmt.Sprintf(`{"$defs":{%s"d%d":{"type":"null"}},"$ref":"#/$defs/d0"}`, b.String(), n)
}

func doublingGBNF(n int) string {
	s := "root ::= r0\n"
	for i := range n {
		s += fmt.Sprintf("r%d ::= r%d r%d\n", i, i+1, i+1)
	}
	return s + fmt.Sprintf("r%d ::= \"a\"\n", n)
}

func properties(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`"p%d":{"type":"string"}`, i))
	}
	return `{"type":"object","properties":{` + strings.Join(list, ",") + `}}`
}
