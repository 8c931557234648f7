package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// fakeServer answers completions with a piece of text per token, delay apart; spoil
// changes the answer of the nth request.
type fakeServer struct {
	delay  time.Duration
	spoil  func(n int, w http.ResponseWriter, tokens int) bool
	n      atomic.Int64
	mutex  sync.Mutex
	asked  []map[string]any
	atOnce atomic.Int64
	most   atomic.Int64
}

func (s *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := s.atOnce.Add(1)
	defer s.atOnce.Add(-1)
	for {
		most := s.most.Load()
		if now <= most || s.most.CompareAndSwap(most, now) {
			break
		}
	}
	var q map[string]any
	data, _ := io.ReadAll(r.Body)
	if json.Unmarshal(data, &q) != nil || r.URL.Path != "/v1/completions" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.mutex.Lock()
	s.asked = append(s.asked, q)
	s.mutex.Unlock()
	tokens := int(q["max_tokens"].(float64))
	if s.spoil != nil && s.spoil(int(s.n.Add(1))-1, w, tokens) {
		return
	}
	first := fmt.Sprint(q["prompt"].([]any)[:2])
	for i := range tokens {
		time.Sleep(s.delay)
		sendText(w, fmt.Sprintf("%s%d,", first, i))
	}
	sendEnd(w, tokens, 3)
}

func sendText(w http.ResponseWriter, text string) {
	fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"text\":%q}]}\n\n", text)
	w.(http.Flusher).Flush()
}

func sendEnd(w http.ResponseWriter, tokens, cached int) {
	fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{\"completion_tokens\":%d,\"prompt_tokens_details\":{\"cached_tokens\":%d}}}\n\ndata: [DONE]\n\n", tokens, cached)
}

func load(url string) *Load {
	return &Load{URL: url, Clients: []int{1}, Repetitions: 1, Prompt: 8, Tokens: 5, Seed: 3, GoodTTFT: time.Second, GoodGap: time.Second}
}

// TestLoad: figures are those of a server whose times are known, texts are compared,
// and as many clients ask at once as were to. On a busy machine what a client reads late is
// more at once, and less before: the figures of one of some runs have to be right.
func TestLoad(t *testing.T) {
	wrong := ""
	for range 10 {
		if wrong = measuredLoad(t); wrong == "" || t.Failed() {
			break
		}
	}
	if wrong != "" {
		t.Error(wrong)
	}
}

// measuredLoad is a run of TestLoad. It returns what is wrong with its figures.
func measuredLoad(t *testing.T) (wrong string) {
	const delay = 10 * time.Millisecond
	s := &fakeServer{delay: delay}
	h := httptest.NewServer(s)
	defer h.Close()
	l := load(h.URL)
	l.Clients, l.Rates, l.Mode, l.Repetitions = []int{1, 4}, []Rate{{Share: 0.5}, {PerSecond: 100}}, "verified", 2
	l.Draft = "lookup"
	calls := 0
	r, err := l.Run(t.Context(), func(done, total int, note string) {
		if done != calls || total != 2*(8+16+16+16) || note == "" {
			t.Errorf("progress %d of %d %q after %d", done, total, note, calls)
		}
		calls++
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Levels) != 4 || calls != 112 {
		t.Fatalf("%d levels, %d calls", len(r.Levels), calls)
	}
	if n := s.most.Load(); n < 4 {
		wrong = fmt.Sprintf("%d at once, want 4", n)
	}
	for i, x := range r.Levels {
		wantCompared := 8 // of the second repetition, and all later levels: the first 8 prompts
		if i > 0 {
			wantCompared = 16
		}
		if x.Compared != wantCompared || x.Different != 0 || len(x.Errors) != 0 || x.Cached != 3*x.Requests {
			t.Errorf("%s: %+v", x.Name, x)
		}
		if x.TTFT99.Median < x.TTFT50.Median || x.WorstGap.Median < x.Gap50.Median {
			t.Errorf("%s: %+v", x.Name, x)
		}
		// Sleeps are never shorter, and on a busy machine longer.
		if x.TTFT50.Median < 10 || x.Gap50.Median < 10 {
			wrong = fmt.Sprintf("%s: %+v", x.Name, x)
		}
	}
	one, four := r.Levels[0], r.Levels[1]
	if one.Throughput.Max > 100.1 || one.Throughput.Median < 20 || four.Throughput.Max > 400.4 || four.Throughput.Median < 1.5*one.Throughput.Median || four.WholeRun {
		wrong = fmt.Sprintf("tokens a second: %v, of four %v", one.Throughput, four.Throughput)
	}
	if one.Answered.Median > 20.02 || one.Goodput != one.Answered {
		wrong = fmt.Sprintf("%v answered, %v good", one.Answered, one.Goodput)
	}
	var text bytes.Buffer
	if err := r.Table(&text); err != nil || !strings.Contains(text.String(), "16 of 16 equal") || !strings.Contains(text.String(), "* of the whole run") {
		t.Errorf("%v\n%s", err, &text)
	}
	seen := map[string]bool{}
	for _, q := range s.asked {
		if q["mode"] != "verified" || q["draft"] != "lookup" || q["ignore_eos"] != true || q["temperature"] != 0.0 || len(q["prompt"].([]any)) != 8 {
			t.Fatalf("asked %v", q)
		}
		key := fmt.Sprint(q["cache_salt"], q["prompt"].([]any)[:2])
		if seen[key] {
			t.Fatalf("two prompts begin alike: %s", key)
		}
		seen[key] = true
	}
	return wrong
}

// TestLoadFaults: what a server does wrong is counted under its name.
func TestLoadFaults(t *testing.T) {
	for want, spoil := range map[string]func(w http.ResponseWriter, tokens int){
		"429": func(w http.ResponseWriter, _ int) { w.WriteHeader(http.StatusTooManyRequests) },
		"400": func(w http.ResponseWriter, _ int) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error": {"message": "too\nlong\u001b[31m"}}`)
		},
		"503": func(w http.ResponseWriter, _ int) {
			http.Error(w, "not now "+strings.Repeat("x", 300), http.StatusServiceUnavailable)
		},
		"empty": func(w http.ResponseWriter, n int) { sendEnd(w, n, 0) },
		"short": func(w http.ResponseWriter, n int) { sendText(w, "x"); sendEnd(w, n-1, 0) },
		"cut":   func(w http.ResponseWriter, _ int) { sendText(w, "x") },
		"stream": func(w http.ResponseWriter, _ int) {
			sendText(w, "x")
			fmt.Fprint(w, "data: {\"error\":{\"message\":\"x\"}}\n\n")
		},
		"form":    func(w http.ResponseWriter, _ int) { fmt.Fprint(w, "data: {\n\n") },
		"network": func(w http.ResponseWriter, _ int) { sendText(w, "x"); panic(http.ErrAbortHandler) },
		"different": func(w http.ResponseWriter, n int) {
			sendText(w, "another text")
			sendEnd(w, n, 0)
		},
	} {
		s := &fakeServer{spoil: func(n int, w http.ResponseWriter, tokens int) bool {
			if n != 10 {
				return false
			}
			spoil(w, tokens)
			return true
		}}
		h := httptest.NewServer(s)
		l := load(h.URL)
		l.Clients, l.Requests = []int{1, 2}, 8
		r, err := l.Run(t.Context(), nil)
		h.Close()
		if err != nil {
			t.Fatal(err)
		}
		x := r.Levels[1]
		if want == "different" {
			if x.Different != 1 || r.Different() != 1 || r.Failed() != 0 {
				t.Errorf("%s: %+v", want, x)
			}
			continue
		}
		if x.Errors[want] != 1 || len(x.Errors) != 1 || r.Failed() != 1 || r.Different() != 0 || x.Requests != 8 {
			t.Errorf("%s: %+v", want, x)
		}
		reason := map[string]string{"400": "too long [31m", "503": "not now " + strings.Repeat("x", 191) + "…", "stream": "x"}[want]
		if got := r.Reason(); got != reason && want != "network" {
			t.Errorf("%s: the reason is %q, want %q", want, got, reason)
		}
	}
}

// TestLoadCannot: what makes no sense is said, and ctrl-C ends it.
func TestLoadCannot(t *testing.T) {
	for i, spoil := range []func(*Load){
		func(l *Load) { l.Clients = nil },
		func(l *Load) { l.Clients = []int{0} },
		func(l *Load) { l.Prompt = 1 },
		func(l *Load) { l.Tokens = 0 },
		func(l *Load) { l.Repetitions = 0 },
		func(l *Load) { l.Clients, l.Rates = nil, []Rate{{Share: 1}} },
	} {
		l := load("http://127.0.0.1:1")
		spoil(l)
		if _, err := l.Run(t.Context(), nil); err == nil {
			t.Errorf("%d ran", i)
		}
	}
	r, err := load("http://127.0.0.1:1").Run(t.Context(), nil)
	if err != nil || r.Levels[0].Errors["network"] != 8 || !strings.Contains(r.Reason(), "refused") {
		t.Errorf("%v %+v", err, r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	h := httptest.NewServer(&fakeServer{delay: 20 * time.Millisecond})
	defer h.Close()
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := load(h.URL).Run(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestQuantile(t *testing.T) {
	values := []float64{5, 1, 4, 2, 3}
	for q, want := range map[float64]float64{0: 1, 0.2: 1, 0.5: 3, 0.99: 5, 1: 5} {
		if got := quantile(values, q); got != want {
			t.Errorf("%g: %g, want %g", q, got, want)
		}
	}
	if quantile(nil, 0.5) != 0 {
		t.Error("of none")
	}
}

// TestTokensBetween: tokens go by bytes, as a chunk may have several.
func TestTokensBetween(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	a := answered{tokens: 10, pieces: []piece{{at(1), 1}, {at(2), 4}, {at(3), 5}}}
	for _, c := range []struct {
		from, to int
		want     float64
	}{{0, 9, 10}, {2, 9, 9}, {2, 2, 4}, {4, 9, 0}} {
		if got := a.tokensBetween(at(c.from), at(c.to)); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%d to %d: %g, want %g", c.from, c.to, got, c.want)
		}
	}
}

// TestGrowth: the slope is that of the lows, from the time on that counts.
func TestGrowth(t *testing.T) {
	var samples []SoakSample
	for i := range 720 { // an hour, each 5 s
		s := SoakSample{Seconds: float64(5 * i), Resident: 100e6 + int64(i)*5*1000 + int64(i%7)*3e6} // 3.6 MB an hour under a saw
		if s.Seconds < 600 {
			s.Resident = int64(i) * 1e6
		}
		samples = append(samples, s)
	}
	resident := func(s SoakSample) int64 { return s.Resident }
	if g := growth(samples, 600, resident); math.Abs(g-3.6) > 0.4 {
		t.Errorf("%.2f MB an hour, want 3.6", g)
	}
	if growth(nil, 0, resident) != 0 {
		t.Error("of none")
	}
	r := SoakReport{Seconds: 3600, Samples: samples, GoroutinesBefore: 5, GoroutinesAfter: 5}
	r.measure()
	if err := r.Check(); err == nil || !strings.Contains(err.Error(), "memory grew") {
		t.Errorf("%v", err)
	}
	// Keys and values that grow by as much are told of, and no excuse.
	for i := range samples {
		samples[i].Cached = int64(i) * 5 * 1000
	}
	r.measure()
	if err := r.Check(); err == nil || math.Abs(r.Growth-3.6) > 0.4 || math.Abs(r.GrowthBeside) > 0.1 {
		t.Errorf("%v: %.2f and %.2f MB an hour", err, r.Growth, r.GrowthBeside)
	}
	for i := range samples {
		samples[i].Resident = 100e6 + int64(i%7)*3e6
	}
	r.measure()
	if err := r.Check(); err != nil {
		t.Error(err)
	}
	for _, spoil := range []func(*SoakReport){func(r *SoakReport) { r.Faults = 1 }, func(r *SoakReport) { r.StillRunning = 1 }, func(r *SoakReport) { r.GoroutinesAfter = 50 }} {
		bad := r
		if spoil(&bad); bad.Check() == nil {
			t.Errorf("%+v passed", bad)
		}
	}
}

// TestLoadShared: prompts begin alike, behind one request that is not counted; forms and
// models are asked for as they are to be.
func TestLoadShared(t *testing.T) {
	s := &fakeServer{}
	h := httptest.NewServer(s)
	defer h.Close()
	l := load(h.URL)
	l.Clients, l.Shared, l.Requests = []int{1, 2}, 5, 8
	l.Models, l.SwapEvery, l.Schema = []string{"a", "b"}, 2, json.RawMessage(`{"type":"string"}`)
	r, err := l.Run(t.Context(), nil)
	if err != nil || len(s.asked) != 2*9 {
		t.Fatalf("%v, %d requests", err, len(s.asked))
	}
	for i, x := range r.Levels {
		if x.Requests != 8 || len(x.Errors) > 0 || x.Compared != 8*i || x.Different > 0 {
			t.Errorf("%+v", x)
		}
	}
	models, tails := map[any]int{}, map[string]bool{}
	for i, q := range s.asked {
		prompt := q["prompt"].([]any)
		if fmt.Sprint(prompt[:5]) != fmt.Sprint(s.asked[0]["prompt"]) || len(prompt) != 8 && i%9 > 0 {
			t.Errorf("prompt %v", prompt)
		}
		if at := q["response_format"].(map[string]any)["json_schema"].(map[string]any)["schema"]; fmt.Sprint(at) != "map[type:string]" || q["ignore_eos"] != nil {
			t.Errorf("asked %v", q)
		}
		if i%9 > 0 {
			models[q["model"]]++
			tails[fmt.Sprint(q["cache_salt"], prompt[5:7])] = true
		}
	}
	if models["a"] != 8 || models["b"] != 8 || len(tails) != 16 {
		t.Errorf("models %v, %d prompts", models, len(tails))
	}
	var text bytes.Buffer
	if err := r.Table(&text); err != nil || !strings.Contains(text.String(), "5 of the prompt shared, held to a schema, another model every 2 requests") {
		t.Errorf("%v\n%s", err, &text)
	}
	s.spoil = func(_ int, w http.ResponseWriter, _ int) bool { w.WriteHeader(503); return true }
	if _, err := l.Run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("%v", err)
	}
	for _, change := range []func(*Load){func(l *Load) { l.Shared = 7 }, func(l *Load) { l.Words = true }, func(l *Load) { l.SwapEvery = 0 }} {
		bad := *l
		change(&bad)
		if _, err := bad.Run(t.Context(), nil); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}
