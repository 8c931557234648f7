// Package scheduletest checks on any backend what a scheduler promises of answers: that
// they depend on nothing but the request.
package scheduletest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"windrow/backend"
	"windrow/checkpoint"
	"windrow/decoder"
	"windrow/model"
	"windrow/rope"
	"windrow/schedule"
	"windrow/session"
	"windrow/synthetic"
)

const (
	vocabulary = 128
	maskID     = vocabulary - 1
	// chunk is how many rows of a prompt go together: two pages, and more rows than a
	// GPU gives the same bits in any number.
	chunk = 2 * backend.PageTokens
)

// device is a model as a schedule.Engine: one call at a time.
type device struct {
	mutex sync.Mutex
	model *model.Model
}

func (d *device) Forward(ctx context.Context, b *model.Batch) ([]model.Result, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.model.Forward(ctx, b)
}

func (d *device) NewCache(_ context.Context, capacity, maxRows int) (*model.Cache, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.model.NewCache(model.CacheOptions{Capacity: capacity, MaxRows: maxRows, DType: backend.KVBF16})
}

func (d *device) ForkCache(_ context.Context, c *model.Cache, n, capacity, maxRows int) (*model.Cache, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return c.Fork(n, capacity, maxRows)
}

func (d *device) ReserveCache(_ context.Context, c *model.Cache, n int) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return c.Reserve(n)
}

func (d *device) FreeCache(c *model.Cache) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	c.Close()
}

func (d *device) ExportCache(_ context.Context, c *model.Cache, page int, dst []byte) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return c.Export(page, dst)
}

func (d *device) ImportCache(_ context.Context, c *model.Cache, pages ...[]byte) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for _, page := range pages {
		if err := c.Import(page); err != nil {
			return err
		}
	}
	return nil
}

func (d *device) RoomCache(_ context.Context, c *model.Cache, n int) ([][]byte, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return c.Room(n)
}

func (d *device) ExportStates(_ context.Context, c *model.Cache, p backend.Place, dst []byte) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return c.ExportStates(p, dst)
}

func (d *device) ImportStates(_ context.Context, c *model.Cache, p backend.Place, end int, src []byte) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return c.ImportStates(p, end, src)
}

func (d *device) Features() backend.Features { return d.model.Backend().Features() }
func (d *device) Budget() *backend.Budget    { return d.model.Backend().Budget() }
func (d *device) KVPageBytes() int64 {
	return backend.PageTokens * d.model.Config().KVBytesPerToken(backend.KVBF16)
}

// shape is that of a model of one layer, whose last id is a mask.
func shape() checkpoint.Config {
	return checkpoint.Config{
		Architecture: "wedlm", HiddenSize: 64, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 64, IntermediateSize: 128,
		VocabSize: vocabulary, RMSNormEps: 1e-6, MaxPositions: 4096, TieEmbeddings: true,
		Rope: rope.Config{Type: rope.Default, HeadDim: 64, Theta: 1e4}, MaskTokenID: maskID, DType: "bfloat16",
	}
}

// open loads a model with invented weights.
func open(t *testing.T, b backend.Backend, config checkpoint.Config) *device {
	t.Helper()
	m, err := model.Load(b, synthetic.RandomSource(&config, backend.BF16, 1), model.Barring(vocabulary, maskID))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return &device{model: m}
}

// alike reports whether rows of prompts have the same bits however prompts are cut.
func (d *device) alike() bool {
	f := d.Features()
	return f.PromptRows >= chunk || f.BatchInvariantRows >= 1<<10
}

// store opens a folder of sessions.
func (d *device) store(t *testing.T, dir string, states bool) *session.Store {
	t.Helper()
	s, err := session.Open(dir, session.Options{
		Fingerprint: "test", PageTokens: backend.PageTokens, PageBytes: int(d.KVPageBytes()), States: states, Note: func(line string) { t.Error(line) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// answer is all that a request gets.
type answer struct {
	ids    []int32
	prompt []decoder.PromptLogprobs
	reason decoder.FinishReason
}

func (d *device) ask(t *testing.T, s *schedule.Scheduler, r schedule.Request) func() answer {
	t.Helper()
	stream, err := s.Submit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return func() (a answer) {
		for {
			events, err := stream.Next(t.Context())
			for _, e := range events {
				switch e := e.(type) {
				case decoder.Token:
					a.ids = append(a.ids, int32(e))
				case decoder.PromptLogprobs:
					a.prompt = append(a.prompt, e)
				}
			}
			if errors.Is(err, io.EOF) {
				a.reason = stream.Summary().FinishReason
				return a
			}
			if err != nil {
				t.Error(err)
				return a
			}
		}
	}
}

// request is one of a mode and a window, greedy or sampled.
func request(prompt []int32, mode decoder.Mode, window, tokens int, seed uint64) schedule.Request {
	o := decoder.DefaultOptions()
	o.Mode, o.Window, o.MaxTokens = mode, window, tokens
	o.Vocabulary = decoder.Vocabulary{Size: vocabulary, MaskID: maskID}
	if seed > 0 {
		o.Sampling = decoder.Sampling{Temperature: 0.9, TopP: 0.95, Seed: seed}
	}
	return schedule.Request{Prompt: prompt, Options: o}
}

// Run checks that a request's answer is the same alone and among others, with its
// beginning cached and not, a page of it too, after a preemption, and, in verified, at any window what ar
// gives, sampled too. The model is small: an emulated GPU takes seconds.
func Run(t *testing.T, b backend.Backend) {
	d := open(t, b, shape())
	r := rand.New(rand.NewPCG(1, 2))
	ids := func(n int) []int32 {
		list := make([]int32, n)
		for i := range list {
			list[i] = r.Int32N(maskID)
		}
		return list
	}
	base := ids(chunk)
	var list []schedule.Request
	same := map[int]int{} // requests whose answers must be those of another
	for seed := range uint64(2) {
		for i, n := range []int{5, 70} {
			prompt := ids(n)
			if i > 0 {
				prompt = slices.Concat(base, prompt)
			}
			first := len(list)
			list = append(list, request(prompt, decoder.AR, 1, 10, seed), request(prompt, decoder.WeDLM, 4, 10, seed))
			for _, window := range []int{2, 8} {
				same[len(list)] = first
				list = append(list, request(prompt, decoder.Verified, window, 10, seed))
			}
		}
	}
	// Logprobs of a prompt take chunks of their own.
	two, tells := 2, request(ids(70), decoder.AR, 1, 10, 0)
	tells.Options.PromptLogprobs = &two
	list = append(list, tells)
	start := func(t *testing.T, o schedule.Options) *schedule.Scheduler {
		o.Chunk = chunk
		s := schedule.New(d, o)
		t.Cleanup(s.Close)
		return s
	}
	want := make([]answer, len(list))
	s := start(t, schedule.Options{Sequences: 1, Prefixes: -1})
	for i, q := range list {
		want[i] = d.ask(t, s, q)()
	}
	s.Close()
	if n := len(want[len(want)-1].prompt); n != 69 {
		t.Errorf("%d tokens of a prompt of 70 were told of, want all but the first", n)
	}
	for i, first := range same {
		if !slices.Equal(want[i].ids, want[first].ids) {
			t.Errorf("request %d: verified with window %d and temperature %g gave %v, ar %v", i, list[i].Options.Window, list[i].Options.Sampling.Temperature, want[i].ids, want[first].ids)
		}
	}
	together := func(t *testing.T, s *schedule.Scheduler) {
		t.Helper()
		var answers []func() answer
		for _, q := range list {
			answers = append(answers, d.ask(t, s, q))
		}
		for i, wait := range answers {
			if got := wait(); fmt.Sprint(got) != fmt.Sprint(want[i]) {
				t.Errorf("request %d: %v, alone %v", i, got, want[i])
			}
		}
	}
	t.Run("among others", func(t *testing.T) {
		s := start(t, schedule.Options{Sequences: len(list)})
		for range 2 { // the second time beginnings are cached
			together(t, s)
		}
		if st := s.State(); st.CachedTokens < chunk || st.Rows < st.Forwards*4 {
			t.Errorf("%d tokens were cached, %d rows in %d forwards: nothing is shown", st.CachedTokens, st.Rows, st.Forwards)
		}
	})
	t.Run("preempted", func(t *testing.T) {
		defer d.Budget().Limit(0)
		defer func(l []schedule.Request, w []answer) { list, want = l, w }(list, want)
		list, want = nil, nil
		for i := range 4 { // two pages each at first, then three
			list = append(list, request(ids(60), []decoder.Mode{decoder.AR, decoder.WeDLM, decoder.Verified}[i%3], 4, 74, uint64(i/2)))
		}
		s := start(t, schedule.Options{Sequences: 1, Prefixes: -1})
		for _, q := range list {
			want = append(want, d.ask(t, s, q)())
		}
		s.Close()
		s = start(t, schedule.Options{Sequences: len(list), KVMemory: 8 * d.KVPageBytes(), Prefixes: -1, Slack: -1})
		together(t, s)
		if st := s.State(); st.Preemptions == 0 || st.ReplayedRows == 0 {
			t.Errorf("%d preemptions, %d rows run again: nothing is shown", st.Preemptions, st.ReplayedRows)
		}
	})
	t.Run("short conversations", func(t *testing.T) { d.short(t, ids) })
	if used, _ := d.Budget().Used(); used != 0 {
		t.Errorf("%d bytes are taken when all is closed", used)
	}
}

// short checks conversations of fewer tokens than a chunk: what their next turns begin
// with is found, in memory and on disk, where the device's rows of prompts keep their
// bits, and nowhere else; answers are those of a miss.
func (d *device) short(t *testing.T, ids func(n int) []int32) {
	alike := d.alike()
	talk := ids(100)
	var list []schedule.Request
	for i, n := range []int{1, 64, 65, 90, 100} { // what a request has of it
		for j, mode := range []decoder.Mode{decoder.AR, decoder.Verified} {
			prompt := slices.Concat(talk[:n], ids(7*i))
			list = append(list, request(append(prompt, int32(maskID-1-i)), mode, 4, 6, uint64(j)))
		}
	}
	miss := schedule.New(d, schedule.Options{Sequences: 1, Prefixes: -1, Chunk: chunk})
	defer miss.Close()
	var want []answer
	for _, q := range list {
		want = append(want, d.ask(t, miss, q)())
	}
	dir := filepath.Join(t.TempDir(), "sessions")
	for _, restored := range []bool{false, true} {
		store := d.store(t, dir, false)
		s := schedule.New(d, schedule.Options{Sessions: store, Chunk: chunk})
		if !restored {
			first := request(talk, decoder.AR, 1, 1, 0)
			first.Session = "talk"
			d.ask(t, s, first)()
			info, err := s.SaveSession(t.Context(), "", "talk")
			if saved := err == nil && info.Tokens == backend.PageTokens; saved != alike {
				t.Errorf("a session of %d tokens is saved as %+v, %v; rows of prompts are alike %t", len(talk), info, err, alike)
			}
		}
		for i, q := range list {
			if got := d.ask(t, s, q)(); fmt.Sprint(got) != fmt.Sprint(want[i]) {
				t.Errorf("restored %t, request %d: %v, a miss %v", restored, i, got, want[i])
			}
		}
		st := s.State()
		if found := st.CachedTokens > 4*backend.PageTokens; found != alike {
			t.Errorf("restored %t: %d tokens were there; rows of prompts are alike %t", restored, st.CachedTokens, alike)
		}
		if restored && (st.SessionLoads > 0) != alike {
			t.Errorf("%d sessions came from disk; rows of prompts are alike %t", st.SessionLoads, alike)
		}
		s.Close()
		store.Close()
	}
}
