package loadtest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"windrow/schedule"
	"windrow/server"
)

// failure is an error as the API has it.
type failure struct {
	Error *struct {
		Message, Type string
		Param, Code   *string
	}
}

// refused checks that a reply is an error of the API with that status and code.
func refused(t *testing.T, what string, status int, body []byte, wantStatus int, wantCode string) {
	t.Helper()
	var f failure
	decode(t, body, &f)
	if status != wantStatus || f.Error == nil || f.Error.Message == "" || f.Error.Type == "" || f.Error.Code == nil || *f.Error.Code != wantCode || strings.Contains(f.Error.Message, "\n") {
		t.Errorf("%s: %d %.300s, want %d %s", what, status, body, wantStatus, wantCode)
	}
}

// dial connects, for some minutes at most.
func (s *running) dial(t *testing.T) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(2 * time.Minute))
	return c.(*net.TCPConn)
}

// raw sends bytes, ends its half of the connection where that is asked for, and reads a
// reply. It fails where none comes.
func (s *running) raw(t *testing.T, text string, half bool) (int, []byte) {
	t.Helper()
	c := s.dial(t)
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	if half {
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
	}
	w, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%.80q: %v", text, err)
	}
	defer w.Body.Close()
	body, _ := io.ReadAll(w.Body) // of what is no HTTP, the rest of the request may reset the connection
	return w.StatusCode, body
}

func posted(body string, length int) string {
	return fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", length, body)
}

// TestHalfClosed: a client that ends its half of the connection has an answer or hears
// why not; it is never left with nothing, and nothing runs on.
func TestHalfClosed(t *testing.T) {
	s := serve(t, schedule.Options{Sequences: 4}, server.Options{}, 0, nil)
	s.engine.delay.Store(int64(time.Millisecond))
	const body = `{"prompt":[300,301],"max_tokens":2000,"mode":"ar","ignore_eos":true,"temperature":0%s}`
	whole := fmt.Sprintf(body, "")
	switch status, reply := s.raw(t, posted(whole, len(whole)), true); status {
	case http.StatusOK:
		if !bytes.Contains(reply, []byte(`"finish_reason":"length"`)) {
			t.Errorf("whole: %.200s", reply)
		}
	default:
		refused(t, "whole", status, reply, http.StatusServiceUnavailable, "cancelled")
	}
	stream := fmt.Sprintf(body, `,"stream":true`)
	c := s.dial(t)
	io.WriteString(c, posted(stream, len(stream)))
	r := bufio.NewReader(c)
	w, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Body.Read(make([]byte, 10)); err != nil { // it has begun
		t.Fatal(err)
	}
	c.CloseWrite()
	reply := readAll(t, w)
	lines := strings.Split(strings.TrimSpace(string(reply)), "\n\n")
	if last := lines[len(lines)-1]; last != "data: [DONE]" {
		refused(t, "streamed", http.StatusServiceUnavailable, []byte(strings.TrimPrefix(last, "data: ")), http.StatusServiceUnavailable, "cancelled")
	}
	s.calm(t, 1<<20)
	// A body that ends before its length.
	status, reply := s.raw(t, posted(`{"prompt":`, 1000), true)
	refused(t, "a body cut short", status, reply, http.StatusBadRequest, "invalid_value")
	status, reply = s.raw(t, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", false)
	refused(t, "a broken chunk", status, reply, http.StatusBadRequest, "invalid_value")
}

// TestTooMuch: headers, bodies and depths beyond their bounds.
func TestTooMuch(t *testing.T) {
	s := serve(t, schedule.Options{Sequences: 4}, server.Options{}, 0, nil)
	for _, header := range []string{"X-Long: " + strings.Repeat("x", 40<<10), strings.Repeat("X-Many: y\r\n", 5000) + "X-Last: z"} {
		status, reply := s.raw(t, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n"+header+"\r\n\r\n", false)
		refused(t, "a long header", status, reply, http.StatusRequestHeaderFieldsTooLarge, "header_too_large")
	}
	// What is no HTTP at all is refused by the library, in plain text, at once.
	for text, want := range map[string]int{
		"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("y", 80<<10) + "\r\n\r\n": http.StatusRequestHeaderFieldsTooLarge,
		"GET /health HTTP/9.9\r\nHost: localhost\r\n\r\n":                                           http.StatusHTTPVersionNotSupported,
		"nonsense\r\n\r\n":             http.StatusBadRequest,
		"GET /health HTTP/1.1\r\n\r\n": http.StatusBadRequest,
		"GET /health HTTP/1.1\r\nHost: localhost\r\nBad Name: x\r\n\r\n":                 http.StatusBadRequest,
		"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n": http.StatusBadRequest,
	} {
		if status, reply := s.raw(t, text, false); status != want {
			t.Errorf("%.60q: %d %q, want %d", text, status, reply, want)
		}
	}
	large := `{"prompt":"` + strings.Repeat("x", 10<<20) + `"}`
	for _, body := range []io.Reader{strings.NewReader(large), io.MultiReader(strings.NewReader(large))} { // with a length, and in chunks
		w, err := s.client.Post(s.url+"/v1/completions", "application/json", body)
		if err != nil {
			t.Fatal(err)
		}
		refused(t, "10 MB", w.StatusCode, readAll(t, w), http.StatusRequestEntityTooLarge, "request_too_large")
	}
	for _, bomb := range []string{strings.Repeat("[", 1<<20), `{"prompt":` + strings.Repeat(`{"a":`, 100_000), `{"stop":` + strings.Repeat("[", 65) + strings.Repeat("]", 65) + "}"} {
		if d := leastOf(3, time.Second, func() time.Duration {
			began := time.Now()
			w, err := s.client.Post(s.url+"/v1/completions", "application/json", strings.NewReader(bomb))
			if err != nil {
				t.Fatal(err)
			}
			refused(t, "a depth bomb", w.StatusCode, readAll(t, w), http.StatusBadRequest, "invalid_value")
			return time.Since(began)
		}); d > time.Second {
			t.Errorf("a depth bomb took %v", d)
		}
	}
	if d := leastOf(3, time.Second, func() time.Duration { return s.gets(t, "/health") }); d > time.Second {
		t.Errorf("/health took %v", d)
	}
}

// leastOf is the least of up to so many measurements; one within the bound is the last.
func leastOf(most int, bound time.Duration, measure func() time.Duration) time.Duration {
	least := measure()
	for n := 1; n < most && least > bound; n++ {
		least = min(least, measure())
	}
	return least
}

// TestUnread: a client that asks on and on and reads nothing is ended: replies that are
// not streams have a limit, too.
func TestUnread(t *testing.T) {
	s := serve(t, schedule.Options{Sequences: 4}, server.Options{WriteTime: time.Second}, 0, func(l net.Listener) net.Listener { return narrow{l, new(atomic.Int64)} })
	c := s.dial(t)
	c.SetReadBuffer(narrowBytes)
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
				ended <- err
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	select {
	case err := <-ended:
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			t.Errorf("nobody ended it: %v", err)
		}
	case <-time.After(3 * time.Minute):
		t.Error("it is not ended")
	}
}

// TestDrain: while a server goes down, who runs is served to the end, who waits and who
// comes is told so.
func TestDrain(t *testing.T) {
	s := serve(t, schedule.Options{Sequences: 1, Queue: 8}, server.Options{}, 2*time.Minute, nil)
	s.engine.delay.Store(int64(200 * time.Millisecond)) // until all the others were refused
	long := request{"prompt": ids(1, 5), "max_tokens": 200, "mode": "ar", "ignore_eos": true, "stream": true, "stream_options": request{"include_usage": true}}
	var all, waited sync.WaitGroup
	all.Go(func() {
		if status, body, err := s.complete(t.Context(), long); err != nil || status != http.StatusOK || whole(body, 200) != nil {
			t.Errorf("who ran: %d %v %v", status, err, whole(body, 200))
		}
	})
	for s.scheduler.State().Running == 0 {
		time.Sleep(time.Millisecond)
	}
	for _, stream := range []bool{true, false} {
		waited.Go(func() {
			status, body, err := s.complete(t.Context(), request{"prompt": ids(2, 5), "max_tokens": 2, "stream": stream})
			if err != nil {
				t.Error(err)
				return
			}
			refused(t, "who waited", status, body, http.StatusServiceUnavailable, "draining")
		})
	}
	late := s.dial(t) // has begun its request, which is read, and not ended it
	io.WriteString(late, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 32\r\nExpect: 100-continue\r\n\r\n")
	replies := bufio.NewReader(late)
	if w, err := http.ReadResponse(replies, nil); err != nil || w.StatusCode != http.StatusContinue {
		t.Fatal(w, err)
	}
	for s.scheduler.State().Waiting < 2 {
		time.Sleep(time.Millisecond)
	}
	stopped := make(chan struct{})
	go func() { s.stop(); close(stopped) }()
	waited.Wait() // they are told so once it drains
	io.WriteString(late, `{"prompt":[300],"max_tokens": 2}`)
	w, err := http.ReadResponse(replies, nil)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, "who came", w.StatusCode, readAll(t, w), http.StatusServiceUnavailable, "draining")
	if w.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	s.engine.delay.Store(0)
	all.Wait()
	<-stopped
	if c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://")); err == nil {
		c.Close()
		t.Error("it still listens")
	}
}
