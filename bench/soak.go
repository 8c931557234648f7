package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// Soak asks a windrow server for everything that users may ask for, for a long time,
// and watches what it holds.
type Soak struct {
	URL, Key, Model string
	Clients         int
	Duration        time.Duration
	Seed            uint64
}

// sampleEvery is how often the server's metrics are read.
const sampleEvery = 5 * time.Second

// soaking is one run.
type soaking struct {
	*Soak
	client *http.Client
	kinds  []soakKind
	known  map[string]string // by question, its answer
	report *SoakReport
	mutex  sync.Mutex // guards report
}

// Run asks until Duration is over. An error is one of the test's own: what the server
// did wrong is in the report, see [SoakReport.Check]. progress may be nil.
func (s *Soak) Run(ctx context.Context, progress func(done, total int, note string)) (*SoakReport, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: s.Clients, DisableCompression: true}
	defer transport.CloseIdleConnections()
	r := &soaking{Soak: s, client: &http.Client{Transport: transport}, known: map[string]string{},
		report: &SoakReport{URL: s.URL, Clients: s.Clients, Kinds: map[string]int{}, Errors: map[string]int{}}}
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	transport.CloseIdleConnections()
	before, err := r.settled(ctx, 0)
	if err != nil {
		return nil, fmt.Errorf("read /metrics: %w", err)
	}
	r.report.GoroutinesBefore = before.Goroutines
	began := time.Now()
	ending, cancel := context.WithDeadline(ctx, began.Add(s.Duration))
	defer cancel()
	var all sync.WaitGroup
	for i := range s.Clients {
		all.Go(func() { r.work(ctx, ending, rand.New(rand.NewPCG(s.Seed, uint64(i)))) })
	}
	tick := time.NewTicker(min(sampleEvery, s.Duration/4))
	defer tick.Stop()
	for ending.Err() == nil {
		select {
		case <-ending.Done():
			continue
		case <-tick.C:
		}
		x, err := r.sample(ctx)
		if err != nil {
			r.fault("/metrics: %v", err)
			continue
		}
		x.Seconds = time.Since(began).Seconds()
		r.mutex.Lock()
		r.report.Samples = append(r.report.Samples, x)
		n := r.report.Requests
		r.mutex.Unlock()
		if progress != nil {
			progress(int(x.Seconds), int(s.Duration.Seconds()), fmt.Sprintf("%d requests, %.1f MB", n, float64(x.Resident)/1e6))
		}
	}
	all.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	r.report.Seconds = time.Since(began).Seconds()
	transport.CloseIdleConnections()
	after, err := r.settled(ctx, before.Goroutines)
	if err != nil {
		return nil, fmt.Errorf("read /metrics: %w", err)
	}
	r.report.GoroutinesAfter, r.report.StillRunning = after.Goroutines, after.Running
	r.report.measure()
	return r.report, nil
}

// work asks one thing after the other.
func (r *soaking) work(ctx, ending context.Context, random *rand.Rand) {
	for ending.Err() == nil && ctx.Err() == nil {
		k := &r.kinds[random.IntN(len(r.kinds))]
		q := k.make(random)
		about, gone := ctx, context.CancelFunc(func() {})
		leaves := !k.alone && random.IntN(8) == 0
		if leaves {
			about, gone = context.WithTimeout(ctx, time.Duration(random.IntN(50_000))*time.Microsecond)
		}
		text, err := r.send(about, k.path, q)
		gone() // now: what is put off until all is over is memory that grows
		r.mutex.Lock()
		r.report.Requests++
		r.report.Kinds[k.name]++
		r.mutex.Unlock()
		var status statusError
		switch {
		case ctx.Err() != nil:
			return
		case leaves && err != nil && !errors.As(err, &status):
			r.count(&r.report.Left)
		case errors.As(err, &status) && int(status) == k.want:
		case err == nil && k.want != 0:
			r.fault("%s: 200, want %d", k.name, k.want)
		case err != nil:
			r.fault("%s: %v", k.name, err)
		case k.alone:
			r.count(&r.report.Compared)
			if alone := r.known[string(q)]; text != alone {
				r.count(&r.report.Different)
				r.fault("%s: %.80q, alone it was %.80q", k.name, text, alone)
			}
		}
	}
}

func (r *soaking) count(n *int) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	*n++
}

// mostFaults is how many are kept in words.
const mostFaults = 20

func (r *soaking) fault(format string, args ...any) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	text := fmt.Sprintf(format, args...)
	r.report.Faults++
	if len(r.report.Errors) < mostFaults || r.report.Errors[text] > 0 {
		r.report.Errors[text]++
	}
}

// statusError is a reply of another status than 200.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("status %d", int(e)) }

// send sends a request and returns the text of its answer, whatever its form.
func (r *soaking) send(ctx context.Context, path string, body []byte) (string, error) {
	q, err := post(ctx, r.URL+path, r.Key, body)
	if err != nil {
		return "", err
	}
	w, err := r.client.Do(q)
	if err != nil {
		return "", err
	}
	defer w.Body.Close()
	data, err := io.ReadAll(w.Body)
	switch {
	case err != nil:
		return "", err
	case w.StatusCode != http.StatusOK && !bytes.HasPrefix(data, []byte(`{"`)):
		return "", fmt.Errorf("status %d with %.80q: want an error object", w.StatusCode, data)
	case w.StatusCode != http.StatusOK:
		return "", statusError(w.StatusCode)
	case len(data) == 0:
		return "", errors.New("200 without a body")
	}
	if w.Header.Get("Content-Type") == "text/event-stream" {
		return string(data), ended(data)
	}
	var reply struct {
		Choices []struct {
			Text    string `json:"text"`
			Message struct {
				Content string `json:"content"`
			} `json:"message"`
			Reason string `json:"finish_reason"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(data, &reply); err != nil {
		return "", fmt.Errorf("%.80q: %w", data, err)
	}
	text := ""
	for _, c := range reply.Choices {
		if c.Reason == "" {
			return "", fmt.Errorf("%.80q: a choice without a finish reason", data)
		}
		text += c.Text + c.Message.Content + "\x00" + c.Reason + "\x00"
	}
	return text, nil
}

// ended returns an error where a stream has no end, or has an error in it.
func ended(data []byte) error {
	switch {
	case bytes.Contains(data, []byte(`data: {"error"`)), bytes.Contains(data, []byte("event: error")):
		return fmt.Errorf("an error in the stream: %.200q", data[max(0, len(data)-200):])
	case bytes.HasSuffix(data, []byte("data: [DONE]\n\n")), bytes.Contains(data, []byte("event: message_stop\n")),
		bytes.Contains(data, []byte("event: response.completed\n")), bytes.Contains(data, []byte("event: response.incomplete\n")):
		return nil
	}
	return fmt.Errorf("a stream without its end: %.200q", data[max(0, len(data)-200):])
}
