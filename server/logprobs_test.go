package server

import (
	"fmt"
	"math"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"windrow/decoder"
)

// TestLogprobs: whole and streamed they are the same, and so they are in ar and in
// verified, sampled or held to a form; nothing but they changes where they are asked for.
func TestLogprobs(t *testing.T) {
	h := httptest.NewServer(New(open(t), Options{}))
	defer h.Close()
	const question = `{"messages":[{"role":"user","content":"Maya has 4 crates with 12 apples each. How many apples?"}],"seed":5,"max_tokens":40`
	chat := func(more string) (content string, likely []any) {
		w, data := ask(t, h, "POST", "/v1/chat/completions", question+more+"}")
		if w.StatusCode != 200 {
			t.Fatalf("%s: %s", more, data)
		}
		if !strings.Contains(more, `"stream":true`) {
			v := object(t, data)
			content, _ = at(v, "choices", 0, "message", "content").(string)
			return content, list(at(v, "choices", 0, "logprobs", "content"))
		}
		events, done := chunks(t, data)
		if !done {
			t.Fatalf("%s", data)
		}
		for _, c := range events {
			piece, _ := at(c, "choices", 0, "delta", "content").(string)
			content += piece
			likely = append(likely, list(at(c, "choices", 0, "logprobs", "content"))...)
		}
		return content, likely
	}
	for _, form := range []string{``, `,"temperature":0.9,"top_p":0.9,"repetition_penalty":1.2`, `,"regex":"#### [0-9]{1,3}"`, `,"temperature":1.2,"regex":"[a-z ]{1,30}"`, `,"stop":"es"`, `,"logit_bias":{"5":-100}`} {
		plain, none := chat(form + `,"mode":"ar"`)
		if len(none) > 0 {
			t.Fatalf("nobody asked: %v", none)
		}
		text0, want := chat(form + `,"mode":"ar","logprobs":true,"top_logprobs":3`)
		if text0 != plain || len(want) == 0 {
			t.Fatalf("%s: %q with logprobs, %q without", form, text0, plain)
		}
		var raw []byte
		for _, x := range want {
			lp, top := at(x, "logprob").(float64), list(at(x, "top_logprobs"))
			if lp > 0 || len(top) != 3 {
				t.Fatalf("%s: %v", form, x)
			}
			before := math.Inf(1)
			for _, y := range top {
				p := at(y, "logprob").(float64)
				if p > before || lp > at(top, 0, "logprob").(float64) {
					t.Errorf("%s: %v", form, x)
				}
				before = p
			}
			if form == "" && (at(top, 0, "logprob") != lp || at(top, 0, "token") != at(x, "token")) {
				t.Errorf("greedy takes the likeliest: %v", x)
			}
			for _, b := range list(at(x, "bytes")) {
				raw = append(raw, byte(b.(float64)))
			}
		}
		if !strings.HasPrefix(string(raw), plain) || !strings.Contains(form, "stop") && string(raw) != plain {
			t.Errorf("%s: bytes %q, content %q", form, raw, plain)
		}
		for _, more := range []string{`,"mode":"ar","stream":true`, `,"mode":"verified","window":4`, `,"mode":"verified","window":16,"stream":true`, `,"mode":"verified"`} {
			if content, got := chat(form + more + `,"logprobs":true,"top_logprobs":3`); content != plain || text(got) != text(want) {
				t.Errorf("%s%s: %q %s, want %q %s", form, more, content, text(got), plain, text(want))
			}
		}
	}
	for _, stream := range []string{`,"stream":true`, ``} {
		content, likely := chat(`,"mode":"wedlm","window":8,"logprobs":true` + stream)
		if content == "" || len(likely) == 0 || len(list(at(likely, 0, "top_logprobs"))) != 0 || !has(likely[0], "top_logprobs") {
			t.Errorf("wedlm: %q %v", content, likely)
		}
	}
}

// TestLogprobsOfManyTokens: however many tokens a step brings, an event is a line that
// clients can read, and no token is left out.
func TestLogprobsOfManyTokens(t *testing.T) {
	const n = 1000
	s := &script{pieces: []string{strings.Repeat("x", n)}}
	h := serving(t, s, Options{})
	for path, body := range map[string]string{"/v1/chat/completions": hello + `,"logprobs":true,"top_logprobs":20`, "/v1/completions": `"prompt":"a","logprobs":20`} {
		_, data := ask(t, h, "POST", path, "{"+body+`,"stream":true}`)
		for line := range strings.SplitSeq(string(data), "\n") {
			if len(line) > 64<<10 {
				t.Errorf("%s: a line of %d bytes", path, len(line))
			}
		}
		events, done := chunks(t, data)
		tokens, ends := 0, 0
		for _, c := range events {
			p := at(c, "choices", 0, "logprobs")
			tokens += len(list(at(p, "content"))) + len(list(at(p, "tokens")))
			if at(c, "choices", 0, "finish_reason") != nil {
				ends++
			}
		}
		if tokens != n || !done || ends != 1 {
			t.Errorf("%s: %d tokens, want %d; %d ends", path, tokens, n, ends)
		}
	}
}

// TestCompletionLogprobs: the older form, whole and streamed.
func TestCompletionLogprobs(t *testing.T) {
	h := httptest.NewServer(New(open(t), Options{}))
	defer h.Close()
	const body = `{"prompt":["<|im_start|>user\nMaya has 4 crates.<|im_end|>\n<|im_start|>assistant\n","4 crates of 12"],"seed":5,"n":2,"temperature":0.8,"max_tokens":20,"logprobs":2`
	w, data := ask(t, h, "POST", "/v1/completions", body+`,"mode":"ar"}`)
	if w.StatusCode != 200 {
		t.Fatalf("%s", data)
	}
	whole := object(t, data)
	var want []map[string][]any
	for i, c := range list(whole["choices"]) {
		said, _ := at(c, "text").(string)
		p := map[string][]any{}
		for key, v := range at(c, "logprobs").(map[string]any) {
			p[key] = list(v)
		}
		n := len(p["tokens"])
		if n == 0 || len(p["token_logprobs"]) != n || len(p["top_logprobs"]) != n || len(p["text_offset"]) != n || len(p["bytes"]) != n || at(c, "index") != float64(i) {
			t.Fatalf("%v", p)
		}
		for k := range n {
			token, offset := p["tokens"][k].(string), int(p["text_offset"][k].(float64))
			if !strings.HasPrefix(token, "bytes:") && !strings.HasPrefix(string([]rune(said)[offset:]), token) {
				t.Errorf("token %q is not at %d of %q", token, offset, said)
			}
			top := p["top_logprobs"][k].(map[string]any)
			if top[token] != p["token_logprobs"][k] || len(top) < 2 || len(top) > 3 {
				t.Errorf("token %q %v: %v", token, p["token_logprobs"][k], top)
			}
		}
		want = append(want, p)
	}
	if len(want) != 4 {
		t.Fatalf("%d choices", len(want))
	}
	for _, mode := range []string{"ar", "verified"} {
		_, data = ask(t, h, "POST", "/v1/completions", body+`,"stream":true,"mode":"`+mode+`"}`)
		got := make([]map[string][]any, len(want))
		events, done := chunks(t, data)
		for _, c := range events {
			i := int(at(c, "choices", 0, "index").(float64))
			if got[i] == nil {
				got[i] = map[string][]any{}
			}
			p, _ := at(c, "choices", 0, "logprobs").(map[string]any)
			for key, v := range p {
				got[i][key] = append(got[i][key], list(v)...)
			}
		}
		if !done || text(got) != text(want) {
			t.Errorf("%s, streamed %s, whole %s", mode, text(got), text(want))
		}
	}
	// A prompt's text is its own, whatever is asked beside it.
	_, data = ask(t, h, "POST", "/v1/completions", strings.Replace(body, `["<|im_start|>user\nMaya has 4 crates.<|im_end|>\n<|im_start|>assistant\n",`, `[`, 1)+`,"mode":"ar"}`)
	alone := object(t, data)
	for i := range 2 {
		if got, want := at(alone, "choices", i, "text"), at(whole, "choices", 2+i, "text"); got != want {
			t.Errorf("alone %q, beside another %q", got, want)
		}
	}
}

// TestEchoLogprobs: a prompt's tokens are told of with what was said of them when they
// were generated, the first with nothing; the same whole and streamed, in each mode, alone
// and among others, when the prompt is cached, and where nothing is generated.
func TestEchoLogprobs(t *testing.T) {
	m := open(t)
	h := httptest.NewServer(New(m, Options{}))
	defer h.Close()
	complete := func(body string) (said string, p map[string][]any, reply map[string]any) {
		t.Helper()
		w, data := ask(t, h, "POST", "/v1/completions", body)
		if w.StatusCode != 200 {
			t.Fatalf("%s: %s", body, data)
		}
		p = map[string][]any{}
		add := func(c any) {
			piece, _ := at(c, "choices", 0, "text").(string)
			said += piece
			likely, _ := at(c, "choices", 0, "logprobs").(map[string]any)
			for key, v := range likely {
				p[key] = append(p[key], list(v)...)
			}
		}
		if strings.Contains(body, `"stream":true`) {
			events, done := chunks(t, data)
			for _, c := range events {
				add(c)
				if n := len(list(at(c, "choices", 0, "logprobs", "tokens"))); n > mostLikely {
					t.Errorf("%d tokens in a chunk", n)
				}
			}
			if !done {
				t.Errorf("%s", data)
			}
			return said, p, events[len(events)-1]
		}
		reply = object(t, data)
		add(reply)
		return said, p, reply
	}
	begin := "<|im_start|>user\n" + strings.Repeat("Maya has 4 crates with 12 apples each — naïve, 東京. ", 40) + "How many apples?<|im_end|>\n<|im_start|>assistant\n"
	ids, err := m.Tokenizer.Encode(begin)
	if err != nil || len(ids) < 600 {
		t.Fatalf("%d tokens, %v: want more than one chunk", len(ids), err)
	}
	answer, likely, _ := complete(`{"prompt":` + text(ids) + `,"mode":"ar","max_tokens":30,"logprobs":2}`)
	n := len(likely["tokens"])
	more, err := m.Tokenizer.Encode(answer)
	if err != nil || len(more) != n {
		t.Fatalf("%q is %d tokens, was %d, %v", answer, len(more), n, err)
	}
	all := `{"prompt":` + text(append(ids, more...)) + `,"echo":true,"logprobs":2,"seed":1`

	want, told, reply := complete(all + `,"max_tokens":0}`)
	if want != begin+answer || at(reply, "choices", 0, "finish_reason") != "length" || at(reply, "usage", "completion_tokens") != 0.0 || at(reply, "usage", "prompt_tokens") != float64(len(ids)+n) {
		t.Errorf("%q, %v", want, reply)
	}
	for key, v := range told {
		if len(v) != len(ids)+n {
			t.Fatalf("%d %s of %d tokens", len(v), key, len(ids)+n)
		}
		if key != "text_offset" && text(v[len(ids):]) != text(likely[key]) {
			t.Errorf("%s: %v, when they were generated %v", key, v[len(ids):], likely[key])
		}
	}
	if told["token_logprobs"][0] != nil || told["top_logprobs"][0] != nil || told["token_logprobs"][1] == nil {
		t.Errorf("%v %v", told["token_logprobs"][:2], told["top_logprobs"][:2])
	}
	for k := range told["tokens"] {
		token, offset := told["tokens"][k].(string), int(told["text_offset"][k].(float64))
		if !strings.HasPrefix(token, "bytes:") && !strings.HasPrefix(string([]rune(want)[offset:]), token) {
			t.Errorf("token %q is not at %d of %q", token, offset, want)
		}
	}

	// With an answer behind it, by each way.
	want, told, _ = complete(all + `,"mode":"ar","max_tokens":5}`)
	bodies := []string{`,"mode":"ar"`, `,"mode":"verified"`, `,"mode":"verified","window":4,"stream":true`, `,"stream":true`}
	var wait sync.WaitGroup
	for range 3 {
		for _, body := range bodies {
			wait.Go(func() {
				got, p, _ := complete(all + body + `,"max_tokens":5}`)
				if got != want || text(p) != text(told) {
					t.Errorf("%s: %q %s, want %q %s", body, got, text(p), want, text(told))
				}
			})
		}
		wait.Go(func() { complete(`{"prompt":` + text(ids) + `,"max_tokens":20}`) })
	}
	wait.Wait()
	_, p, _ := complete(all + `,"mode":"wedlm","window":8,"max_tokens":5}`)
	for key, v := range p {
		if text(v[:len(ids)+n]) != text(told[key][:len(ids)+n]) {
			t.Errorf("wedlm tells other %s of the prompt", key)
		}
	}

	// One token; none that are told of; a text with special tokens in it, for two choices.
	if said, p, _ := complete(`{"prompt":[5],"echo":true,"logprobs":0,"max_tokens":0}`); said == "" || text(p["token_logprobs"]) != "[null]" {
		t.Errorf("%q %v", said, p)
	}
	if said, p, _ := complete(`{"prompt":"a b c","max_tokens":0,"stream":true}`); said != "" || len(p) > 0 {
		t.Errorf("%q %v", said, p)
	}
	_, data := ask(t, h, "POST", "/v1/completions", `{"prompt":"<|im_start|>user\n1 + 1<|im_end|>","echo":true,"logprobs":1,"n":2,"temperature":1,"max_tokens":3}`)
	a, b := at(object(t, data), "choices", 0, "logprobs", "token_logprobs"), at(object(t, data), "choices", 1, "logprobs", "token_logprobs")
	if len(list(a)) < 6 || text(list(a)[:6]) != text(list(b)[:6]) || at(object(t, data), "choices", 0, "logprobs", "tokens", 0) != "<|im_start|>" {
		t.Errorf("%s", data)
	}
}

// TestLikelyTokens: tokens that are no whole characters, and special ones.
func TestLikelyTokens(t *testing.T) {
	tok := tokens(t, toolTemplate)
	ids, err := tok.EncodePlain("é😀")
	if err != nil {
		t.Fatal(err)
	}
	parts := 0
	var o offsets
	for _, id := range append(ids, 4094) {
		x := likelyOf(tok, decoder.Logprob{ID: id, Logprob: float32(math.Inf(-1))})
		if !utf8.Valid(x.Bytes) {
			parts++
			if !strings.HasPrefix(x.name(), `bytes:\x`) || !utf8.ValidString(x.Token) {
				t.Errorf("%+v is called %q", x, x.name())
			}
		}
		if x.Logprob != leastLogprob {
			t.Errorf("%v", x.Logprob)
		}
		o.add(tok.Bytes(id))
	}
	if parts == 0 || o.characters != 2 {
		t.Errorf("%d parts, %d characters", parts, o.characters)
	}
	if x := likelyOf(tok, decoder.Logprob{ID: 4094}); x.Token != "<|im_end|>" || string(x.Bytes) != x.Token {
		t.Errorf("%+v", x)
	}
	data, err := likeliest{{"b", -1, []byte("b")}, {"a", -2.5, []byte("a")}, {"b", -1, []byte("b")}}.MarshalJSON()
	if err != nil || string(data) != `{"b":-1,"a":-2.5}` {
		t.Errorf("%s %v", data, err)
	}
}

// TestPrompts: several in one completion, and their texts before the answers.
func TestPrompts(t *testing.T) {
	for _, stream := range []bool{false, true} {
		s := &script{pieces: []string{"x", "y"}}
		h := serving(t, s, Options{})
		_, data := ask(t, h, "POST", "/v1/completions", fmt.Sprintf(`{"prompt":["a b","c"],"n":2,"echo":true,"stream":%t,"stream_options":%s}`, stream, map[bool]string{true: `{"include_usage":true}`, false: "null"}[stream]))
		texts := [4]string{}
		var u any
		if stream {
			events, done := chunks(t, data)
			for _, c := range events {
				if i, ok := at(c, "choices", 0, "index").(float64); ok {
					piece, _ := at(c, "choices", 0, "text").(string)
					texts[int(i)] += piece
				}
			}
			u = events[len(events)-1]["usage"]
			if !done {
				t.Errorf("%s", data)
			}
		} else {
			v := object(t, data)
			for i := range texts {
				texts[i], _ = at(v, "choices", i, "text").(string)
			}
			u = v["usage"]
		}
		if texts != [4]string{"a bxy", "a bxy", "cxy", "cxy"} {
			t.Errorf("%q: %s", texts, data)
		}
		seeds := map[uint64]int{}
		for _, q := range s.requests {
			seeds[q.Options.Sampling.Seed]++
		}
		if len(s.requests) != 4 || len(seeds) != 2 || at(u, "prompt_tokens") != float64(len(s.requests[0].Prompt)+len(s.requests[2].Prompt)) || at(u, "completion_tokens") != 12.0 {
			t.Errorf("%d requests, seeds %v, usage %v", len(s.requests), seeds, u)
		}
	}
	s := &script{pieces: []string{"x"}}
	_, data := ask(t, serving(t, s, Options{}), "POST", "/v1/completions", `{"prompt":[[4094,5],[6]],"echo":true}`)
	if v := object(t, data); at(v, "choices", 0, "text") != tokens(t, toolTemplate).Decode([]int32{4094, 5}, false)+"x" || len(s.requests[1].Prompt) != 1 {
		t.Errorf("%s", data)
	}
}
