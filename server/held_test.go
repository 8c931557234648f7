package server

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestHeldByOtherAPIs: forms and calls are forced by the fields that messages and
// responses have for it, in ar as in verified.
func TestHeldByOtherAPIs(t *testing.T) {
	m := open(t)
	m.Tokenizer = tokens(t, toolTemplate)
	h := httptest.NewServer(New(m, Options{}))
	defer h.Close()
	const schema = `{"type":"object","properties":{"a":{"type":"integer","minimum":0,"maximum":999}},"required":["a"],"additionalProperties":false}`
	holds := func(what, data string) {
		t.Helper()
		var v struct{ A *int }
		d := json.NewDecoder(strings.NewReader(data))
		d.DisallowUnknownFields()
		if err := d.Decode(&v); err != nil || v.A == nil {
			t.Errorf("%s: %q is not of the schema: %v", what, data, err)
		}
	}
	send := func(path, body, mode string) map[string]any {
		t.Helper()
		w, data := ask(t, h, "POST", path, body+`,"seed":3,"mode":"`+mode+`"}`)
		if w.StatusCode != 200 {
			t.Fatalf("%s %s: %s", path, body, data)
		}
		return object(t, data)
	}
	for _, choice := range []string{`{"type":"any"}`, `{"type":"tool","name":"add"}`, `{"type":"any","disable_parallel_tool_use":true}`} {
		body := `{"max_tokens":100,"messages":[{"role":"user","content":"Add one."}],"tools":[{"name":"add","input_schema":` + schema + `}],"tool_choice":` + choice
		want := send("/v1/messages", body, "ar")
		for i, b := range list(want["content"]) {
			if at(b, "type") == "tool_use" {
				holds(choice, text(at(b, "input")))
			} else if i == 0 {
				t.Errorf("%s: %v", choice, want)
			}
		}
		if len(list(want["content"])) == 0 {
			t.Errorf("%s: %v", choice, want)
		}
		if got := send("/v1/messages", body, "verified"); text(got["content"]) != text(want["content"]) {
			t.Errorf("%s: verified %v, ar %v", choice, got, want)
		}
	}
	body := `{"reasoning":{"effort":"none"},"max_output_tokens":100,"input":"Add one.","tools":[{"type":"function","name":"add","strict":true,"parameters":` + schema + `}],"parallel_tool_calls":false,"tool_choice":`
	for _, choice := range []string{`"required"`, `{"type":"function","name":"add"}`} {
		v := send("/v1/responses", body+choice, "verified")
		if len(list(v["output"])) != 1 || at(v, "output", 0, "type") != "function_call" {
			t.Fatalf("%s: %v", choice, v)
		}
		holds(choice, fmt.Sprint(at(v, "output", 0, "arguments")))
	}
	format := `"format":{"type":"json_schema","name":"x","schema":` + schema + `}`
	v := send("/v1/responses", `{"reasoning":{"effort":"none"},"max_output_tokens":100,"input":"A number.","text":{`+format+"}", "verified")
	holds("text.format", fmt.Sprint(at(v, "output", 0, "content", 0, "text")))
	v = send("/v1/messages", `{"max_tokens":100,"messages":[{"role":"user","content":"A number."}],"output_config":{`+format+"}", "verified")
	holds("output_config.format", fmt.Sprint(at(v, "content", 0, "text")))
	v = send("/v1/responses", `{"reasoning":{"effort":"none"},"max_output_tokens":40,"input":"A number.","text":{"format":{"type":"json_object"}}`, "ar")
	if !strings.HasPrefix(fmt.Sprint(at(v, "output", 0, "content", 0, "text")), "{") {
		t.Errorf("%v", v)
	}
	for path, body := range map[string]string{
		"/v1/messages":  `{"max_tokens":9,"messages":[{"role":"user","content":"a"}],"tools":[{"name":"add","input_schema":{"type":"object","properties":{"a":{"not":{}}}}}],"tool_choice":{"type":"any"}}`,
		"/v1/responses": `{"input":"a","tools":[{"type":"function","name":"add","parameters":{"type":"object","properties":{"a":{"not":{}}}}}],"tool_choice":"required"}`,
	} {
		w, data := ask(t, h, "POST", path, body)
		if s := string(data); w.StatusCode != 400 || strings.Contains(s, "function.parameters") || !strings.Contains(s, "/not") {
			t.Errorf("%s: %s", path, s)
		}
	}
}
