package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// Load is a load on a server that speaks the OpenAI API: requests to its
// /v1/completions, or to /v1/chat/completions where there are Questions, which are
// streamed.
type Load struct {
	// URL is where the server is, without /v1; Key is sent where it is not empty,
	// Model, Mode and Draft, too.
	URL, Key, Model, Mode, Draft string
	// Window is the window that verified decoding is asked for; 0: the server's choice.
	Window int
	// Clients are the numbers of clients that ask in a closed loop, one level each.
	Clients []int
	// Rates are levels of requests that come at random times.
	Rates []Rate
	// Requests is how many a level has; 0: four a client, eight at least.
	Requests int
	// Repetitions is how often everything is measured.
	Repetitions int
	// Prompt and Tokens are the sizes of a request.
	Prompt, Tokens int
	// Questions are asked in turn in place of random prompts, each a conversation of
	// one message; answers end by themselves, at Tokens at the latest.
	Questions []string
	// Shared is how many tokens all prompts of a level begin with, of those that Prompt
	// says. One request, which is not counted, brings them to the server's cache first.
	Shared int
	// Schema, where not empty, holds answers to a JSON schema: they end as it says, at
	// Tokens at the latest.
	Schema json.RawMessage
	// Models are asked for in turn, in place of Model, each for SwapEvery requests: what a
	// server does that has to take up another one.
	Models    []string
	SwapEvery int
	// Words sends prompts as text, of about Prompt tokens, in place of ids.
	Words bool
	// Seed chooses the prompts and the times.
	Seed uint64
	// GoodTTFT and GoodGap are what a good answer keeps.
	GoodTTFT, GoodGap time.Duration
}

// Rate is how many requests come in a second: PerSecond, or that part of what the
// largest number of clients had answered.
type Rate struct{ PerSecond, Share float64 }

// level is a number of clients or a rate.
type level struct {
	clients int
	rate    Rate
}

func (l level) name() string {
	switch {
	case l.clients > 0:
		return fmt.Sprintf("%d clients", l.clients)
	case l.rate.Share > 0:
		return fmt.Sprintf("%g %% of the rate", 100*l.rate.Share)
	}
	return fmt.Sprintf("%g a second", l.rate.PerSecond)
}

// loadRun is one run of a Load.
type loadRun struct {
	*Load
	ctx      context.Context
	client   *http.Client
	progress func(done, total int, note string)
	alone    map[int]string // by number of prompt, what one client alone got

	mutex       sync.Mutex
	done, total int
}

// Run measures the levels, once a repetition. An error is one of the load's own;
// what the server does wrong is counted. progress may be nil.
func (l *Load) Run(ctx context.Context, progress func(done, total int, note string)) (*LoadReport, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	most := 1
	levels := make([]level, 0, len(l.Clients)+len(l.Rates))
	for _, n := range l.Clients {
		levels, most = append(levels, level{clients: n}), max(most, n)
	}
	for _, r := range l.Rates {
		levels = append(levels, level{rate: r})
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true}
	defer transport.CloseIdleConnections()
	r := &loadRun{Load: l, ctx: ctx, client: &http.Client{Transport: transport}, progress: progress, alone: map[int]string{}}
	for _, x := range levels {
		r.total += l.Repetitions * l.requests(x, most)
	}
	report := &LoadReport{URL: l.URL, Mode: l.Mode, Draft: l.Draft, Window: l.Window, Questions: len(l.Questions), Prompt: l.Prompt, Shared: l.Shared, Schema: len(l.Schema) > 0, SwapEvery: l.SwapEvery, Tokens: l.Tokens, Repetitions: l.Repetitions}
	if len(l.Questions) > 0 {
		report.Prompt = 0
	}
	measured := make([][]measuredLevel, len(levels))
	for rep := range l.Repetitions {
		saturated := 0.0
		for i, x := range levels {
			salt := fmt.Sprintf("bench-%d-%d-%d", l.Seed, rep, i)
			if l.Shared > 0 {
				if a := r.ask(-1, salt); !a.ok() && ctx.Err() == nil {
					return nil, fmt.Errorf("the request that prompts share a beginning with: %s %s", a.error(), a.text)
				}
			}
			var m measuredLevel
			if x.clients > 0 {
				m = r.closed(x, l.requests(x, most), salt)
				if m.clients == most {
					saturated = m.answered
				}
			} else {
				rate := x.rate.PerSecond
				if x.rate.Share > 0 {
					rate = x.rate.Share * saturated
				}
				if !(rate > 0) {
					return nil, fmt.Errorf("%s: nothing was answered that it could be a part of", x.name())
				}
				m = r.open(x, l.requests(x, most), rate, salt)
			}
			if err := ctx.Err(); err != nil {
				return nil, context.Cause(ctx)
			}
			measured[i] = append(measured[i], m)
		}
	}
	for i, x := range levels {
		report.Levels = append(report.Levels, newLoadLevel(x.name(), measured[i]))
	}
	return report, nil
}

func (l *Load) check() error {
	for _, n := range l.Clients {
		if n < 1 {
			return fmt.Errorf("%d clients: want 1 or more", n)
		}
	}
	switch {
	case l.Prompt < leastPrompt || l.Tokens < 1:
		return fmt.Errorf("prompts of %d and answers of %d tokens: want at least %d and 1", l.Prompt, l.Tokens, leastPrompt)
	case len(l.Questions) > 0 && l.Words:
		return errors.New("questions are text: random words cannot be asked for, too")
	case l.Shared < 0 || l.Shared > 0 && l.Shared+leastPrompt > l.Prompt:
		return fmt.Errorf("prompts of %d tokens that share %d: want %d of their own at least", l.Prompt, l.Shared, leastPrompt)
	case l.Shared > 0 && (l.Words || len(l.Questions) > 0):
		return errors.New("prompts share tokens: words and questions cannot be asked for, too")
	case len(l.Models) > 0 && l.SwapEvery < 1:
		return errors.New("want at least one request before another model")
	case l.Repetitions < 1 || l.Requests < 0:
		return errors.New("want at least one repetition, and requests")
	case len(l.Clients)+len(l.Rates) == 0:
		return errors.New("no clients and no rate: nothing to measure")
	}
	for _, r := range l.Rates {
		if r.Share > 0 && len(l.Clients) == 0 {
			return errors.New("a rate in percent wants clients, of whose rate it is a part")
		}
	}
	return nil
}

// requests is how many a level has.
func (l *Load) requests(x level, most int) int {
	switch n := max(x.clients, 1); {
	case l.Requests > 0:
		return max(l.Requests, n)
	case x.clients == 0:
		return max(8, 4*most)
	default:
		return max(8, 4*n)
	}
}

// closed runs clients that ask again when they are answered.
func (r *loadRun) closed(x level, requests int, salt string) measuredLevel {
	m := measuredLevel{clients: x.clients, began: time.Now()}
	var next, all = 0, sync.WaitGroup{}
	m.answers = make([]answered, requests)
	for range x.clients {
		all.Go(func() {
			for {
				r.mutex.Lock()
				i := next
				next++
				if i >= requests && m.idle.IsZero() {
					m.idle = time.Now()
				}
				r.mutex.Unlock()
				if i >= requests || r.ctx.Err() != nil {
					return
				}
				r.next(x)
				m.answers[i] = r.ask(i, salt)
			}
		})
	}
	all.Wait()
	m.ended = time.Now()
	r.compare(x, &m)
	m.finish(r.Load, requests >= 4*x.clients)
	return m
}

// open sends requests at random times, however many are under way.
func (r *loadRun) open(x level, requests int, rate float64, salt string) measuredLevel {
	m := measuredLevel{rate: rate, began: time.Now(), answers: make([]answered, requests)}
	times := rand.New(rand.NewPCG(r.Seed, 7))
	var all sync.WaitGroup
	at := m.began
	for i := range requests {
		at = at.Add(time.Duration(times.ExpFloat64() / rate * float64(time.Second)))
		select {
		case <-time.After(time.Until(at)):
		case <-r.ctx.Done():
		}
		if r.ctx.Err() != nil {
			break
		}
		r.next(x)
		all.Go(func() { m.answers[i] = r.ask(i, salt) })
	}
	all.Wait()
	m.ended = time.Now()
	r.compare(x, &m)
	m.finish(r.Load, false)
	return m
}

// next says what comes.
func (r *loadRun) next(x level) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.progress != nil {
		r.progress(r.done, r.total, x.name())
	}
	r.done++
}

// compare compares texts with those that one client alone got, or keeps them as such.
func (r *loadRun) compare(x level, m *measuredLevel) {
	for i := range m.answers {
		a := &m.answers[i]
		if a.fault != "" || a.status != http.StatusOK {
			continue
		}
		want, known := r.alone[i]
		switch {
		case known:
			m.compared++
			if a.text != want {
				m.different++
			}
		case x.clients == 1:
			r.alone[i] = a.text
		}
	}
}
