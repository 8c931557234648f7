package loadtest

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"windrow/engine"
	"windrow/internal/testhelp"
	"windrow/model"
	"windrow/models/tinygsm"
	"windrow/schedule"
	"windrow/server"
	"windrow/tokenizer"
)

// instant is an engine whose forwards are not computed: they take no time, and each row's
// likeliest token follows from the row's. What is left is the server's own work.
type instant struct{ *engine.Engine }

// Forward implements schedule.Engine.
func (e instant) Forward(_ context.Context, b *model.Batch) ([]model.Result, error) {
	runtime.Gosched() // a forward takes long enough for others to write what came of the last
	results := make([]model.Result, len(b.Want))
	for i, w := range b.Want {
		results[i].Argmax = 256 + (b.Tokens[w.Row]*7+13)%200
	}
	for _, s := range b.Spans {
		s.Cache.Stage(s.Rows)
	}
	return results, nil
}

// instantServer is a server of an engine without forwards.
func instantServer(t testing.TB) *server.Server {
	t.Helper()
	if !tinygsm.Available {
		t.Skip("built without the embedded model")
	}
	files := tinygsm.Files()
	tokens, err := tokenizer.New(files["tokenizer.json"], files["tokenizer_config.json"])
	if err != nil {
		t.Fatal(err)
	}
	e := tiny(t, tokens.Size())
	s := schedule.New(instant{e.Engine}, schedule.Options{})
	t.Cleanup(s.Close)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	m := server.ForEngine(ctx, e.Engine, s, "test")
	m.Tokenizer = tokens
	// As windrow serve does: a line a request.
	return server.New(m, server.Options{Log: slog.New(slog.NewJSONHandler(io.Discard, nil))})
}

// sink is a client without a connection: what is written to it is counted.
type sink struct {
	header http.Header
	status int
	bytes  int
}

func (w *sink) Header() http.Header { return w.header }
func (w *sink) WriteHeader(status int) {
	w.status = status
}
func (w *sink) Write(p []byte) (int, error)      { w.bytes += len(p); return len(p), nil }
func (w *sink) Flush()                           {}
func (w *sink) SetWriteDeadline(time.Time) error { return nil }
func (w *sink) SetReadDeadline(time.Time) error  { return nil }

// asked are the bodies of requests of 512 tokens; no two begin alike.
func asked(n, tokens int, stream bool) (list [][]byte) {
	for i := range n {
		body, _ := io.ReadAll(request{"prompt": ids(i, 512), "max_tokens": tokens, "mode": "ar", "temperature": 0, "ignore_eos": true, "stream": stream}.reader())
		list = append(list, body)
	}
	return list
}

// What requests whose own work is measured have: tokens out, and a text of some 500.
const overheadTokens = 128

var chatText = strings.Repeat("A hall has 5 rows with 9 chairs in each row, and Maya has 4 crates with 12 apples each. ", 20)

// BenchmarkOverhead is the server's own work for a request of 512 tokens in and 128 out,
// beside its forwards: -cpu 1 has it on one core.
//
//   - one: a whole answer of one token: all that a request takes once.
//   - chat: the same of a conversation whose text has some 500 tokens.
//   - whole, stream: 128 tokens, in as many forwards, in one reply or 128 events.
//   - shared: 32 at once, streamed.
//   - socket: streamed over the loopback; the client's work and the system's is in it.
func BenchmarkOverhead(b *testing.B) {
	h := instantServer(b)
	at := func(b *testing.B, path string, body []byte) {
		w := &sink{header: http.Header{}}
		r := httptest.NewRequest("POST", "http://localhost"+path, bytes.NewReader(body))
		h.ServeHTTP(w, r)
		if w.status != http.StatusOK || w.bytes < 100 {
			b.Fatalf("status %d, %d bytes", w.status, w.bytes)
		}
	}
	post := func(b *testing.B, body []byte) { at(b, "/v1/completions", body) }
	run := func(name string, tokens int, stream bool) {
		b.Run(name, func(b *testing.B) {
			bodies := asked(64, tokens, stream)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				post(b, bodies[i%len(bodies)])
			}
		})
	}
	run("one", 1, false)
	b.Run("chat", func(b *testing.B) {
		body, _ := io.ReadAll(request{"messages": []request{{"role": "user", "content": chatText}}, "max_tokens": 1, "mode": "ar", "temperature": 0}.reader())
		b.ReportAllocs()
		for b.Loop() {
			at(b, "/v1/chat/completions", body)
		}
	})
	run("whole", overheadTokens, false)
	run("stream", overheadTokens, true)
	b.Run("shared", func(b *testing.B) {
		bodies := asked(64, overheadTokens, true)
		var all sync.WaitGroup
		next := make(chan []byte)
		for range 32 {
			all.Go(func() {
				for body := range next {
					post(b, body)
				}
			})
		}
		for i := 0; b.Loop(); i++ {
			next <- bodies[i%len(bodies)]
		}
		close(next)
		all.Wait()
	})
	b.Run("socket", func(b *testing.B) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		ended := make(chan struct{})
		go func() { h.Serve(ctx, 0, l); close(ended) }()
		bodies := asked(64, overheadTokens, true)
		client := http.Client{Transport: &http.Transport{}}
		for i := 0; b.Loop(); i++ {
			w, err := client.Post("http://"+l.Addr().String()+"/v1/completions", "application/json", bytes.NewReader(bodies[i%len(bodies)]))
			if err != nil {
				b.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, w.Body); err != nil || n < 1000 {
				b.Fatal(n, err)
			}
			w.Body.Close()
		}
		client.CloseIdleConnections()
		cancel()
		<-ended
	})
}

// TestOverhead: what a request of some 500 tokens takes once is under 150 µs on one core,
// and what each of its steps takes beside that under 10 µs. It is the processor's time
// that counts, of the best of some rounds, as others use the machine, too: of more of them
// where these were too slow, since what disturbs a round only adds to it.
func TestOverhead(t *testing.T) {
	h := instantServer(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const requests, rounds = 64, 12
	round := func(path string, bodies [][]byte) time.Duration {
		began := testhelp.ProcessorTime()
		for _, body := range bodies {
			w := &sink{header: http.Header{}}
			h.ServeHTTP(w, httptest.NewRequest("POST", "http://localhost"+path, bytes.NewReader(body)))
			if w.status != http.StatusOK || w.bytes < 100 {
				t.Fatalf("status %d, %d bytes", w.status, w.bytes)
			}
		}
		return (testhelp.ProcessorTime() - began) / time.Duration(len(bodies))
	}
	var chats [][]byte
	for i := range requests {
		body, _ := io.ReadAll(request{"messages": []request{{"role": "user", "content": string(rune('A'+i)) + chatText}}, "max_tokens": 1, "mode": "ar", "temperature": 0, "stream": true}.reader())
		chats = append(chats, body)
	}
	short, long := asked(requests, 1, true), asked(requests, overheadTokens, true)
	once, chat, whole := time.Hour, time.Hour, time.Hour
	step := func() time.Duration { return (whole - once) / (overheadTokens - 1) }
	const most, mostStep = 150 * time.Microsecond * slower, 10 * time.Microsecond * slower
	measured := func(n int) bool {
		return n >= rounds && once <= most && chat <= most && step() <= mostStep
	}
	for n, began := 0, time.Now(); !measured(n) && (n < rounds || time.Since(began) < time.Minute); n++ {
		once = min(once, round("/v1/completions", short))
		chat = min(chat, round("/v1/chat/completions", chats))
		whole = min(whole, round("/v1/completions", long))
	}
	t.Logf("once %v, with a text %v, a step %v", once, chat, step())
	if once > most || chat > most {
		t.Errorf("a request takes %v, with a text %v: want under %v", once, chat, most)
	}
	if step() > mostStep {
		t.Errorf("a step takes %v: want under %v", step(), mostStep)
	}
}
