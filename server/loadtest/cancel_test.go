package loadtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"windrow/schedule"
	"windrow/server"
)

// readAll reads a reply's body.
func readAll(t *testing.T, w *http.Response) []byte {
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Error(err)
	}
	return body
}

// TestCancelStorm: 2,000 requests whose clients leave, after up to 50 ms or once they have read
// some of their stream, at every phase: while they wait, in their prompt, between steps.
// Afterwards all memory is free, no goroutine is more, and answers are what they were.
func TestCancelStorm(t *testing.T) {
	const requests, atOnce = 2000, 24
	s := serve(t, schedule.Options{Sequences: 8, Queue: 16 * atOnce, Chunk: 64}, server.Options{}, 0, nil)
	known := func() (all string) {
		for i, mode := range []string{"ar", "verified", "wedlm"} {
			status, body, err := s.complete(t.Context(), request{"prompt": ids(i, 200), "max_tokens": 30, "mode": mode, "seed": i, "temperature": 0.7, "ignore_eos": true, "n": 2})
			if err != nil || status != http.StatusOK {
				t.Fatal(status, err, string(body))
			}
			all += texts(t, body)
		}
		return all
	}
	want := known()
	s.calm(t, 1<<20)
	before := runtime.NumGoroutine()
	s.engine.delay.Store(int64(200 * time.Microsecond))
	var (
		mutex               sync.Mutex
		next, left, through int
		phases              [3]int // left before the header, in a stream, in a whole answer's body
		all                 sync.WaitGroup
	)
	for range atOnce {
		all.Go(func() {
			for {
				mutex.Lock()
				n := next
				next++
				mutex.Unlock()
				if n >= requests {
					return
				}
				random := rand.New(rand.NewPCG(2, uint64(n)))
				prompt := ids(random.IntN(6), 64*random.IntN(8)) // some begin alike
				prompt = append(prompt, ids(100+n, 1+random.IntN(90))...)
				r := request{"prompt": prompt, "max_tokens": 1 + random.IntN(120), "mode": []string{"ar", "verified", "wedlm"}[n%3], "ignore_eos": true,
					"stream": n%2 == 0, "n": 1 + random.IntN(2), "temperature": float64(n % 5 / 4), "cache_salt": fmt.Sprint(n % 2)}
				// However fast this machine is: a third before anything can have come, and a third of
				// the streams in their midst.
				stays, pieces := time.Duration(random.IntN(50_000))*time.Microsecond, 0
				switch n / 2 % 3 {
				case 1:
					stays /= 50
				case 2:
					if n%2 == 0 {
						stays, pieces = time.Hour, 1+random.IntN(4)
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), stays)
				status, body, err := s.leaving(ctx, r, pieces)
				gone := ctx.Err() != nil || errors.Is(err, context.Canceled)
				cancel()
				mutex.Lock()
				switch {
				case err == nil && status == http.StatusOK:
					through++
				case gone && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)):
					left++
					switch {
					case status == 0:
						phases[0]++
					case n%2 == 0:
						phases[1]++
					default:
						phases[2]++
					}
				default:
					t.Errorf("%d %v %.200s", status, err, body)
				}
				mutex.Unlock()
			}
		})
	}
	all.Wait()
	t.Logf("%d left (before the header, in a stream, in a body: %v), %d were answered", left, phases, through)
	if left < requests/2 || phases[0] < requests/20 || phases[1] < requests/20 {
		t.Errorf("%d left, %v: want many at each phase", left, phases)
	}
	s.engine.delay.Store(0)
	s.calm(t, before)
	if got := known(); got != want {
		t.Errorf("afterwards %q, before %q", got, want)
	}
	st := s.scheduler.State()
	if st.MemoryUsed == 0 || st.Prefixes == 0 {
		t.Errorf("nothing is kept: %+v", st)
	}
	s.stop()
	s.scheduler.Close()
	if used, _ := s.engine.Budget().Used(); used != 0 {
		t.Errorf("%d bytes of keys and values are in use by nobody", used)
	}
}

// leaving is complete of a client that leaves after so many pieces of the reply, if any.
func (s *running) leaving(ctx context.Context, r request, pieces int) (status int, body []byte, err error) {
	if pieces == 0 {
		return s.complete(ctx, r)
	}
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	w, err := s.begin(ctx, r)
	if err != nil {
		return 0, nil, err
	}
	defer w.Body.Close()
	piece := make([]byte, 64)
	for range pieces {
		n, err := w.Body.Read(piece)
		if body = append(body, piece[:n]...); err == io.EOF {
			return w.StatusCode, body, nil
		} else if err != nil {
			return w.StatusCode, body, err
		}
	}
	return w.StatusCode, body, context.Canceled
}

// texts are the texts of a whole completion.
func texts(t *testing.T, body []byte) (all string) {
	t.Helper()
	var reply struct {
		Choices []struct{ Text string }
	}
	decode(t, body, &reply)
	for _, c := range reply.Choices {
		all += c.Text + "|"
	}
	return all
}
