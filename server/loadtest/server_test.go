package loadtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/engine"
	"windrow/model"
	"windrow/rope"
	"windrow/schedule"
	"windrow/server"
	"windrow/synthetic"
)

// full reports whether tests take their whole length.
func full() bool { return os.Getenv("CI") == "true" }

// slowed is an engine whose forwards take at least delay.
type slowed struct {
	*engine.Engine
	delay atomic.Int64
}

// Forward implements schedule.Engine.
func (e *slowed) Forward(ctx context.Context, b *model.Batch) ([]model.Result, error) {
	if d := e.delay.Load(); d > 0 {
		time.Sleep(time.Duration(d))
	}
	return e.Engine.Forward(ctx, b)
}

// running is a server with what it is made of.
type running struct {
	url       string
	engine    *slowed
	scheduler *schedule.Scheduler
	stop      func() // ends the server, and waits for it
	client    *http.Client
}

const vocabulary = 512

// tiny opens a model of one layer, whose last id is a mask.
func tiny(t testing.TB, vocabulary int) *slowed {
	t.Helper()
	config := checkpoint.Config{
		Architecture: "wedlm", HiddenSize: 32, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 16, IntermediateSize: 64,
		VocabSize: vocabulary, RMSNormEps: 1e-6, MaxPositions: 4096, TieEmbeddings: true,
		Rope: rope.Config{Type: rope.Default, HeadDim: 16, Theta: 1e4}, MaskTokenID: int32(vocabulary - 1), EOSTokenIDs: []int32{int32(vocabulary - 2)}, DType: "bfloat16",
	}
	e, err := engine.OpenSource(t.Context(), "tiny", synthetic.RandomSource(&config, backend.BF16, 1),
		engine.Options{Backend: engine.CPU, Threads: 1, Measurements: engine.Measurements{Folder: engine.NoFolder}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return &slowed{Engine: e}
}

// serve starts a server of a tiny model. wrap may change its listener.
func serve(t testing.TB, scheduling schedule.Options, o server.Options, drain time.Duration, wrap func(net.Listener) net.Listener) *running {
	t.Helper()
	e := tiny(t, vocabulary)
	s := schedule.New(e, scheduling)
	t.Cleanup(s.Close)
	ctx, cancel := context.WithCancel(context.Background())
	m := server.ForEngine(ctx, e.Engine, s, "test")
	m.Sequences = scheduling.Sequences
	var err error
	if m.Tokenizer, err = synthetic.Tokenizer(vocabulary); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	if wrap != nil {
		l = wrap(l)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.New(m, o).Serve(ctx, drain, l); err != nil {
			t.Error(err)
		}
	}()
	transport := &http.Transport{MaxIdleConnsPerHost: 2048}
	stop := func() {
		transport.CloseIdleConnections()
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	return &running{url, e, s, stop, &http.Client{Transport: transport}}
}

// request is a completion's body.
type request map[string]any

func (r request) reader() io.Reader {
	data, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	return bytes.NewReader(data)
}

// begin sends a completion.
func (s *running) begin(ctx context.Context, r request) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/completions", r.reader())
	if err != nil {
		return nil, err
	}
	return s.client.Do(q)
}

// complete sends a completion, and returns its status and body.
func (s *running) complete(ctx context.Context, r request) (status int, body []byte, err error) {
	w, err := s.begin(ctx, r)
	if err != nil {
		return 0, nil, err
	}
	defer w.Body.Close()
	body, err = io.ReadAll(w.Body)
	return w.StatusCode, body, err
}

// whole checks that a stream has its end, and this many tokens.
func whole(body []byte, tokens int) error {
	if !bytes.HasSuffix(body, []byte("data: [DONE]\n\n")) {
		return fmt.Errorf("no end: %.200q", body)
	}
	if want := fmt.Sprintf(`"completion_tokens":%d,`, tokens); !bytes.Contains(body, []byte(want)) {
		return fmt.Errorf("want %s: %.200q", want, body[max(0, len(body)-400):])
	}
	return nil
}

// ids are n ids, other ones for each number.
func ids(number, n int) (list []int32) {
	x := uint32(number)*2654435761 + 12345
	for range n {
		x = x*1664525 + 1013904223
		list = append(list, int32(256+x>>8%200))
	}
	return list
}

// calm waits until nothing runs and at most so many goroutines are there; it fails with
// their stacks.
func (s *running) calm(t *testing.T, goroutines int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		s.client.CloseIdleConnections()
		st := s.scheduler.State()
		n := runtime.NumGoroutine()
		if st.Running+st.Waiting == 0 && n <= goroutines {
			return
		}
		if time.Now().After(deadline) {
			var b strings.Builder
			pprof.Lookup("goroutine").WriteTo(&b, 1)
			t.Fatalf("%d run, %d wait, %d goroutines, %d before:\n%.6000s", st.Running, st.Waiting, n, goroutines, b.String())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// heap is what is in use after a collection.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// gets reads a path, and returns how long it took.
func (s *running) gets(t *testing.T, path string) time.Duration {
	t.Helper()
	began := time.Now()
	w, err := s.client.Get(s.url + path)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer w.Body.Close()
	if _, err := io.Copy(io.Discard, w.Body); err != nil || w.StatusCode != http.StatusOK {
		t.Errorf("%s: %d %v", path, w.StatusCode, err)
	}
	return time.Since(began)
}
