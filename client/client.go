// Package client asks a running server of ours: how it is, what it has, and for text. It
// is for programs of this machine; anything else has a client of the OpenAI API.
package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"windrow/listen"
	"windrow/server"
)

// ErrNotRunning is the error of an address at which nobody listens.
var ErrNotRunning = errors.New("no server is running there")

// Client asks one server. It is safe for concurrent use.
type Client struct {
	// Where is the server's address, for people.
	Where string
	// Socket is the path of its Unix socket, "" where it has none.
	Socket string
	base   string
	key    string
	http   http.Client
}

// New is a client of a server at unix:PATH, a path, HOST:PORT, or an http or https URL;
// "" or "unix:" is the user's own socket. The key may be empty. Nothing is dialled yet.
func New(address, key string) (*Client, error) {
	c := &Client{Where: address, key: key}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
	c.http.Transport = transport
	if strings.HasPrefix(address, "http://") || strings.HasPrefix(address, "https://") {
		u, err := url.Parse(address)
		if err != nil || u.Host == "" || u.RawQuery != "" || u.User != nil {
			return nil, fmt.Errorf("%q: want http://HOST:PORT or https://HOST:PORT", address)
		}
		c.base = strings.TrimSuffix(strings.TrimSuffix(u.String(), "/"), "/v1")
		return c, nil
	}
	if address == "" || strings.Contains(address, "/") && !strings.HasPrefix(address, "unix:") {
		address = "unix:" + address
	}
	a, err := listen.Parse(address)
	switch {
	case err != nil:
		return nil, err
	case a.Kind == listen.TCP:
		c.base = "http://" + a.Value
		return c, nil
	case a.Kind != listen.Unix:
		return nil, fmt.Errorf("%q: want unix:PATH or a URL", address)
	}
	c.base, c.Socket, c.Where = "http://localhost", a.Value, a.String()
	transport.Proxy = nil
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "unix", a.Value)
	}
	return c, nil
}

// Close ends connections that wait for nothing.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Error is what a server said in place of an answer.
type Error struct {
	Status  int
	Code    string
	Message string
}

func (e *Error) Error() string {
	return fmt.Sprintf("the server says: %s (status %d)", e.Message, e.Status)
}

// do sends a request; the reply's body must be closed.
func (c *Client) do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	if c.key != "" {
		r.Header.Set("Authorization", "Bearer "+c.key)
	}
	w, err := c.http.Do(r)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: %w", c.Where, ErrNotRunning)
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return nil, fmt.Errorf("%s: %w", c.Where, err)
	}
	return w, nil
}

// maxReply bounds what is read of a reply that is no stream.
const maxReply = 64 << 20

// ask sends a request and reads its reply, of status 200 or one of ok, into out.
func (c *Client) ask(ctx context.Context, method, path string, body, out any, ok ...int) error {
	w, err := c.do(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer w.Body.Close()
	if w.StatusCode != http.StatusOK && !slices.Contains(ok, w.StatusCode) {
		return errorOf(w)
	}
	if err := json.NewDecoder(io.LimitReader(w.Body, maxReply)).Decode(out); err != nil {
		return fmt.Errorf("%s: the reply cannot be read: %w", c.Where, err)
	}
	return nil
}

// errorOf reads the API's error object.
func errorOf(w *http.Response) error {
	e := &Error{Status: w.StatusCode, Message: http.StatusText(w.StatusCode)}
	var body struct {
		Error struct{ Message, Code string }
	}
	if json.NewDecoder(io.LimitReader(w.Body, 1<<20)).Decode(&body) == nil && body.Error.Message != "" {
		e.Message, e.Code = body.Error.Message, body.Error.Code
	}
	return e
}

// Health is GET /health, of a server that loads its first model, too.
func (c *Client) Health(ctx context.Context) (h server.Health, err error) {
	return h, c.ask(ctx, http.MethodGet, "/health", nil, &h, http.StatusServiceUnavailable)
}

// Ready is GET /ready: nil where requests are answered.
func (c *Client) Ready(ctx context.Context) error {
	return c.ask(ctx, http.MethodGet, "/ready", nil, new(map[string]any))
}

// Props is GET /props of a model; "" is the first.
func (c *Client) Props(ctx context.Context, model string) (p server.Props, err error) {
	return p, c.ask(ctx, http.MethodGet, "/props?model="+url.QueryEscape(model), nil, &p)
}

// Slots is GET /slots.
func (c *Client) Slots(ctx context.Context) (s server.Slots, err error) {
	return s, c.ask(ctx, http.MethodGet, "/slots", nil, &s)
}

// Message is one of a conversation.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// Prompt renders a conversation into ids by a model's template.
func (c *Client) Prompt(ctx context.Context, model string, messages []Message, noThink bool) ([]int32, error) {
	body := map[string]any{"model": model, "messages": messages}
	if noThink {
		body["chat_template_kwargs"] = map[string]bool{"enable_thinking": false}
	}
	var reply struct{ Tokens []int32 }
	return reply.Tokens, c.ask(ctx, http.MethodPost, "/apply-template", body, &reply)
}

// Tokenize encodes a text, special tokens included.
func (c *Client) Tokenize(ctx context.Context, model, text string) ([]int32, error) {
	var reply struct{ Tokens []int32 }
	return reply.Tokens, c.ask(ctx, http.MethodPost, "/tokenize", map[string]any{"model": model, "content": text}, &reply)
}

// Ending is how a completion ended.
type Ending struct {
	FinishReason string
	PromptTokens int
	CachedTokens int
	Tokens       int
}

// Complete streams POST /v1/completions: begun is called when the server has taken it,
// and text with each piece. The request's stream is set here.
func (c *Client) Complete(ctx context.Context, request map[string]any, begun func(), text func(string) error) (end Ending, err error) {
	request["stream"], request["stream_options"] = true, map[string]bool{"include_usage": true}
	w, err := c.do(ctx, http.MethodPost, "/v1/completions", request)
	if err != nil {
		return end, err
	}
	defer w.Body.Close()
	if w.StatusCode != http.StatusOK {
		return end, errorOf(w)
	}
	begun()
	lines := bufio.NewScanner(w.Body)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			return end, nil
		}
		var chunk struct {
			Choices []struct {
				Text         string
				FinishReason string `json:"finish_reason"`
			}
			Usage struct {
				PromptTokens     int `json:"prompt_tokens"`
				CompletionTokens int `json:"completion_tokens"`
				Details          struct {
					CachedTokens int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
			Error *struct{ Message, Code string }
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			return end, fmt.Errorf("%s: an event cannot be read: %w", c.Where, err)
		}
		if e := chunk.Error; e != nil {
			return end, &Error{Status: http.StatusInternalServerError, Code: e.Code, Message: e.Message}
		}
		if u := chunk.Usage; u.PromptTokens > 0 {
			end.PromptTokens, end.CachedTokens, end.Tokens = u.PromptTokens, u.Details.CachedTokens, u.CompletionTokens
		}
		for _, x := range chunk.Choices {
			if x.FinishReason != "" {
				end.FinishReason = x.FinishReason
			}
			if x.Text == "" {
				continue
			}
			if err := text(x.Text); err != nil {
				return end, err
			}
		}
	}
	if ctx.Err() != nil {
		return end, ctx.Err()
	}
	if err := lines.Err(); err != nil {
		return end, fmt.Errorf("%s: %w", c.Where, err)
	}
	return end, fmt.Errorf("%s: the stream ended before its text", c.Where)
}
