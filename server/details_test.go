package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"windrow/decoder"
	"windrow/schedule"
)

// reply is what a request of a conversation got, whole or joined from its chunks.
type reply struct {
	status int
	header http.Header
	body   []byte
	object map[string]any   // whole
	chunks []map[string]any // streamed
	done   bool
}

// chatWith asks a script.
func chatWith(t *testing.T, s *script, body string) (r reply) {
	t.Helper()
	h := serving(t, s, Options{})
	w, data := ask(t, h, "POST", "/v1/chat/completions", "{"+body+"}")
	r = reply{status: w.StatusCode, header: w.Header, body: data}
	if strings.HasPrefix(w.Header.Get("Content-Type"), "text/event-stream") {
		r.chunks, r.done = chunks(t, data)
	} else {
		r.object = object(t, data)
	}
	return r
}

// deltas are the deltas of a choice's chunks, in order.
func (r reply) deltas(index int) (list []map[string]any) {
	for _, c := range r.chunks {
		if at(c, "choices", 0, "index") == float64(index) {
			list = append(list, at(c, "choices", 0, "delta").(map[string]any))
		}
	}
	return list
}

func (r reply) joined(key string) (s string) {
	for _, d := range r.deltas(0) {
		if v, ok := d[key].(string); ok {
			s += v
		}
	}
	return s
}

// TestDetails are those things that have broken clients of servers: the numbers are
// those of docs/api.md.
func TestDetails(t *testing.T) {
	calling := func() *script {
		return &script{pieces: []string{"Let me see.\n<tool", "_call>\n{\"name\": \"add\", \"argu", "ments\": {\"a\": 1}}\n</tool_call>\n" + strings.Replace(addCall, "1", "2", 1)}}
	}
	calls := func(t *testing.T) reply { return chatWith(t, calling(), hello+","+adder+`,"stream":true`) }
	plain := func() *script { return &script{pieces: []string{"Hi ", "there"}} }
	check := func(t *testing.T, ok bool, what ...any) {
		t.Helper()
		if !ok {
			t.Error(what...)
		}
	}
	for _, c := range []struct {
		number int
		what   string
		test   func(t *testing.T)
	}{
		{1, "index in every chunk", func(t *testing.T) {
			r := chatWith(t, plain(), hello+`,"stream":true,"n":2`)
			for _, c := range r.chunks {
				check(t, has(c, "index", "choices", 0), c)
			}
			check(t, len(r.deltas(0)) == 4 && len(r.deltas(1)) == 4, string(r.body))
		}},
		{2, "no null calls or roles in deltas", func(t *testing.T) {
			for _, d := range append(calls(t).deltas(0), chatWith(t, plain(), hello+`,"stream":true`).deltas(0)...) {
				for key, v := range d {
					check(t, v != nil, key, "is null")
				}
			}
		}},
		{3, "calls are counted 0, 1, 2", func(t *testing.T) {
			var begun []float64
			for _, d := range calls(t).deltas(0) {
				for _, call := range list(d["tool_calls"]) {
					i, ok := at(call, "index").(float64)
					check(t, ok, call)
					if has(call, "id") {
						begun = append(begun, i)
					}
				}
			}
			check(t, fmt.Sprint(begun) == "[0 1]", begun)
		}},
		{4, "id, type and name in a call's first delta only, ids unique", func(t *testing.T) {
			seen := map[any]bool{}
			begun := map[any]bool{}
			for _, d := range calls(t).deltas(0) {
				for _, call := range list(d["tool_calls"]) {
					i := at(call, "index")
					first := !begun[i]
					begun[i] = true
					check(t, has(call, "id") == first && has(call, "type") == first && has(call, "name", "function") == first, call)
					if first {
						check(t, !seen[at(call, "id")], "twice", call)
						seen[at(call, "id")] = true
					}
				}
			}
			check(t, len(seen) == 2, seen)
		}},
		{5, "arguments are a string, {} for none", func(t *testing.T) {
			r := chatWith(t, &script{pieces: []string{"<tool_call>\n{\"name\": \"add\"}\n</tool_call>"}}, hello+","+adder)
			check(t, at(r.object, "choices", 0, "message", "tool_calls", 0, "function", "arguments") == "{}", string(r.body))
		}},
		{6, "finish reason tool_calls", func(t *testing.T) {
			r := calls(t)
			check(t, at(r.chunks[len(r.chunks)-1], "choices", 0, "finish_reason") == "tool_calls", string(r.body))
		}},
		{7, "length where a call was cut", func(t *testing.T) {
			r := chatWith(t, &script{pieces: []string{addCall[:45]}, limit: true}, hello+","+adder)
			check(t, at(r.object, "choices", 0, "finish_reason") == "length", string(r.body))
		}},
		{8, "one finish reason, null before", func(t *testing.T) {
			r := chatWith(t, plain(), hello+`,"stream":true,"n":3`)
			ends := map[any]int{}
			for _, c := range r.chunks {
				check(t, has(c, "finish_reason", "choices", 0), c)
				if at(c, "choices", 0, "finish_reason") != nil {
					ends[at(c, "choices", 0, "index")]++
				}
			}
			check(t, len(ends) == 3 && ends[0.0] == 1 && ends[1.0] == 1 && ends[2.0] == 1, ends)
		}},
		{9, "content null beside calls, refusal null", func(t *testing.T) {
			r := chatWith(t, &script{pieces: []string{addCall}}, hello+","+adder)
			m := at(r.object, "choices", 0, "message").(map[string]any)
			check(t, has(m, "content") && m["content"] == nil && has(m, "refusal") && m["refusal"] == nil, m)
		}},
		{10, "usage only when asked", func(t *testing.T) {
			for _, c := range chatWith(t, plain(), hello+`,"stream":true`).chunks {
				check(t, !has(c, "usage"), c)
			}
		}},
		{11, "the usage chunk has no choices", func(t *testing.T) {
			s := plain()
			s.cached = 3
			r := chatWith(t, s, hello+`,"stream":true,"stream_options":{"include_usage":true}`)
			for i, c := range r.chunks {
				last := i == len(r.chunks)-1
				check(t, has(c, "usage") && (c["usage"] != nil) == last && (len(list(c["choices"])) == 0) == last && has(c, "choices"), c)
				if last {
					check(t, at(c, "usage", "prompt_tokens_details", "cached_tokens") == 3.0 && at(c, "usage", "completion_tokens") == 9.0, c)
				}
			}
		}},
		{12, "[DONE] last and once", func(t *testing.T) {
			r := chatWith(t, plain(), hello+`,"stream":true,"n":2`)
			check(t, r.done && strings.Count(string(r.body), "[DONE]") == 1, string(r.body))
		}},
		{13, "one id, created, model and object in all chunks", func(t *testing.T) {
			r := chatWith(t, plain(), hello+`,"stream":true,"n":2`)
			for _, c := range r.chunks {
				for _, key := range []string{"id", "created", "model", "object", "system_fingerprint"} {
					check(t, c[key] != nil && c[key] == r.chunks[0][key], key, c)
				}
			}
			check(t, r.chunks[0]["object"] == "chat.completion.chunk", r.chunks[0])
			check(t, chatWith(t, plain(), hello).object["object"] == "chat.completion")
		}},
		{14, "content types", func(t *testing.T) {
			check(t, chatWith(t, plain(), hello+`,"stream":true`).header.Get("Content-Type") == "text/event-stream")
			check(t, chatWith(t, plain(), hello).header.Get("Content-Type") == "application/json")
			check(t, chatWith(t, plain(), ``).header.Get("Content-Type") == "application/json")
		}},
		{15, "an event is a line under 64 KiB", func(t *testing.T) {
			long := strings.Repeat("<\n", 400_000)
			r := chatWith(t, &script{pieces: []string{long}}, hello+`,"stream":true`)
			for line := range strings.SplitSeq(string(r.body), "\n") {
				check(t, len(line) < 64<<10, len(line))
			}
			check(t, r.joined("content") == long)
		}},
		{17, "never half a character", func(t *testing.T) {
			r := chatWith(t, &script{pieces: []string{"a😀é", "😀"}}, hello+`,"stream":true`)
			check(t, r.joined("content") == "a😀é😀" && !strings.Contains(string(r.body), "\ufffd"), string(r.body))
		}},
		{18, "text around calls is kept", func(t *testing.T) {
			r := chatWith(t, &script{pieces: []string{"before " + addCall + " after"}}, hello+","+adder)
			content, _ := at(r.object, "choices", 0, "message", "content").(string)
			check(t, strings.Contains(content, "before") && strings.Contains(content, "after"), string(r.body))
		}},
		{19, "no byte of a call is lost when tokens come at once", func(t *testing.T) {
			for _, n := range []int{1, 2, 3, 7, 1000} {
				var pieces []string
				for rest := addCall; rest != ""; {
					k := min(n, len(rest))
					pieces, rest = append(pieces, rest[:k]), rest[k:]
				}
				var arguments string
				for _, d := range chatWith(t, &script{pieces: pieces}, hello+","+adder+`,"stream":true`).deltas(0) {
					for _, call := range list(d["tool_calls"]) {
						arguments += at(call, "function", "arguments").(string)
					}
				}
				check(t, arguments == `{"a": 1}`, n, arguments)
			}
		}},
		{20, "tool messages without name; content null, string or parts", func(t *testing.T) {
			r := chatWith(t, plain(), `"messages":[{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"add","arguments":"{}"}}]},
				{"role":"tool","tool_call_id":"c","content":null},{"role":"tool","tool_call_id":"c","content":"2"},{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"3"}]}]`)
			check(t, r.status == 200, string(r.body))
		}},
		{21, "parts are joined; an unknown one is refused by name", func(t *testing.T) {
			s := plain()
			chatWith(t, s, `"messages":[{"role":"user","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]}]`)
			check(t, strings.Contains(tokens(t, toolTemplate).Decode(s.requests[0].Prompt, false), "one\ntwo"))
			r := chatWith(t, plain(), `"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]`)
			check(t, r.status == 400 && at(r.object, "error", "param") == "messages[0].content[0].type", string(r.body))
		}},
		{22, "arguments of history that are no JSON", func(t *testing.T) {
			s := plain()
			r := chatWith(t, s, `"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"add","arguments":"{broken"}}]},{"role":"user","content":"x"}]`)
			check(t, r.status == 200 && strings.Contains(tokens(t, toolTemplate).Decode(s.requests[0].Prompt, false), "{broken"), string(r.body))
		}},
		{23, "max_completion_tokens, which wins", func(t *testing.T) {
			s := plain()
			chatWith(t, s, hello+`,"max_tokens":9,"max_completion_tokens":7`)
			chatWith(t, s, hello+`,"max_tokens":9`)
			chatWith(t, s, hello)
			check(t, s.requests[0].Options.MaxTokens == 7 && s.requests[1].Options.MaxTokens == 9)
			check(t, s.requests[2].Options.MaxTokens == 1000-len(s.requests[2].Prompt), s.requests[2].Options.MaxTokens)
		}},
		{24, "stop as string, list, null and []", func(t *testing.T) {
			for given, want := range map[string]string{`"the"`: "Hi ", `["x","ere"]`: "Hi th", `null`: "Hi there", `[]`: "Hi there"} {
				for _, more := range []string{``, `,"stream":true`} {
					r := chatWith(t, plain(), hello+`,"stop":`+given+more)
					got, _ := at(r.object, "choices", 0, "message", "content").(string)
					check(t, got+r.joined("content") == want, given, string(r.body))
				}
			}
		}},
		{25, "null is absence", func(t *testing.T) {
			body := hello
			for _, name := range []string{"temperature", "top_p", "top_k", "n", "stop", "max_tokens", "tools", "tool_choice", "stream", "stream_options", "seed", "logprobs", "logit_bias", "response_format", "user", "mode", "window", "functions"} {
				body += `,"` + name + `":null`
			}
			r := chatWith(t, plain(), body)
			check(t, r.status == 200 && r.header.Get("Windrow-Ignored") == "", string(r.body))
		}},
		{26, "temperature 0 is greedy, absent the model's", func(t *testing.T) {
			s := plain()
			m := fake(t, s)
			f := float32(0.6)
			m.Generation = generation(&f)
			p := params{}
			check(t, p.options(m, 0).Sampling.Temperature == 0.6)
			zero := float32(0)
			p.sampling.temperature = &zero
			check(t, p.options(m, 0).Sampling.Temperature == 0)
			m.Generation.DoSample = new(bool)
			check(t, (&params{}).options(m, 0).Sampling.Temperature == 0)
		}},
		{27, "an unknown model is 404, or any is taken", func(t *testing.T) {
			r := chatWith(t, plain(), hello+`,"model":"gpt-4"`)
			check(t, r.status == 404 && at(r.object, "error", "code") == "model_not_found", string(r.body))
			w, _ := ask(t, serving(t, plain(), Options{AnyModel: true}), "POST", "/v1/chat/completions", `{"model":"gpt-4",`+hello+`}`)
			check(t, w.StatusCode == 200)
		}},
		{28, "any key where none are set", func(t *testing.T) {
			w, _ := ask(t, serving(t, plain(), Options{}), "GET", "/v1/models", "", "Authorization", "Bearer whatever")
			check(t, w.StatusCode == 200)
		}},
		{29, "a final slash; OPTIONS", func(t *testing.T) {
			h := serving(t, plain(), Options{})
			for _, path := range []string{"/v1/models/", "/models", "/v1/models/fake/model", "/models/fake/model/"} {
				w, data := ask(t, h, "GET", path, "")
				check(t, w.StatusCode == 200, path, string(data))
			}
			w, _ := ask(t, h, "OPTIONS", "/v1/chat/completions", "")
			check(t, w.StatusCode == 204 && strings.Contains(w.Header.Get("Allow"), "POST"))
		}},
		{30, "too long is 400 with the code, before the stream", func(t *testing.T) {
			r := chatWith(t, plain(), hello+`,"stream":true,"max_tokens":1000`)
			check(t, r.status == 400 && at(r.object, "error", "code") == "context_length_exceeded", string(r.body))
		}},
		{31, "Retry-After on 429 and 503", func(t *testing.T) {
			r := chatWith(t, &script{submit: &schedule.FullError{What: "the queue", RetryAfter: 1500 * time.Millisecond}}, hello)
			check(t, r.status == 429 && r.header.Get("Retry-After") == "2" && at(r.object, "error", "code") == "queue_full", string(r.body), r.header)
			r = chatWith(t, &script{submit: schedule.ErrDraining}, hello)
			check(t, r.status == 503 && r.header.Get("Retry-After") != "", string(r.body))
			r = chatWith(t, &script{fail: &schedule.LateError{Waited: time.Minute}}, hello+`,"stream":true`)
			check(t, r.status == 503 && at(r.object, "error", "code") == "queue_timeout", string(r.body))
		}},
		{32, "an error in a stream", func(t *testing.T) {
			r := chatWith(t, &script{pieces: []string{"Hi"}, fail: errors.New("a fault")}, hello+`,"stream":true`)
			check(t, r.status == 200 && !r.done && at(r.chunks[len(r.chunks)-1], "error", "type") == "server_error", string(r.body))
		}},
		{33, "thinking off: no reasoning", func(t *testing.T) {
			s := &script{pieces: []string{"<think>\nhm\n</think>\n\nyes"}}
			r := chatWith(t, s, hello)
			check(t, at(r.object, "choices", 0, "message", "reasoning_content") == "hm" && at(r.object, "choices", 0, "message", "content") == "yes", string(r.body))
			for _, off := range []string{`"chat_template_kwargs":{"enable_thinking":false}`, `"reasoning_effort":"none"`} {
				r = chatWith(t, s, hello+","+off+`,"stream":true`)
				check(t, r.joined("reasoning_content") == "" && strings.Contains(r.joined("content"), "hm"), string(r.body))
			}
		}},
		{37, "responses: events are numbered, errors too; no array is null", func(t *testing.T) {
			for _, s := range []*script{calling(), {}, {pieces: []string{"x"}, limit: true}, {pieces: []string{"x"}, fail: errors.New("a fault")}} {
				_, data := ask(t, serving(t, s, Options{}), "POST", "/v1/responses", `{"input":"hello","stream":true,`+responsesAdder+"}")
				events := namedEvents(t, data)
				p := followResponse(t, events) // checks both
				last := events[len(events)-1]
				check(t, s.fail == nil || last.name == "response.failed", string(data))
				check(t, last.data["sequence_number"] == float64(len(events)-1) && at(p, "output") != nil, string(data))
			}
		}},
		{38, "messages: system messages inside of a conversation stay in their place", func(t *testing.T) {
			s := plain()
			w, data := ask(t, serving(t, s, Options{}), "POST", "/v1/messages", `{"max_tokens":9,"messages":[{"role":"user","content":"one"},{"role":"assistant","content":"two"},{"role":"system","content":"three"},{"role":"user","content":"four"}]}`)
			check(t, w.StatusCode == 200 && strings.Contains(s.prompt(t), "user\none<|im_end|>\n<|im_start|>assistant\ntwo<|im_end|>\n<|im_start|>user\nthree\nfour<|im_end|>") && !strings.Contains(s.prompt(t), "system"), string(data), s.prompt(t))
		}},
		{39, "messages: message_start has usage, blocks are counted without gaps", func(t *testing.T) {
			s := calling()
			s.cached = 3
			_, data := ask(t, serving(t, s, Options{}), "POST", "/v1/messages", "{"+anthropicHello+","+anthropicAdder+`,"stream":true}`)
			events := namedEvents(t, data)
			usage := at(events[0].data, "message", "usage")
			prompt := len(s.requests[0].Prompt)
			check(t, events[0].name == "message_start" && at(usage, "input_tokens") == float64(prompt-3) && at(usage, "cache_read_input_tokens") == 3.0, string(data))
			next := 0.0
			for _, e := range events {
				if e.name == "content_block_start" {
					check(t, e.data["index"] == next, e.data)
					next++
				}
			}
			check(t, next == 3, string(data))
			usage = events[len(events)-2].data["usage"]
			check(t, at(usage, "output_tokens").(float64) > 20 && at(usage, "input_tokens") == float64(prompt-3), usage)
		}},
		{37, "earlier calls of tools that are no functions", func(t *testing.T) {
			s := plain()
			w, data := ask(t, serving(t, s, Options{}), "POST", "/v1/responses", `{"input":[{"role":"user","content":"x"},{"type":"custom_tool_call","call_id":"c","name":"patch","input":"a \"b\""},{"type":"custom_tool_call_output","call_id":"c","output":"done"}]}`)
			check(t, w.StatusCode == 200, string(data))
			prompt := tokens(t, toolTemplate).Decode(s.requests[0].Prompt, false)
			check(t, strings.Contains(prompt, "patch") && strings.Contains(prompt, `a \"b\"`) && strings.Contains(prompt, "tool\ndone"), prompt)
		}},
		{40, "a client that leaves frees its place, streamed or not", func(t *testing.T) {
			for _, more := range []string{``, `,"stream":true`} {
				s := &script{wait: make(chan struct{}), pieces: []string{"x"}}
				h := serving(t, s, Options{})
				ctx, leave := context.WithCancel(t.Context())
				r, _ := http.NewRequestWithContext(ctx, "POST", h.URL+"/v1/chat/completions", strings.NewReader("{"+hello+more+"}"))
				go func() {
					for {
						s.mutex.Lock()
						n := len(s.contexts)
						s.mutex.Unlock()
						if n > 0 {
							leave()
							return
						}
						time.Sleep(time.Millisecond)
					}
				}()
				if w, err := h.Client().Do(r); err == nil {
					w.Body.Close()
				}
				select {
				case <-s.contexts[0].Done():
				case <-time.After(time.Minute):
					t.Error("the request goes on", more)
				}
			}
		}},
	} {
		t.Run(fmt.Sprintf("%d %s", c.number, c.what), c.test)
	}
}

// TestKeepAlive is detail 16: a comment ends in one newline.
func TestKeepAlive(t *testing.T) {
	s := &script{wait: make(chan struct{}), pieces: []string{"x"}}
	h := serving(t, s, Options{KeepAlive: 20 * time.Millisecond})
	data := askPinged(t, h, s, "/v1/chat/completions", "{"+hello+`,"stream":true}`, ": ping\n", 2)
	if !strings.HasPrefix(string(data), ": ping\n: ping\n") || strings.Contains(string(data), ": ping\n\n") {
		t.Errorf("%q", data)
	}
	if list, done := chunks(t, data); !done || len(list) != 3 {
		t.Errorf("%q", data)
	}
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

// TestSeeds: a seed comes back, and choices have their own.
func TestSeeds(t *testing.T) {
	s := &script{pieces: []string{"x"}}
	r := chatWith(t, s, hello+`,"seed":-7,"n":3`)
	var seed json.Number
	d := json.NewDecoder(strings.NewReader(string(r.body)))
	d.UseNumber()
	var v map[string]any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	seed, _ = at(v, "windrow", "seed").(json.Number)
	if seed.String() != fmt.Sprint(^uint64(6)) {
		t.Errorf("seed %s", seed)
	}
	seen := map[uint64]bool{}
	for _, q := range s.requests {
		seen[q.Options.Sampling.Seed] = true
	}
	if len(seen) != 3 || !seen[^uint64(6)] {
		t.Errorf("seeds %v", seen)
	}
	if chatWith(t, s, hello).object["windrow"] == nil {
		t.Error("a random seed is not said")
	}
}

// TestObeyed: fields of sampling come to the decoder.
func TestObeyed(t *testing.T) {
	s := &script{pieces: []string{"x"}}
	r := chatWith(t, s, hello+`,"temperature":0.5,"top_p":0.9,"top_k":20,"min_p":0.1,"repetition_penalty":1.1,"presence_penalty":0.2,"frequency_penalty":-0.3,"logit_bias":{"5":-200,"6":1.5},"mode":"wedlm","window":8,"ignore_eos":true,"seed":4,"cache_salt":"s"`)
	if r.status != 200 {
		t.Fatalf("%s", r.body)
	}
	q := s.requests[0]
	got := fmt.Sprint(q.Options.Sampling, q.Options.Mode, q.Options.Window, len(q.Options.StopIDs), q.Salt)
	want := fmt.Sprint(decoder.Sampling{Temperature: 0.5, TopP: 0.9, TopK: 20, MinP: 0.1, RepetitionPenalty: 1.1, PresencePenalty: 0.2, FrequencyPenalty: -0.3,
		LogitBias: map[int32]float32{5: -100, 6: 1.5}, Seed: 4}, decoder.WeDLM, 8, 0, "\x00s")
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if q.Options.EntropyThreshold == nil {
		t.Error("a window without a threshold fills a token a step")
	}
}
