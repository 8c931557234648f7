package server

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// TestForms: an answer has the form that was asked for, the same in ar and verified,
// greedy and sampled, whole and streamed, also the second time, when the form is known.
func TestForms(t *testing.T) {
	h := httptest.NewServer(New(open(t), Options{}))
	defer h.Close()
	const schema = `{"type":"object","properties":{"apples":{"type":"integer","minimum":0,"maximum":999},"why":{"type":"string","maxLength":20}},"required":["apples","why"],"additionalProperties":false}`
	type answer struct{ text, finish string }
	chat := func(more string) answer {
		reply, data := ask(t, h, "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"Maya has 4 crates with 12 apples each. How many apples?"}],"seed":5,"max_tokens":150,`+more+`}`)
		if reply.StatusCode != 200 {
			t.Fatalf("%s: %d %s", more, reply.StatusCode, data)
		}
		v := object(t, data)
		return answer{fmt.Sprint(at(v, "choices", 0, "message", "content")), fmt.Sprint(at(v, "choices", 0, "finish_reason"))}
	}
	number := regexp.MustCompile(`^#### [0-9]{1,3}$`)
	for name, c := range map[string]struct {
		field string
		right func(text string) error
	}{
		"schema": {`"response_format":{"type":"json_schema","json_schema":{"name":"a","strict":true,"schema":` + schema + `}}`, func(text string) error {
			var v struct {
				Apples *int
				Why    *string
			}
			d := json.NewDecoder(strings.NewReader(text))
			d.DisallowUnknownFields()
			if err := d.Decode(&v); err != nil {
				return err
			}
			if v.Apples == nil || v.Why == nil {
				return fmt.Errorf("a property is missing")
			}
			return nil
		}},
		"regex":   {`"regex":"#### [0-9]{1,3}"`, func(text string) error { return matches(number, text) }},
		"grammar": {`"grammar":"root ::= \"#### \" d d? d?\nd ::= [0-9]"`, func(text string) error { return matches(number, text) }},
	} {
		for _, heat := range []string{`"temperature":0`, `"temperature":0.8`} {
			want := chat(c.field + `,"mode":"ar",` + heat)
			if want.finish != "stop" && heat == `"temperature":0` {
				t.Errorf("%s: ended by %s: %q", name, want.finish, want.text)
			}
			if want.finish == "stop" {
				if err := c.right(want.text); err != nil {
					t.Errorf("%s: %q: %v", name, want.text, err)
				}
			}
			for _, more := range []string{`"window":"auto"`, `"window":3`, `"window":16`} {
				if got := chat(c.field + `,"mode":"verified",` + more + "," + heat); got != want {
					t.Errorf("%s, %s, %s: verified %q, ar %q", name, heat, more, got, want)
				}
			}
		}
	}
	free := chat(`"response_format":{"type":"json_object"},"max_tokens":40`)
	if !strings.HasPrefix(strings.TrimSpace(free.text), "{") || free.finish == "stop" && !json.Valid([]byte(free.text)) {
		t.Errorf("an object: %q", free)
	}
	for body, param := range map[string]string{
		`"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"not":{}}}}`:        "response_format.json_schema.schema",
		`"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"type":"banana"}}}`: "response_format.json_schema.schema",
		`"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":false}}`:             "response_format.json_schema.schema",
		`"regex":"a("`:                 "regex",
		`"grammar":"branch ::= \"a\""`: "grammar",
		`"response_format":{"type":"json_object"},"tools":[{"type":"function","function":{"name":"f"}}]`: "response_format",
	} {
		reply, data := ask(t, h, "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],`+body+`}`)
		if got := fmt.Sprint(at(object(t, data), "error", "param")); reply.StatusCode != 400 || got != param && !strings.HasPrefix(got, "tools") {
			t.Errorf("%s: %d, param %s: %s", body, reply.StatusCode, got, data)
		}
	}
}

func matches(r *regexp.Regexp, text string) error {
	if !r.MatchString(text) {
		return fmt.Errorf("no match")
	}
	return nil
}

// TestFormEverywhere: response_format is obeyed at each endpoint that answers, or it would
// be dropped where a client cannot see it.
func TestFormEverywhere(t *testing.T) {
	h := httptest.NewServer(New(open(t), Options{}))
	defer h.Close()
	const form = `"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"type":"object","properties":{"a":{"const":"seven"}},"required":["a"],"additionalProperties":false}}}`
	for path, c := range map[string]struct {
		body string
		at   []any
	}{
		"/v1/chat/completions": {hello + `,"max_tokens":60`, []any{"choices", 0, "message", "content"}},
		"/v1/completions":      {`"prompt":"How many?","max_tokens":60`, []any{"choices", 0, "text"}},
		"/v1/messages":         {hello + `,"max_tokens":60`, []any{"content", 0, "text"}},
		"/v1/responses":        {`"input":"How many?","max_output_tokens":60`, []any{"output", 0, "content", 0, "text"}},
	} {
		w, data := ask(t, h, "POST", path, "{"+c.body+","+form+"}")
		said, _ := at(object(t, data), c.at...).(string)
		var v map[string]string
		if err := json.Unmarshal([]byte(said), &v); err != nil || v["a"] != "seven" || w.Header.Get("Windrow-Ignored") != "" {
			t.Errorf("%s: %q, %v: %s", path, said, err, data)
		}
	}
}
