package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"windrow/decoder"
	"windrow/engine"
	"windrow/models/tinygsm"
	"windrow/schedule"
	"windrow/tokenizer"
)

// script is a Scheduler whose generations say what a test wrote: a step for each
// piece, each of as many tokens as it has characters.
type script struct {
	mutex    sync.Mutex
	pieces   []string
	limit    bool  // ends by its limit
	submit   error // what Submit fails with
	fail     error // what a generation fails with, after its pieces
	wait     chan struct{}
	requests []schedule.Request
	contexts []context.Context
	cached   int
	panics   bool
}

func (s *script) Submit(ctx context.Context, r schedule.Request) (Stream, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.panics {
		panic("a fault")
	}
	if s.submit != nil {
		return nil, s.submit
	}
	s.requests = append(s.requests, r)
	ctx, cancel := context.WithCancel(ctx)
	s.contexts = append(s.contexts, ctx)
	return &scripted{script: s, ctx: ctx, cancel: cancel, prompt: len(r.Prompt), logprobs: r.Options.Logprobs}, nil
}

func (s *script) Drain(context.Context) error { return nil }

func (s *script) State() schedule.State {
	return schedule.State{Running: 2, Waiting: 3, MemoryLimit: 4, MemoryUsed: 1}
}

func (s *script) Requests() []schedule.RequestState {
	return []schedule.RequestState{{Name: "req_1", Mode: decoder.AR, Phase: schedule.Decode, Prompt: 3, Tokens: 2, Rows: 1}}
}

type scripted struct {
	script *script
	ctx    context.Context
	cancel func()
	prompt int
	// logprobs is the request's.
	logprobs *int
	step     int
	ended    bool
}

func (s *scripted) Next(ctx context.Context) ([]decoder.Event, error) {
	if s.ended || s.ctx.Err() != nil {
		s.ended = true
		return nil, io.EOF
	}
	if s.step == 0 {
		s.step++
		return []decoder.Event{decoder.Prefilled{Done: s.prompt - s.script.cached, Total: s.prompt - s.script.cached}}, nil
	}
	if s.script.wait != nil {
		select {
		case <-s.script.wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.ctx.Done():
			return nil, io.EOF
		}
	}
	if n := s.step - 1; n < len(s.script.pieces) {
		s.step++
		var events []decoder.Event
		for _, r := range s.script.pieces[n] {
			events = append(events, decoder.Token(1))
			if s.logprobs != nil {
				top := make([]decoder.Logprob, *s.logprobs)
				events = append(events, decoder.Logprobs{Token: decoder.Logprob{ID: 1}, Top: top})
			}
			events = append(events, decoder.Text(string(r)))
		}
		return append(events, decoder.Step{}), nil
	}
	s.ended = true
	if s.script.fail != nil {
		return nil, s.script.fail
	}
	reason := decoder.FinishStop
	if s.script.limit {
		reason = decoder.FinishLength
	}
	return []decoder.Event{decoder.Token(2), decoder.Finished{Reason: reason}}, nil
}

func (s *scripted) Summary() decoder.Summary {
	return decoder.Summary{Stats: decoder.Stats{Forwards: s.step}}
}
func (s *scripted) Timings() schedule.Timings { return schedule.Timings{Decode: time.Second} }
func (s *scripted) Cancel()                   { s.cancel() }

// Templates in the manner of Qwen's: with calls, and with a switch for thinking.
const (
	toolTemplate = `{%- if tools %}{{- '<|im_start|>system\n<tool_call>{"name": , "arguments": }</tool_call>' + tools|tojson + '<|im_end|>\n' }}{%- endif %}` +
		`{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' + m.content }}{%- if m.tool_calls %}{{- m.tool_calls|tojson }}{%- endif %}{{- '<|im_end|>\n' }}{%- endfor %}` +
		`{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}{%- endif %}`
	failingTemplate = `{{- raise_exception('roles must alternate') }}`
)

// tokens is the embedded model's tokenizer with another template.
func tokens(t testing.TB, template string) *tokenizer.Tokenizer {
	t.Helper()
	if !tinygsm.Available {
		t.Skip("built without the embedded model")
	}
	tokenizers.Lock()
	defer tokenizers.Unlock()
	if known := tokenizers.known[template]; known != nil {
		return known
	}
	config, err := json.Marshal(map[string]string{"chat_template": template, "eos_token": "<|im_end|>"})
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.New(tinygsm.Files()["tokenizer.json"], config)
	if err != nil {
		t.Fatal(err)
	}
	tokenizers.known[template] = tok
	return tok
}

// tokenizers are those that were made, by their template.
var tokenizers = struct {
	sync.Mutex
	known map[string]*tokenizer.Tokenizer
}{known: map[string]*tokenizer.Tokenizer{}}

// fake is a model of a script.
func fake(t testing.TB, s *script) *Model {
	return &Model{
		Name: "fake/model", Created: time.Unix(1700000000, 0), Context: 1000, Vocabulary: 4096, Fingerprint: "fp_1",
		Tokenizer: tokens(t, toolTemplate), Scheduler: s, Sequences: 4,
		Complete: func(o decoder.Options, prompt int, adaptive bool) (decoder.Options, error) {
			if o.MaxTokens+prompt > 1000 {
				return o, &engine.ContextError{Model: "fake", PromptTokens: prompt, MaxTokens: o.MaxTokens, Context: 1000}
			}
			if o.Mode == "" {
				o.Mode = decoder.Verified
			}
			o.StopIDs = []int32{2}
			return o, nil
		},
	}
}

// serving starts a server of a script.
func serving(t testing.TB, s *script, o Options) *httptest.Server {
	t.Helper()
	h := httptest.NewServer(New(fake(t, s), o))
	t.Cleanup(h.Close)
	return h
}

// ask sends a request and returns its reply.
func ask(t testing.TB, h *httptest.Server, method, path, body string, header ...string) (*http.Response, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, h.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	w, err := h.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	data, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	keep(t, method, path, body, w.StatusCode, w.Header, data)
	return w, data
}

// askPinged sends a request whose generation waits until so many pings have come, and returns
// the reply's body.
func askPinged(t testing.TB, h *httptest.Server, s *script, path, body, ping string, times int) []byte {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	r, err := http.NewRequestWithContext(ctx, "POST", h.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	w, err := h.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	var data []byte
	var b [4096]byte
	for waits := true; err != io.EOF; {
		var n int
		if n, err = w.Body.Read(b[:]); err != nil && err != io.EOF {
			t.Fatalf("%v after %q", err, data)
		}
		if data = append(data, b[:n]...); waits && bytes.Count(data, []byte(ping)) >= times {
			close(s.wait)
			waits = false
		}
	}
	keep(t, "POST", path, body, w.StatusCode, w.Header, data)
	return data
}

// object reads a reply as JSON.
func object(t testing.TB, data []byte) (v map[string]any) {
	t.Helper()
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	return v
}

// at follows keys and indices into a JSON value; nil where there is nothing.
func at(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[p]
		case int:
			l, _ := v.([]any)
			if p >= len(l) {
				return nil
			}
			v = l[p]
		}
	}
	return v
}

// has reports whether a key is in the object at a path, null or not.
func has(v any, key string, path ...any) bool {
	m, _ := at(v, path...).(map[string]any)
	_, ok := m[key]
	return ok
}

// chunks reads a stream's events; done reports whether it ended in the mark.
func chunks(t testing.TB, data []byte) (list []map[string]any, done bool) {
	t.Helper()
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		payload, ok := strings.CutPrefix(line, "data: ")
		switch {
		case line == "" || strings.HasPrefix(line, ":"):
		case !ok:
			t.Fatalf("line %q", line)
		case done:
			t.Fatalf("an event after the mark of the end: %q", line)
		case payload == "[DONE]":
			done = true
		default:
			list = append(list, object(t, []byte(payload)))
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return list, done
}

const hello = `"messages":[{"role":"user","content":"hello"}]`
const adder = `"tools":[{"type":"function","function":{"name":"add","parameters":{"type":"object"}}}]`
const addCall = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>"
