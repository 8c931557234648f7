package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"windrow/conformance/decodertest"
	"windrow/engine"
	"windrow/models/tinygsm"
	"windrow/schedule"
)

// open is the embedded model with a scheduler.
func open(t *testing.T) *Model {
	t.Helper()
	if !tinygsm.Available {
		t.Skip("built without the embedded model")
	}
	e, err := engine.Open(t.Context(), "", engine.Options{Backend: decodertest.Device(), Measurements: engine.Measurements{Folder: t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	s := schedule.New(e, schedule.Options{Sequences: 8, Chunk: decodertest.Chunk()})
	t.Cleanup(s.Close)
	return ForEngine(t.Context(), e, s, "test")
}

// TestAmongOthers: a request gets the same text alone and among others, streamed and
// whole, in every mode, sampled too.
func TestAmongOthers(t *testing.T) {
	h := httptest.NewServer(New(open(t), Options{}))
	defer h.Close()
	var bodies []string
	for i, mode := range []string{"ar", "verified", "wedlm", "auto"} {
		for _, temperature := range []string{"0", "0.8"} {
			bodies = append(bodies, fmt.Sprintf(`"messages":[{"role":"user","content":"A hall has %d rows with 9 chairs in each row. How many chairs are there?"}],"mode":%q,"temperature":%s,"seed":%d,"n":2,"max_tokens":40`, i+5, mode, temperature, i))
		}
	}
	text := func(body string, stream bool) string {
		if !stream {
			_, data := ask(t, h, "POST", "/v1/chat/completions", "{"+body+"}")
			v := object(t, data)
			return fmt.Sprint(at(v, "choices", 0, "message", "content"), "|", at(v, "choices", 1, "message", "content"), at(v, "usage", "completion_tokens"))
		}
		_, data := ask(t, h, "POST", "/v1/chat/completions", "{"+body+`,"stream":true,"stream_options":{"include_usage":true}}`)
		var texts [2]string
		list, done := chunks(t, data)
		for _, c := range list {
			if i, ok := at(c, "choices", 0, "index").(float64); ok {
				piece, _ := at(c, "choices", 0, "delta", "content").(string)
				texts[int(i)] += piece
			}
		}
		if !done {
			t.Errorf("%s", data)
		}
		return fmt.Sprint(texts[0], "|", texts[1], at(list[len(list)-1], "usage", "completion_tokens"))
	}
	var alone []string
	for _, body := range bodies {
		alone = append(alone, text(body, false))
	}
	var all sync.WaitGroup
	for i, body := range bodies {
		for _, stream := range []bool{false, true} {
			all.Go(func() {
				if got := text(body, stream); got != alone[i] {
					t.Errorf("%s, streamed %t: %q, alone %q", body, stream, got, alone[i])
				}
			})
		}
	}
	all.Wait()
}

// TestModesAgree: verified gives ar's text, at any window, and a stop string cuts both
// at the same place.
func TestModesAgree(t *testing.T) {
	h := httptest.NewServer(New(open(t), Options{}))
	defer h.Close()
	ask1 := func(more string) string {
		_, data := ask(t, h, "POST", "/v1/completions", `{"prompt":"<|im_start|>user\nMaya has 4 crates with 12 apples each. How many apples?<|im_end|>\n<|im_start|>assistant\n","seed":3,"temperature":0.7,"max_tokens":60,`+more+`}`)
		v := object(t, data)
		return fmt.Sprint(at(v, "choices", 0, "text"), at(v, "choices", 0, "finish_reason"), at(v, "usage"))
	}
	for _, stop := range []string{`"stop":null`, `"stop":"apples"`, `"stop":[" ","4"]`} {
		want := ask1(`"mode":"ar",` + stop)
		for _, more := range []string{`"window":"auto"`, `"window":2`, `"window":16`, `"draft":"lookup"`, `"draft":"lookup","window":4`, `"draft":"auto"`, `"draft":"none"`, `"draft":"mask"`} {
			if got := ask1(`"mode":"verified",` + more + "," + stop); got != want {
				t.Errorf("%s %s: %q, ar %q", more, stop, got, want)
			}
		}
	}
}

// TestDraftersTold: a reply and the metrics say who drafted.
func TestDraftersTold(t *testing.T) {
	h := httptest.NewServer(New(open(t), Options{}))
	defer h.Close()
	_, data := ask(t, h, "POST", "/v1/completions", `{"prompt":"1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6","mode":"verified","draft":"lookup","window":8,"max_tokens":60,"ignore_eos":true,"n":2}`)
	v := object(t, data)
	drafts := fmt.Sprint(at(v, "windrow", "drafters", "lookup", "drafts"))
	if n, err := strconv.Atoi(drafts); err != nil || n < 8 {
		t.Errorf("%s", data)
	}
	if _, data := ask(t, h, "GET", "/metrics", ""); !strings.Contains(string(data), `windrow_drafts_by_total{drafter="lookup",model_name="tiny-gsm"} `+drafts) {
		t.Errorf("the reply says %s drafts, the metrics do not", drafts)
	}
}

// TestDraftersRefused: who cannot draft for a model is said.
func TestDraftersRefused(t *testing.T) {
	h := httptest.NewServer(New(open(t), Options{}))
	defer h.Close()
	for draft, want := range map[string]string{"model": "no smaller model", "mtp": "no head for drafts", "model:small": "started with"} {
		w, data := ask(t, h, "POST", "/v1/completions", `{"prompt":"1","draft":"`+draft+`"}`)
		if v := object(t, data); w.StatusCode != 400 || at(v, "error", "param") != "draft" || !strings.Contains(string(data), want) {
			t.Errorf("%s: %d %s, want %q", draft, w.StatusCode, data, want)
		}
	}
}

// TestServe: a server ends when its context does; who runs is served to the end, who
// comes later is not; then nobody is left.
func TestServe(t *testing.T) {
	s := New(open(t), Options{Connections: 4})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Serve(ctx, 10*time.Second, l) }()
	w, err := http.Post("http://"+l.Addr().String()+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"x","stream":true,"ignore_eos":true,"mode":"ar","max_tokens":200}`))
	if err != nil {
		t.Fatal(err)
	}
	stop()
	data, err := io.ReadAll(w.Body)
	if err != nil || !strings.HasSuffix(string(data), "[DONE]\n\n") {
		t.Errorf("%v %.200s", err, data)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("it still listens")
	}
	r := httptest.NewRecorder()
	s.ServeHTTP(r, httptest.NewRequest("GET", "http://localhost/ready", nil))
	if r.Code != 503 || r.Header().Get("Retry-After") == "" {
		t.Errorf("/ready: %d", r.Code)
	}
}

// TestServeImpatiently: what runs when the time is over is told so.
func TestServeImpatiently(t *testing.T) {
	block := make(chan struct{})
	defer close(block)
	s := New(fake(t, &script{pieces: []string{"x", "y"}, wait: block}), Options{KeepAlive: 10 * time.Millisecond})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Serve(ctx, 50*time.Millisecond, l) }()
	w, err := http.Post("http://"+l.Addr().String()+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"x","stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
}

// TestConnections: one more than there may be waits until another goes.
func TestConnections(t *testing.T) {
	s := New(fake(t, &script{}), Options{Connections: 1})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go s.Serve(ctx, 0, l)
	dial := func() (net.Conn, *bufio.Reader) {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
		return c, bufio.NewReader(c)
	}
	first, r := dial()
	if _, err := r.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	second, r := dial()
	defer second.Close()
	second.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if line, err := r.ReadString('\n'); err == nil {
		t.Errorf("the second got %q", line)
	}
	first.Close()
	second.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := r.ReadString('\n'); err != nil {
		t.Errorf("the second, after the first went: %v", err)
	}
}

func TestKeys(t *testing.T) {
	keys := new(Keys)
	hash := "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8" // of "password"
	if err := keys.Read(strings.NewReader("# two\n\nann:" + hash + "\nbob:" + strings.Repeat("0", 64) + "\n")); err != nil || keys.Len() != 2 {
		t.Fatal(err)
	}
	if name, ok := keys.find("password"); !ok || name != "ann" {
		t.Errorf("%q %t", name, ok)
	}
	for _, s := range []string{"", "Password", hash} {
		if name, ok := keys.find(s); ok {
			t.Errorf("%q is %s's", s, name)
		}
	}
	for _, s := range []string{"ann:" + hash, "x", "x:y", "x:" + hash + ":limits", ":" + hash, "a b:" + hash} {
		if err := keys.Read(strings.NewReader(s)); err == nil {
			t.Errorf("%q was taken", s)
		}
	}
}

func TestHosts(t *testing.T) {
	s := New(fake(t, &script{}), Options{Hosts: []string{"models.example"}})
	for host, want := range map[string]bool{
		"localhost": true, "LOCALHOST:8484": true, "localhost.": true, "x.localhost:1": true, "127.0.0.1:8484": true, "[::1]:8484": true, "10.0.0.7": true,
		"models.example:8484": true, "Models.Example": true, "evil.example": false, "localhost.evil.example": false, "127.0.0.1.evil.example:8484": false, "": false, "evil.example:": false,
	} {
		if s.ours(host) != want {
			t.Errorf("%q: %t", host, !want)
		}
	}
}
