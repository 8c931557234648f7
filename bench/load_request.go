package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// answered is what came of a request, as its client saw it.
type answered struct {
	sent, first, last time.Time // first and last: bytes of content
	gap               time.Duration
	pieces            []piece
	text              string
	status            int
	fault             string // what was wrong with an answer of status 200; "": nothing
	reason            string // what the server, or the system, said of it, cut
	tokens, cached    int
}

// piece is content that came at a time.
type piece struct {
	at    time.Time
	bytes int
}

// The faults of answers of status 200, and of requests without a status.
const (
	faultNetwork = "network" // no answer, or one that breaks off
	faultStream  = "stream"  // an event of an error
	faultCut     = "cut"     // no mark of the end
	faultEmpty   = "empty"   // no content
	faultShort   = "short"   // fewer tokens than asked for
	faultForm    = "form"    // what came is not of the API's form
)

// ok reports whether a request was answered as it should be.
func (a *answered) ok() bool { return a.status == http.StatusOK && a.fault == "" }

// error is the name under which a request that was not is counted; "" for others.
func (a *answered) error() string {
	switch {
	case a.status == 0:
		return faultNetwork
	case a.status != http.StatusOK:
		return strconv.Itoa(a.status)
	}
	return a.fault
}

// ask sends request number i and reads its answer.
func (r *loadRun) ask(i int, salt string) answered {
	body := map[string]any{
		"max_tokens": r.Tokens, "temperature": 0, "stream": true, "stream_options": map[string]bool{"include_usage": true},
		"cache_salt": salt, "cache_prompt": false,
	}
	path := "/v1/completions"
	switch {
	case len(r.Questions) > 0:
		path = "/v1/chat/completions"
		body["messages"] = []map[string]string{{"role": "user", "content": r.Questions[i%len(r.Questions)]}}
	case r.Words:
		body["prompt"] = promptWords(r.Seed, i, r.Prompt)
	default:
		body["prompt"] = sharedPrompt(r.Seed, i, r.Shared, r.Prompt)
	}
	switch {
	case len(r.Schema) > 0:
		body["response_format"] = map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "bench", "schema": r.Schema}}
	case len(r.Questions) == 0:
		body["ignore_eos"] = true
	}
	if r.Window > 0 {
		body["window"] = r.Window
	}
	switch {
	case len(r.Models) > 0:
		body["model"] = r.Models[max(i, 0)/r.SwapEvery%len(r.Models)]
	case r.Model != "":
		body["model"] = r.Model
	}
	if r.Mode != "" {
		body["mode"] = r.Mode
	}
	if r.Draft != "" {
		body["draft"] = r.Draft
	}
	data, err := json.Marshal(body)
	if err != nil {
		panic(err) // our own types: cannot happen
	}
	a := stream(r.ctx, r.client, r.URL+path, r.Key, data)
	if a.ok() && a.tokens < r.Tokens && len(r.Questions) == 0 && len(r.Schema) == 0 {
		a.fault = faultShort
	}
	return a
}

// post makes a request of the API.
func post(ctx context.Context, url, key string, body []byte) (*http.Request, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	q.Header.Set("Content-Type", "application/json")
	// Not sent: it has a request made anew where the server closed the connection that
	// it was to go through, as some do after a stream.
	q.Header["Idempotency-Key"] = nil
	if key != "" {
		q.Header.Set("Authorization", "Bearer "+key)
	}
	return q, nil
}

// event is a chunk of a completion or of a conversation.
type event struct {
	Choices []struct {
		Text  string `json:"text"`
		Delta struct {
			Content string `json:"content"`
		} `json:"delta"`
	} `json:"choices"`
	Usage *struct {
		CompletionTokens    int `json:"completion_tokens"`
		PromptTokensDetails struct {
			CachedTokens int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	Error json.RawMessage `json:"error"`
}

// stream sends a request and follows the events of its answer.
func stream(ctx context.Context, c *http.Client, url, key string, body []byte) (a answered) {
	a.sent = time.Now()
	q, err := post(ctx, url, key, body)
	if err != nil {
		a.fault, a.reason = faultNetwork, cutReason(err.Error())
		return a
	}
	w, err := c.Do(q)
	if err != nil {
		a.fault, a.reason = faultNetwork, cutReason(err.Error())
		return a
	}
	defer w.Body.Close()
	a.status = w.StatusCode
	if a.status != http.StatusOK {
		var said struct {
			Error json.RawMessage `json:"error"`
		}
		data, _ := io.ReadAll(io.LimitReader(w.Body, 64<<10))
		if json.Unmarshal(data, &said) == nil && len(said.Error) > 0 {
			a.reason = errorReason(said.Error)
		} else {
			a.reason = cutReason(string(data))
		}
		io.Copy(io.Discard, w.Body)
		return a
	}
	var text strings.Builder
	a.fault = a.follow(bufio.NewReaderSize(w.Body, 64<<10), &text)
	a.text = text.String()
	if a.fault == "" && a.text == "" {
		a.fault = faultEmpty
	}
	return a
}

// errorReason is the message of an API's error object.
func errorReason(data json.RawMessage) string {
	var object struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(data, &object) != nil || object.Message == "" {
		return cutReason(string(data))
	}
	return cutReason(object.Message)
}

// cutReason is a text in one line of at most 200 letters, without what a terminal obeys.
func cutReason(s string) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if letters := []rune(s); len(letters) > 200 {
		s = string(letters[:199]) + "…"
	}
	return s
}

var dataPrefix, doneMark = []byte("data:"), []byte("[DONE]")

// follow reads events up to the mark of the end; it returns what is wrong with them.
func (a *answered) follow(r *bufio.Reader, text *strings.Builder) (fault string) {
	for {
		line, err := r.ReadBytes('\n')
		payload, ok := bytes.CutPrefix(bytes.TrimSpace(line), dataPrefix)
		if ok {
			payload = bytes.TrimSpace(payload)
			if bytes.Equal(payload, doneMark) {
				io.Copy(io.Discard, r) // so that the connection can be used again
				return ""
			}
			if fault := a.take(payload, text); fault != "" {
				return fault
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return faultCut
		case err != nil:
			return faultNetwork
		}
	}
}

func (a *answered) take(payload []byte, text *strings.Builder) (fault string) {
	var e event
	if json.Unmarshal(payload, &e) != nil {
		return faultForm
	}
	if len(e.Error) > 0 && string(e.Error) != "null" {
		a.reason = errorReason(e.Error)
		return faultStream
	}
	if e.Usage != nil {
		a.tokens, a.cached = e.Usage.CompletionTokens, e.Usage.PromptTokensDetails.CachedTokens
	}
	n := 0
	for _, c := range e.Choices {
		n += len(c.Text) + len(c.Delta.Content)
		text.WriteString(c.Text + c.Delta.Content)
	}
	if n == 0 {
		return ""
	}
	now := time.Now()
	if a.first.IsZero() {
		a.first = now
	} else {
		a.gap = max(a.gap, now.Sub(a.last))
	}
	a.last = now
	a.pieces = append(a.pieces, piece{now, n})
	return ""
}
