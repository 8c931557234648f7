package server

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"windrow/decoder"
)

// TestResponsesLogprobs: a response's text has the logprobs that a chat's has, whole and
// in the deltas of a stream, where each delta has those of its own text.
func TestResponsesLogprobs(t *testing.T) {
	h := httptest.NewServer(New(open(t), Options{}))
	defer h.Close()
	const question = `"seed":5,"temperature":0.8,"mode":"verified"`
	w, data := ask(t, h, "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"Maya has 4 crates with 12 apples each. How many apples?"}],"max_tokens":40,"logprobs":true,"top_logprobs":3,`+question+`}`)
	if w.StatusCode != 200 {
		t.Fatalf("%s", data)
	}
	v := object(t, data)
	content := at(v, "choices", 0, "message", "content").(string)
	want := list(at(v, "choices", 0, "logprobs", "content"))
	const asked = `{"input":"Maya has 4 crates with 12 apples each. How many apples?","max_output_tokens":40,"include":["reasoning.encrypted_content","message.output_text.logprobs"],"top_logprobs":3,` + question
	w, data = ask(t, h, "POST", "/v1/responses", asked+`}`)
	v = object(t, data)
	part := at(v, "output", 0, "content", 0)
	if w.StatusCode != 200 || len(want) < 10 || at(part, "text") != content || text(at(part, "logprobs")) != text(want) || at(v, "top_logprobs") != 3.0 {
		t.Errorf("%d, %d tokens: %s\nwant %s %s", w.StatusCode, len(want), data, content, text(want))
	}
	w, data = ask(t, h, "POST", "/v1/responses", asked+`,"stream":true}`)
	if w.StatusCode != 200 {
		t.Fatalf("%s", data)
	}
	var got []any
	for line := range strings.Lines(string(data)) {
		line, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var e any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		likely := list(at(e, "logprobs"))
		if at(e, "type") != "response.output_text.delta" {
			if len(likely) > 0 {
				t.Errorf("%s", line)
			}
			continue
		}
		var raw []byte
		for _, x := range likely {
			for _, b := range list(at(x, "bytes")) {
				raw = append(raw, byte(b.(float64)))
			}
		}
		if string(raw) != at(e, "delta") {
			t.Errorf("%q has the tokens of %q", at(e, "delta"), raw)
		}
		got = append(got, likely...)
	}
	if text(got) != text(want) {
		t.Errorf("streamed %s\nwant %s", text(got), text(want))
	}
	w, data = ask(t, h, "POST", "/v1/responses", `{"input":"a","max_output_tokens":3,`+question+`}`)
	if v := object(t, data); len(list(at(v, "output", 0, "content", 0, "logprobs"))) != 0 || at(v, "top_logprobs") != 0.0 {
		t.Errorf("nobody asked: %d %s", w.StatusCode, data)
	}
	w, data = ask(t, h, "POST", "/v1/responses", `{"input":"a","top_logprobs":3}`)
	if w.StatusCode != 400 || at(object(t, data), "error", "param") != "top_logprobs" {
		t.Errorf("top_logprobs alone: %d %s", w.StatusCode, data)
	}
}

// TestLikelyParts: parts get the tokens of their own bytes, each token once: not those of
// the tags between them, nor those of an earlier part with the same text.
func TestLikelyParts(t *testing.T) {
	g := &run{model: fake(t, &script{}), params: &params{logprobs: new(int)}}
	ids, err := g.model.Tokenizer.Encode("7 apples</think>\n\n7 apples and 8 pears")
	if err != nil {
		t.Fatal(err)
	}
	l := g.likely()
	for _, id := range ids {
		l.tell([]decoder.Logprobs{{Token: decoder.Logprob{ID: id}}})
	}
	var last string
	for i, part := range []string{"7 apples", "7 ap", "ples and", "", "not there", " 8 pears"} {
		raw := ""
		for _, x := range l.take(part) {
			raw += string(x.Bytes)
		}
		// A token across two parts is the first one's.
		if whole := last + raw; i == 1 || i == 2 {
			if last = whole; !strings.HasPrefix("7 apples and", last) || len(last) < len("7 ap") {
				t.Errorf("part %d, %q: %q", i, part, whole)
			}
		} else if (part == "not there") != (raw == "" && part != "") || part != "not there" && raw != part {
			t.Errorf("part %d, %q: %q", i, part, raw)
		}
	}
	if last != "7 apples and" || len(l.tokens) != 0 {
		t.Errorf("%q, %d tokens are left", last, len(l.tokens))
	}
	var none *likely
	if none.tell(nil); none.take("a") != nil {
		t.Error("nobody asked")
	}
}
