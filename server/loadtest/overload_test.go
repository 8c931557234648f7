package loadtest

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"windrow/schedule"
	"windrow/server"
)

// TestOverload: ten times as many clients as the queue holds. Who has no place hears so
// at once, everyone who has one is served to the end, memory does not grow, and the
// server answers what it is asked about itself. The bounds of time are of a machine that has
// nothing else to do: where one is not kept, the least of up to five runs counts.
func TestOverload(t *testing.T) {
	refusal, probe := time.Hour, time.Hour
	const mostRefusal, mostProbe = 50 * time.Millisecond * slower, 10 * time.Millisecond * slower
	for n := 0; n < 5 && (refusal >= mostRefusal || probe >= mostProbe); n++ {
		r, p := overload(t)
		refusal, probe = min(refusal, r), min(probe, p)
	}
	if refusal >= mostRefusal {
		t.Errorf("99 of 100 refusals took up to %v, want under %v", refusal, mostRefusal)
	}
	if probe >= mostProbe {
		t.Errorf("95 of 100 answers of /health took up to %v, want under %v", probe, mostProbe)
	}
}

// overload is a run of TestOverload. It returns how long 99 of 100 refusals, and 95 of 100
// answers of /health, took at most.
func overload(t *testing.T) (refusal, probe time.Duration) {
	const queue, tokens = 32, 20
	length := 5 * time.Second
	if full() {
		length = time.Minute
	}
	s := serve(t, schedule.Options{Sequences: 8, Queue: queue}, server.Options{}, 0, nil)
	s.engine.delay.Store(int64(2 * time.Millisecond))
	ending := time.Now().Add(length)
	var (
		mutex             sync.Mutex
		refusals          []time.Duration
		served, withRetry int
		all               sync.WaitGroup
	)
	for i := range 10 * queue {
		random := rand.New(rand.NewPCG(1, uint64(i)))
		all.Go(func() {
			time.Sleep(time.Duration(random.IntN(250)) * time.Millisecond)
			for n := 0; time.Now().Before(ending); n++ {
				began := time.Now()
				w, err := s.client.Post(s.url+"/v1/completions", "application/json", request{"prompt": ids(i*1000+n, 1+random.IntN(100)), "max_tokens": tokens,
					"mode": "ar", "temperature": 0, "ignore_eos": true, "stream": true, "stream_options": request{"include_usage": true}}.reader())
				if err != nil {
					t.Error(err)
					return
				}
				took := time.Since(began) // the header is there: of a refusal, all there is
				body := readAll(t, w)
				mutex.Lock()
				switch w.StatusCode {
				case http.StatusOK:
					if served++; whole(body, tokens) != nil {
						t.Error(whole(body, tokens))
					}
				case http.StatusTooManyRequests:
					refusals = append(refusals, took)
					if w.Header.Get("Retry-After") != "" && strings.Contains(string(body), `"code":"queue_full"`) {
						withRetry++
					}
				default:
					t.Errorf("%d %s", w.StatusCode, body)
				}
				mutex.Unlock()
				if w.StatusCode == http.StatusTooManyRequests {
					time.Sleep(time.Duration(200+random.IntN(200)) * time.Millisecond)
				}
			}
		})
	}
	// The heap after a third of the time, and at the end; /health all the while.
	var probes []time.Duration
	var early int64
	for time.Now().Before(ending) {
		probes = append(probes, s.gets(t, "/health"))
		if early == 0 && time.Until(ending) < length*2/3 {
			early = heap()
		}
		time.Sleep(20 * time.Millisecond)
	}
	late := heap()
	all.Wait()
	if served < 50 || len(refusals) < 10*queue || withRetry != len(refusals) {
		t.Errorf("%d served, %d refused, %d of them with when to come again", served, len(refusals), withRetry)
	}
	// Connections, buffers and kept prompts breathe by some MB; a request that leaked
	// its buffer and its goroutine would cost over 10 kB, and some thousand were made.
	if grew := late - early; grew > 4<<20 {
		t.Errorf("the heap grew by %d KiB, from %d", grew>>10, early>>10)
	}
	t.Logf("%d served, %d refused: p50 %v, p99 %v; /health p50 %v, p95 %v; heap %+d KiB",
		served, len(refusals), quantile(refusals, 0.5), quantile(refusals, 0.99), quantile(probes, 0.5), quantile(probes, 0.95), (late-early)>>10)
	return quantile(refusals, 0.99), quantile(probes, 0.95)
}

// quantile is the least time that is not below a part q of the times.
func quantile(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
