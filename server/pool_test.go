package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"windrow/schedule"
)

// garage opens models for a pool, and looks after them: how many are open, and that
// none is closed while a request has it.
type garage struct {
	t           *testing.T
	open, most  atomic.Int32
	opened      sync.Map // how often, by name
	hold        chan struct{}
	fail        atomic.Pointer[error]
	held        sync.Map // requests that have a model, by its name
	loadingTime time.Duration
}

func (g *garage) source(name string, s *script) Source {
	return Source{Name: name, Context: 1000, Created: time.Unix(1700000000, 0), Open: func(ctx context.Context, progress func(float64)) (*Loaded, error) {
		progress(0.42)
		if g.hold != nil {
			select {
			case <-g.hold:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		time.Sleep(g.loadingTime)
		if err := g.fail.Load(); err != nil {
			return nil, *err
		}
		n := g.open.Add(1)
		for most := g.most.Load(); n > most && !g.most.CompareAndSwap(most, n); most = g.most.Load() {
		}
		times, _ := g.opened.LoadOrStore(name, new(atomic.Int32))
		times.(*atomic.Int32).Add(1)
		m := fake(g.t, s)
		m.Name = name
		return &Loaded{Model: m, Close: func() {
			if n, ok := g.held.Load(name); ok && n.(*atomic.Int32).Load() != 0 {
				g.t.Errorf("%s is closed while %d requests have it", name, n.(*atomic.Int32).Load())
			}
			g.open.Add(-1)
		}}, nil
	}}
}

// times is how often a model was opened.
func (g *garage) times(name string) int32 {
	n, ok := g.opened.Load(name)
	if !ok {
		return 0
	}
	return n.(*atomic.Int32).Load()
}

// use takes a model, and gives it back with the function that it returns.
func (g *garage) use(p *Pool, name string) (func(), error) {
	m, release, err := p.Take(g.t.Context(), name)
	if err != nil {
		return nil, err
	}
	if name != "" && m.Name != name {
		g.t.Errorf("got %s for %s", m.Name, name)
	}
	held, _ := g.held.LoadOrStore(m.Name, new(atomic.Int32))
	held.(*atomic.Int32).Add(1)
	return func() { held.(*atomic.Int32).Add(-1); release() }, nil
}

// within waits for something to become true.
func within(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// phases are those of a pool's models.
func phases(p *Pool) string {
	var list []string
	for _, s := range p.Standings() {
		list = append(list, s.Phase)
	}
	return strings.Join(list, " ")
}

// TestSwap: a model that is asked for takes the place of one whose requests are done, and
// who comes for that one meanwhile waits.
func TestSwap(t *testing.T) {
	g := &garage{t: t}
	p := NewPool(PoolOptions{}, g.source("a", &script{}), g.source("b", &script{}))
	defer p.Close()
	doneA, err := g.use(p, "")
	if err != nil {
		t.Fatal(err)
	}
	order := make(chan string, 2)
	begin := func(name string) {
		done, err := g.use(p, name)
		if err != nil {
			t.Error(err)
			return
		}
		order <- name
		done()
	}
	go begin("b")
	within(t, "a leaves", func() bool { return phases(p) == "draining unloaded" })
	go begin("a") // behind the barrier
	within(t, "two wait", func() bool { p.mutex.Lock(); defer p.mutex.Unlock(); return len(p.waiting) == 2 })
	doneA()
	if first, second := <-order, <-order; first != "b" || second != "a" {
		t.Errorf("%s before %s", first, second)
	}
	if g.most.Load() != 1 || g.times("a") != 2 || g.times("b") != 1 {
		t.Errorf("%d at once, a %d, b %d times", g.most.Load(), g.times("a"), g.times("b"))
	}
	if _, _, err := p.Take(t.Context(), "c"); !errors.Is(err, ErrUnknownModel) {
		t.Error(err)
	}
}

// TestSwapNotNeeded: where who asked for the other model gives up, the one that was to
// leave stays and takes requests.
func TestSwapNotNeeded(t *testing.T) {
	g := &garage{t: t}
	p := NewPool(PoolOptions{}, g.source("a", &script{}), g.source("b", &script{}))
	defer p.Close()
	done, err := g.use(p, "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { _, _, err := p.Take(ctx, "b"); ended <- err }()
	within(t, "a leaves", func() bool { return phases(p) == "draining unloaded" })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	again, err := g.use(p, "a")
	if err != nil {
		t.Fatal(err)
	}
	again()
	done()
	if got := phases(p); got != "loaded unloaded" || g.times("a") != 1 {
		t.Errorf("%s, a loaded %d times", got, g.times("a"))
	}
}

// TestSeveralLoaded: with room for two, the one of three that was used least recently
// leaves.
func TestSeveralLoaded(t *testing.T) {
	g := &garage{t: t}
	p := NewPool(PoolOptions{Loaded: 2}, g.source("a", &script{}), g.source("b", &script{}), g.source("c", &script{}))
	defer p.Close()
	for _, step := range []struct{ use, want string }{{"a", "loaded unloaded unloaded"}, {"b", "loaded loaded unloaded"}, {"a", "loaded loaded unloaded"},
		{"c", "loaded unloaded loaded"}, {"b", "unloaded loaded loaded"}} {
		done, err := g.use(p, step.use)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // clocks may be coarse
		done()
		if got := phases(p); got != step.want {
			t.Fatalf("after %s: %s, want %s", step.use, got, step.want)
		}
	}
}

// TestPoolQueue: no more wait than may, and none waits longer than it may.
func TestPoolQueue(t *testing.T) {
	g := &garage{t: t, hold: make(chan struct{})}
	p := NewPool(PoolOptions{Queue: 2}, g.source("a", &script{}), g.source("b", &script{}))
	defer p.Close()
	ended := make(chan error, 2)
	for range 2 {
		go func() {
			_, release, err := p.Take(t.Context(), "a")
			if err == nil {
				release()
			}
			ended <- err
		}()
	}
	within(t, "two wait", func() bool { p.mutex.Lock(); defer p.mutex.Unlock(); return len(p.waiting) == 2 })
	var full *schedule.FullError
	if _, _, err := p.Take(t.Context(), "b"); !errors.As(err, &full) || errorOf(err).status != http.StatusTooManyRequests {
		t.Errorf("a third: %v", err)
	}
	close(g.hold)
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	g = &garage{t: t, hold: make(chan struct{})}
	p = NewPool(PoolOptions{QueueTime: 50 * time.Millisecond}, g.source("a", &script{}), g.source("b", &script{}))
	defer p.Close()
	for range 2 {
		_, _, err := p.Take(t.Context(), "a")
		if e := errorOf(err); e.status != http.StatusServiceUnavailable || *e.Code != "loading" || e.retryAfter == 0 {
			t.Errorf("%v", err)
		}
	}
	close(g.hold)
	within(t, "a is loaded", func() bool { return phases(p) == "loaded unloaded" })
	done, err := g.use(p, "a")
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = p.Take(t.Context(), "b")
	if e := errorOf(err); e.status != http.StatusServiceUnavailable || *e.Code != "queue_timeout" || e.retryAfter == 0 {
		t.Errorf("%v", err)
	}
	done()
}

// TestLoadFails: who waits for a model that cannot be loaded hears so, without its
// files' names; the others are served, and the failed one is not tried at once again.
func TestLoadFails(t *testing.T) {
	g := &garage{t: t}
	p := NewPool(PoolOptions{}, g.source("a", &script{pieces: []string{"x"}}), g.source("b", &script{}))
	defer p.Close()
	if err := p.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	fault := errors.New("/home/somebody/model: damaged")
	g.fail.Store(&fault)
	h := httptest.NewServer(NewOf(p, Options{}))
	defer h.Close()
	for range 3 {
		w, data := ask(t, h, "POST", "/v1/chat/completions", `{"model":"b",`+hello+`}`)
		if w.StatusCode != 500 || at(object(t, data), "error", "code") != "model_not_loaded" || strings.Contains(string(data), "somebody") || w.Header.Get("X-Should-Retry") != "false" {
			t.Errorf("%d %s", w.StatusCode, data)
		}
	}
	g.fail.Store(nil)
	if w, data := ask(t, h, "POST", "/v1/chat/completions", `{"model":"a",`+hello+`}`); w.StatusCode != 200 || at(object(t, data), "model") != "a" {
		t.Errorf("%d %s", w.StatusCode, data)
	}
	if n := g.times("a"); n != 2 {
		t.Errorf("a was loaded %d times: a model that fails is tried again and again", n)
	}
}

// TestIdleUnload: the time runs from the end of the last request, and who comes later is
// served.
func TestIdleUnload(t *testing.T) {
	g := &garage{t: t}
	const idle = 60 * time.Millisecond
	p := NewPool(PoolOptions{IdleUnload: idle}, g.source("a", &script{}))
	defer p.Close()
	for range 2 {
		done, err := g.use(p, "")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * idle)
		if got := phases(p); got != "loaded" {
			t.Errorf("%s while a request has it", got)
		}
		ended := time.Now()
		done()
		within(t, "it is unloaded", func() bool { return phases(p) == "unloaded" })
		if d := time.Since(ended); d < idle {
			t.Errorf("unloaded %v after its last request", d)
		}
	}
	if p.Load(t.Context()) != nil {
		t.Error("it was not loaded again")
	}
	within(t, "one that nobody used is unloaded", func() bool { return phases(p) == "unloaded" })
}

// TestPoolRaces: takes, cancels, swaps and idle unloading at once: never more models
// than may be, none closed that a request has, all requests answered.
func TestPoolRaces(t *testing.T) {
	for _, most := range []int{1, 2} {
		g := &garage{t: t}
		names := []string{"a", "b", "c"}
		var sources []Source
		for _, n := range names {
			sources = append(sources, g.source(n, &script{}))
		}
		p := NewPool(PoolOptions{Loaded: most, IdleUnload: 50 * time.Microsecond}, sources...)
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 7))
				for range 150 {
					ctx, cancel := context.WithCancel(t.Context())
					if r.IntN(4) == 0 {
						time.AfterFunc(time.Duration(r.IntN(200))*time.Microsecond, cancel)
					}
					name := names[r.IntN(len(names))]
					m, release, err := p.Take(ctx, name)
					if err != nil {
						if !errors.Is(err, context.Canceled) {
							t.Error(err)
						}
						cancel()
						continue
					}
					if m.Name != name {
						t.Errorf("%s for %s", m.Name, name)
					}
					held, _ := g.held.LoadOrStore(name, new(atomic.Int32))
					held.(*atomic.Int32).Add(1)
					time.Sleep(time.Duration(r.IntN(100)) * time.Microsecond)
					held.(*atomic.Int32).Add(-1)
					release()
					release()
					cancel()
				}
			})
		}
		all.Wait()
		if n := int(g.most.Load()); n > most {
			t.Errorf("%d models at once, want at most %d", n, most)
		}
		p.Drain(t.Context())
		p.Close()
		if n := g.open.Load(); n != 0 {
			t.Errorf("%d models are left open", n)
		}
	}
}

// TestDrainWhileLoading: who waits for a model is refused, and its loading ends.
func TestDrainWhileLoading(t *testing.T) {
	g := &garage{t: t, hold: make(chan struct{})}
	p := NewPool(PoolOptions{}, g.source("a", &script{}))
	ended := make(chan error)
	go func() { _, _, err := p.Take(t.Context(), "a"); ended <- err }()
	within(t, "it is being loaded", func() bool { return phases(p) == "loading" })
	p.Drain(t.Context())
	if err := <-ended; !errors.Is(err, schedule.ErrDraining) {
		t.Error(err)
	}
	p.Close()
	if _, _, err := p.Take(t.Context(), "a"); !errors.Is(err, schedule.ErrDraining) || errorOf(err).status != 503 {
		t.Error(err)
	}
}

// TestProbesOfSeveral: what the probes say while the first model is loaded, and of models
// that are not.
func TestProbesOfSeveral(t *testing.T) {
	g := &garage{t: t, hold: make(chan struct{})}
	p := NewPool(PoolOptions{}, g.source("a", &script{pieces: []string{"Hi"}}), g.source("b", &script{}))
	defer p.Close()
	h := httptest.NewServer(NewOf(p, Options{Version: "v"}))
	defer h.Close()
	loaded := make(chan error)
	go func() { loaded <- p.Load(t.Context()) }()
	within(t, "it is being loaded", func() bool { progress, _ := p.starting(); return progress == 0.42 })
	get := func(path string, status int, want ...string) {
		t.Helper()
		w, data := ask(t, h, "GET", path, "")
		for _, s := range want {
			if !strings.Contains(string(data), s) {
				t.Errorf("%s: %s, want %s", path, data, s)
			}
		}
		if w.StatusCode != status || status == 503 && w.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s", path, w.StatusCode, data)
		}
	}
	get("/health", 503, `{"status":"loading","progress":0.42}`)
	get("/ready", 503, `"code":"loading"`, "42 %")
	get("/v1/models", 200, `"id":"a"`, `"id":"b"`)
	get("/v1/models/b", 200, `"id":"b"`, `"max_model_len":1000`)
	get("/props", 200, `"model":"a","n_ctx":1000`, `"state":"loading"`)
	get("/slots", 200, `"model":"a","state":"loading","progress":0.42`, `"model":"b","state":"unloaded"`)
	get("/metrics", 200, `windrow_forwards_total{model_name="b"} 0`)
	answered := make(chan string)
	go func() { // it waits for the model
		_, data := ask(t, h, "POST", "/v1/chat/completions", `{`+hello+`}`)
		answered <- fmt.Sprint(at(object(t, data), "choices", 0, "message", "content"))
	}()
	close(g.hold)
	if err := <-loaded; err != nil {
		t.Fatal(err)
	}
	if got := <-answered; got != "Hi" {
		t.Errorf("answered %q", got)
	}
	get("/health", 200, `{"status":"ok"}`)
	get("/ready", 200, "ready")
	get("/props?model=b", 200, `"model":"b"`, `"state":"unloaded"`)
	get("/props?model=x", 404, "model_not_found")
	get("/slots", 200, `"model":"a","state":"loaded","requests":0`)
}
