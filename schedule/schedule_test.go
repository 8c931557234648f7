package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"windrow/conformance/decodertest"
	"windrow/decoder"
	"windrow/engine"
	"windrow/models/tinygsm"
	"windrow/schedule"
)

// open opens tiny-gsm.
func open(t *testing.T) *engine.Engine {
	t.Helper()
	if !tinygsm.Available {
		t.Skip("built without the embedded model")
	}
	e, err := engine.Open(t.Context(), "", engine.Options{Backend: decodertest.Device()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func start(t *testing.T, e *engine.Engine, o schedule.Options) *schedule.Scheduler {
	t.Helper()
	if o.Chunk == 0 {
		o.Chunk = decodertest.Chunk()
	}
	s := schedule.New(e, o)
	t.Cleanup(s.Close)
	return s
}

// requests are of all modes, greedy and sampled, of many lengths; some begin alike.
func requests(t *testing.T, e *engine.Engine, n int, seed uint64) (list []schedule.Request) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	problems := decodertest.Problems(t)
	for i := range n {
		prompt := slices.Clone(problems[r.IntN(len(problems))].Prompt)
		if i%3 == 0 { // the second turn of a conversation
			prompt = slices.Concat(prompt, prompt, problems[i%len(problems)].Prompt)
		}
		o := decoder.Options{Mode: []decoder.Mode{decoder.AR, decoder.WeDLM, decoder.Verified}[r.IntN(3)], MaxTokens: 5 + r.IntN(60)}
		if r.IntN(2) == 0 {
			o.Sampling = decoder.Sampling{Temperature: 0.8, TopP: 0.95, Seed: r.Uint64()}
		}
		o, err := e.Complete(o, len(prompt))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, schedule.Request{Prompt: prompt, Options: o})
	}
	return list
}

// answer is all that a stream says.
type answer struct {
	sum  decoder.Summary
	text string
	ids  []int32
}

// follow reads a stream to its end.
func follow(t *testing.T, s *schedule.Stream) (a answer, err error) {
	for {
		events, err := s.Next(context.Background())
		for _, e := range events {
			switch e := e.(type) {
			case decoder.Text:
				a.text += string(e)
			case decoder.Token:
				a.ids = append(a.ids, int32(e))
			}
		}
		if err != nil {
			a.sum = s.Summary()
			a.sum.Stats.PrefillSeconds, a.sum.Stats.DecodeSeconds = 0, 0
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return a, err
		}
	}
}

func submit(t *testing.T, e *engine.Engine, s *schedule.Scheduler, r schedule.Request) *schedule.Stream {
	t.Helper()
	r.Detokenizer = e.Tokenizer().NewStream(true)
	stream, err := s.Submit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// alone is what each request gets by itself, without any cache of prefixes.
func alone(t *testing.T, e *engine.Engine, list []schedule.Request) (want []answer) {
	t.Helper()
	return aloneIn(t, e, 0, list)
}

// aloneIn is alone with prompts cut into chunks.
func aloneIn(t *testing.T, e *engine.Engine, chunk int, list []schedule.Request) (want []answer) {
	t.Helper()
	s := start(t, e, schedule.Options{Sequences: 1, Prefixes: -1, Chunk: chunk})
	for _, r := range list {
		a, err := follow(t, submit(t, e, s, r))
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, a)
	}
	s.Close()
	return want
}

func compare(t *testing.T, what string, got, want answer) {
	t.Helper()
	// What was cached, and how it was cut, is not the answer.
	got.sum.Stats.CachedTokens, want.sum.Stats.CachedTokens = 0, 0
	if got.sum.Stats.Drafters[decoder.HeadDrafter].Rows > 0 {
		// What the model's own head drafts depends on what it has learned of other texts, and
		// on whether it has seen the beginning.
		got.sum.Stats, want.sum.Stats = decoder.Stats{}, decoder.Stats{}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %+v, alone %+v", what, got, want)
	}
}

// together submits all requests at once, and compares.
func together(t *testing.T, e *engine.Engine, s *schedule.Scheduler, list []schedule.Request, want []answer) {
	t.Helper()
	var wait sync.WaitGroup
	for i, r := range list {
		stream := submit(t, e, s, r)
		wait.Go(func() {
			got, err := follow(t, stream)
			if err != nil {
				t.Errorf("request %d: %v", i, err)
			}
			compare(t, fmt.Sprintf("request %d", i), got, want[i])
		})
	}
	wait.Wait()
}

// TestAmongOthers: the same request gives the same alone and among 31 others, the
// first time and when its beginning is cached.
func TestAmongOthers(t *testing.T) {
	e := open(t)
	list := requests(t, e, 32, 7)
	want := alone(t, e, list)
	s := start(t, e, schedule.Options{StepTime: 2 * time.Millisecond})
	for range 2 {
		together(t, e, s, list, want)
	}
	st := s.State()
	if st.PrefixHits < st.PrefixQueries/3 || st.Forwards == 0 || st.Rows < 2*st.Forwards {
		t.Errorf("nothing is shown: %+v", st)
	}
	if st.Running != 0 || st.Waiting != 0 {
		t.Errorf("%d run and %d wait when all is done", st.Running, st.Waiting)
	}
	s.Close()
	if used, _ := e.Budget().Used(); used != 0 {
		t.Errorf("%d bytes are taken when all is closed", used)
	}
}

// TestHits: prompts that begin alike for any number of tokens give what they give
// alone, whatever is cached.
func TestHits(t *testing.T) {
	e := open(t)
	r := rand.New(rand.NewPCG(3, 3))
	base := requests(t, e, 1, 5)[0]
	for len(base.Prompt) < 300 {
		base.Prompt = append(base.Prompt, base.Prompt...)
	}
	var list []schedule.Request
	for _, n := range []int{1, 62, 63, 64, 65, 66, 127, 128, 129, 130, 200, 256} {
		x := base
		x.Prompt = slices.Clone(base.Prompt[:n])
		for range r.IntN(40) + 1 {
			x.Prompt = append(x.Prompt, int32(r.IntN(4000)))
		}
		x.Options.MaxTokens = 12
		list = append(list, x)
	}
	want := alone(t, e, list)
	s := start(t, e, schedule.Options{})
	for round := range 3 {
		for _, i := range r.Perm(len(list)) {
			got, err := follow(t, submit(t, e, s, list[i]))
			if err != nil {
				t.Fatal(err)
			}
			compare(t, fmt.Sprintf("round %d, request %d", round, i), got, want[i])
		}
	}
	if st := s.State(); st.CachedTokens < st.PromptTokens/2 {
		t.Errorf("%d of %d tokens were cached: nothing is shown", st.CachedTokens, st.PromptTokens)
	}
}

// TestPreempted: with memory for a few, all of many get what they get alone, in the
// end.
func TestPreempted(t *testing.T) {
	if testing.Short() {
		t.Skip("many long answers: leave -short out")
	}
	e := open(t)
	list := requests(t, e, 14, 11)
	for i := range list {
		o := list[i].Options
		o.MaxTokens = 200
		o.StopIDs = nil // all are long
		list[i].Options = o
	}
	want := alone(t, e, list)
	page := e.KVPageBytes()
	s := start(t, e, schedule.Options{KVMemory: 13 * page, Sequences: 16, Prefixes: 4, Slack: -1})
	defer e.Budget().Limit(0)
	together(t, e, s, list, want)
	if st := s.State(); st.Preemptions < 5 || st.ReplayedRows == 0 {
		t.Errorf("%d preemptions, %d rows run again: nothing is shown", st.Preemptions, st.ReplayedRows)
	}
}

// What cannot ever fit ends with an error that says so, and nothing else does.
func TestTooLarge(t *testing.T) {
	e := open(t)
	s := start(t, e, schedule.Options{KVMemory: 2 * e.KVPageBytes()})
	defer e.Budget().Limit(0)
	r := requests(t, e, 1, 2)[0]
	for len(r.Prompt) < 300 {
		r.Prompt = append(r.Prompt, r.Prompt...)
	}
	if _, err := follow(t, submit(t, e, s, r)); err == nil || !strings.Contains(err.Error(), "no memory") {
		t.Errorf("a prompt of %d tokens in two pages: %v", len(r.Prompt), err)
	}
	small := requests(t, e, 1, 3)[0]
	small.Prompt, small.Options.MaxTokens = small.Prompt[:20], 5
	if _, err := follow(t, submit(t, e, s, small)); err != nil {
		t.Error(err)
	}
}

// TestCancelStorm: requests are cancelled at any time; no page, goroutine or place in
// the queue is lost, and those that are not cancelled are right.
func TestCancelStorm(t *testing.T) {
	e := open(t)
	list := requests(t, e, 8, 13)
	want := alone(t, e, list)
	s := start(t, e, schedule.Options{Queue: 10000})
	before := runtime.NumGoroutine()
	r := rand.New(rand.NewPCG(1, 9))
	var wait sync.WaitGroup
	cancelled := 0
	for i := range 400 {
		k := r.IntN(len(list))
		ctx, cancel := context.WithCancel(t.Context())
		q := list[k]
		q.Detokenizer = e.Tokenizer().NewStream(true)
		q.Owner = fmt.Sprint(i % 50)
		stream, err := s.Submit(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		gone := i%20 != 0
		if gone {
			cancelled++
			time.AfterFunc(time.Duration(r.IntN(50))*time.Millisecond, cancel)
		}
		wait.Go(func() {
			defer cancel()
			got, err := follow(t, stream)
			switch {
			case err != nil:
				t.Errorf("request %d: %v", i, err)
			case !gone:
				compare(t, fmt.Sprintf("request %d", i), got, want[k])
			case got.sum.FinishReason == decoder.FinishCancelled && !strings.HasPrefix(want[k].text, got.text):
				t.Errorf("request %d: cancelled at %q, alone %q", i, got.text, want[k].text)
			}
		})
	}
	wait.Wait()
	s.Close()
	if used, _ := e.Budget().Used(); used != 0 {
		t.Errorf("%d bytes are taken when all is closed", used)
	}
	for deadline := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

// TestQueue: what is too much is refused at once, by name; one owner leaves room for
// others.
func TestQueue(t *testing.T) {
	e := open(t)
	s := start(t, e, schedule.Options{Sequences: 1, Queue: 4, QueueTime: time.Hour})
	long := requests(t, e, 1, 2)[0]
	long.Options.MaxTokens, long.Options.StopIDs = 2000, nil
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first, err := s.Submit(ctx, long)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Next(ctx); err != nil { // it runs
		t.Fatal(err)
	}
	put := func(owner string) error {
		r := long
		r.Owner = owner
		_, err := s.Submit(ctx, r)
		return err
	}
	var full *schedule.FullError
	for i, c := range []struct {
		owner string
		ok    bool
	}{{"a", true}, {"a", true}, {"a", false}, {"b", true}, {"b", true}, {"c", false}} {
		if err := put(c.owner); (err == nil) != c.ok || err != nil && (!errors.As(err, &full) || full.RetryAfter < time.Second || full.RetryAfter > time.Minute) {
			t.Errorf("request %d, of %s: %v", i, c.owner, err)
		}
	}
	if st := s.State(); st.Running != 1 || st.Waiting != 4 {
		t.Errorf("%d run, %d wait", st.Running, st.Waiting)
	}
	short, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	if err := s.Drain(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a drain with a long answer: %v", err)
	}
	if err := put("d"); !errors.Is(err, schedule.ErrDraining) {
		t.Errorf("while draining: %v", err)
	}
	s.Close()
	if _, err := follow(t, first); !errors.Is(err, schedule.ErrClosed) {
		t.Errorf("what ran when it was closed: %v", err)
	}
	if err := put("e"); !errors.Is(err, schedule.ErrClosed) {
		t.Errorf("when it is closed: %v", err)
	}
}
