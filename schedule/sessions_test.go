package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"windrow/backend"
	"windrow/conformance/decodertest"
	"windrow/engine"
	"windrow/model"
	"windrow/schedule"
	"windrow/session"
)

// store opens sessions of an engine's pages.
func store(t *testing.T, e schedule.Engine, dir string, note func(string)) *session.Store {
	t.Helper()
	c, err := e.NewCache(t.Context(), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer e.FreeCache(c)
	s, err := session.Open(filepath.Join(dir, "sessions"), session.Options{
		Fingerprint: "test", PageTokens: backend.PageTokens, PageBytes: int(e.KVPageBytes()), States: c.Recurrent(), Note: note,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// timed is an engine with a clock on which a row takes 50 µs, and nothing else any time: what
// is on disk is taken from there, however long this machine's takes just now.
type timed struct {
	schedule.Engine
	passed atomic.Int64
}

func (e *timed) Forward(ctx context.Context, b *model.Batch) ([]model.Result, error) {
	results, err := e.Engine.Forward(ctx, b)
	e.passed.Add(int64(len(b.Tokens)) * int64(50*time.Microsecond))
	return results, err
}

// startTimed starts a scheduler of a timed engine.
func startTimed(t *testing.T, e schedule.Engine, o schedule.Options) *schedule.Scheduler {
	t.Helper()
	if o.Chunk == 0 {
		o.Chunk = decodertest.Chunk()
	}
	x, began := &timed{Engine: e}, time.Now()
	o.Now = func() time.Time { return began.Add(time.Duration(x.passed.Load())) }
	s := schedule.New(x, o)
	t.Cleanup(s.Close)
	return s
}

// manner is how an engine's forwards are: as they are; as of a GPU that promises nothing
// of spans of more than 32 rows; or as of one on which rows of prompts are alike.
type manner string

const (
	asItIs manner = "as it is"
	coarse manner = "as on a GPU"
	alike  manner = "as on a GPU whose prompts are alike"
)

// manners are those in which an engine can be driven.
func manners(e *engine.Engine) []manner {
	switch {
	case decodertest.Device() == engine.CPU:
		return []manner{asItIs, coarse, alike}
	case e.Features().PromptRows > 0:
		return []manner{coarse, alike}
	}
	return []manner{coarse}
}

// gpuLike is an engine in the manner of a GPU: it checks that prompts are cut, and share
// forwards, as that allows.
type gpuLike struct {
	*engine.Engine
	t      *testing.T
	chunk  int
	manner manner
	chunks atomic.Int64 // whole ones
	shared atomic.Int64 // forwards of several prompts
}

// in is an engine in a manner; the second result is nil as it is.
func in(t *testing.T, e *engine.Engine, m manner, chunk int) (schedule.Engine, *gpuLike) {
	if m == asItIs {
		return e, nil
	}
	like := &gpuLike{Engine: e, t: t, chunk: chunk, manner: m}
	return like, like
}

func (e *gpuLike) Features() backend.Features {
	f := e.Engine.Features()
	f.BatchInvariantRows, f.PromptRows = 32, 0
	if e.manner == alike {
		f.PromptRows = e.chunk
	}
	return f
}

func (e *gpuLike) Forward(ctx context.Context, b *model.Batch) ([]model.Result, error) {
	prompts := 0
	for _, span := range b.Spans {
		if span.Prompt {
			prompts++
		}
		whole := len(b.Spans) == 1 && span.Cache.Base()%e.chunk == 0
		switch {
		case e.manner == alike && span.Prompt && len(b.Tokens) <= e.chunk, span.Rows <= 32 && (e.manner == coarse || !span.Prompt):
		case e.manner == coarse && whole && span.Rows <= e.chunk:
		default:
			e.t.Errorf("%s: %d rows at %d of a prompt %t, among %d spans of %d rows: chunks are %d", e.manner, span.Rows, span.Cache.Base(), span.Prompt, len(b.Spans), len(b.Tokens), e.chunk)
		}
		if span.Rows == e.chunk {
			e.chunks.Add(1)
		}
	}
	if prompts > 0 && prompts < len(b.Spans) && e.manner == alike {
		e.t.Errorf("%d of %d spans are of prompts: want all or none", prompts, len(b.Spans))
	}
	if prompts > 1 {
		e.shared.Add(1)
	}
	return e.Engine.Forward(ctx, b)
}

// TestHitIsMiss: prompts that begin alike for any number of tokens get the bytes that
// they get alone: from memory, after an eviction, and from disk; where bits depend on
// how prompts are cut, too.
func TestHitIsMiss(t *testing.T) {
	const chunk = 128
	prompts, lengths := 2, []int{1, 2, 17, 62, 63, 64, 65, 66, 100, 126, 127, 128, 129, 130, 190, 191, 192, 193, 194, 200, 254, 255, 256, 257, 258}
	if os.Getenv("CI") != "" && !testing.Short() {
		prompts, lengths = 20, lengths[20:]
		for n := range 200 {
			lengths = append(lengths, n+1)
		}
	} else if testing.Short() {
		lengths = []int{1, 17, 62, 64, 65, 127, 128, 129, 191, 193, 256, 258}
	}
	e := open(t)
	r := rand.New(rand.NewPCG(3, 3))
	bases := requests(t, e, prompts, 5)
	for i := range bases {
		for len(bases[i].Prompt) < 300 {
			bases[i].Prompt = slices.Concat(bases[i].Prompt, bases[i].Prompt)
		}
		bases[i].Prompt = bases[i].Prompt[:300]
	}
	var list []schedule.Request // each length of two prompts
	for i, n := range lengths {
		for k := range 2 {
			x := bases[(2*i+k)%len(bases)]
			x.Prompt = slices.Clone(x.Prompt[:n])
			for range 1 + r.IntN(10) {
				x.Prompt = append(x.Prompt, int32(r.IntN(4000)))
			}
			x.Options.MaxTokens = 6
			list = append(list, x)
		}
	}
	want := aloneIn(t, e, chunk, list)
	for _, m := range manners(e) {
		x, like := in(t, e, m, chunk)
		dir := t.TempDir()
		run := func(what string, o schedule.Options, least float64) schedule.State {
			t.Helper()
			o.Chunk = chunk
			s := startTimed(t, x, o)
			defer s.Close()
			all := list
			if o.Prefixes == 0 && o.Sessions == nil { // memory: what the others begin with
				all = nil
				for _, base := range bases {
					base.Options.MaxTokens = 1
					if _, err := follow(t, submit(t, e, s, base)); err != nil {
						t.Fatal(err)
					}
				}
				all = list
			}
			for i, q := range all {
				got, err := follow(t, submit(t, e, s, q))
				if err != nil {
					t.Fatal(err)
				}
				compare(t, fmt.Sprintf("%s, %s, request %d", what, m, i), got, want[i])
			}
			st := s.State()
			if float64(st.CachedTokens) < least*float64(st.PromptTokens) {
				t.Errorf("%s, %s: %d of %d tokens were there: nothing is shown", what, m, st.CachedTokens, st.PromptTokens)
			}
			return st
		}
		hits := 0.7
		if m == coarse {
			hits = 0.3
		}
		run("from memory", schedule.Options{}, hits)
		run("after an eviction", schedule.Options{Prefixes: 1}, 0)
		// What all begin with is put on disk, and nothing stays in memory for long.
		kept := store(t, x, dir, func(line string) { t.Error(line) })
		s := schedule.New(x, schedule.Options{Chunk: chunk, Sessions: kept})
		for i, base := range bases {
			base.Options.MaxTokens, base.Session = 1, fmt.Sprint("base-", i)
			if _, err := follow(t, submit(t, e, s, base)); err != nil {
				t.Fatal(err)
			}
			if info, err := s.SaveSession(t.Context(), "", base.Session); err != nil || info.Tokens != 256 {
				t.Fatal(info, err)
			}
		}
		s.Close()
		st := run("from disk", schedule.Options{Prefixes: 1, Sessions: kept}, 0.2)
		if int(st.SessionLoads) < len(list)/4 || st.SessionFailures > 0 {
			t.Errorf("%s: %d of %d requests came from disk, %d failed", m, st.SessionLoads, len(list), st.SessionFailures)
		}
		if m == coarse && like.chunks.Load() == 0 {
			t.Error("no whole chunk was run: nothing is shown")
		}
		kept.Close()
	}
}

// turns are the requests of a conversation, each of which goes on from the answer to the
// one before.
func turns(t *testing.T, e *engine.Engine, n int, seed uint64) (list []schedule.Request, want []answer) {
	t.Helper()
	list = requests(t, e, n, seed)
	s := start(t, e, schedule.Options{Prefixes: -1})
	defer s.Close()
	for i := range list {
		list[i].Options.MaxTokens = 20
		if i > 0 {
			list[i].Prompt = slices.Concat(list[i-1].Prompt, want[i-1].ids, list[i].Prompt)
		}
		a, err := follow(t, submit(t, e, s, list[i]))
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, a)
	}
	return list, want
}

// TestRestart: a conversation goes on after a restart from disk, with the bytes that it
// has alone; only what is new is computed.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	e := open(t)
	list, want := turns(t, e, 6, 21)
	for i := range list {
		kept := store(t, e, dir, func(line string) { t.Error(line) })
		s := start(t, e, schedule.Options{Sessions: kept})
		q := list[i]
		q.Session, q.Owner = "talk", "ann"
		got, err := follow(t, submit(t, e, s, q))
		if err != nil {
			t.Fatal(err)
		}
		compare(t, fmt.Sprintf("turn %d", i), got, want[i])
		before := 0
		if i > 0 {
			before = len(list[i-1].Prompt) / 64 * 64
		}
		if st := s.State(); i > 0 && (st.SessionLoads != 1 || int(st.PrefillRows) > len(q.Prompt)-before) {
			t.Errorf("turn %d: %d loads, %d rows of %d, of which %d were saved", i, st.SessionLoads, st.PrefillRows, len(q.Prompt), before)
		}
		info, err := s.SaveSession(t.Context(), "ann", "talk")
		if err != nil || info.Tokens < len(q.Prompt)/64*64 || info.Name != "talk" {
			t.Errorf("turn %d: %+v, %v", i, info, err)
		}
		if list, err := s.Sessions("ann"); err != nil || len(list) != 1 || list[0].Tokens != info.Tokens {
			t.Errorf("turn %d: %+v, %v", i, list, err)
		}
		if _, err := s.SaveSession(t.Context(), "bob", "talk"); !errors.Is(err, session.ErrUnknown) {
			t.Errorf("another owner's: %v", err)
		}
		s.Close()
		kept.Close()
	}
	if used, _ := e.Budget().Used(); used != 0 {
		t.Errorf("%d bytes are taken when all is closed", used)
	}
}

// TestDamagedSession: a session that is not what was saved is as good as none, with one
// line.
func TestDamagedSession(t *testing.T) {
	dir := t.TempDir()
	e := open(t)
	list, want := turns(t, e, 3, 22)
	kept := store(t, e, dir, nil)
	s := start(t, e, schedule.Options{Sessions: kept})
	list[1].Session = "x"
	if _, err := follow(t, submit(t, e, s, list[1])); err != nil {
		t.Fatal(err)
	}
	if _, err := s.SaveSession(t.Context(), "", "x"); err != nil {
		t.Fatal(err)
	}
	s.Close()
	kept.Close()
	paths, err := filepath.Glob(filepath.Join(dir, "sessions", "segments", "*"))
	if err != nil || len(paths) != 1 {
		t.Fatal(paths, err)
	}
	data, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 4
	if err := os.WriteFile(paths[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	var notes []string
	kept = store(t, e, dir, func(line string) { notes = append(notes, line) })
	s = start(t, e, schedule.Options{Sessions: kept})
	got, err := follow(t, submit(t, e, s, list[2]))
	if err != nil {
		t.Fatal(err)
	}
	compare(t, "after the damage", got, want[2])
	st := s.State()
	s.Close()
	if st.SessionLoads != 0 || st.SessionFailures != 1 || len(notes) != 1 || !strings.Contains(notes[0], "not what was written") {
		t.Errorf("%d loads, %d failures, %q", st.SessionLoads, st.SessionFailures, notes)
	}
	if used, _ := e.Budget().Used(); used != 0 {
		t.Errorf("%d bytes are taken when all is closed", used)
	}
}

// TestEvictedToDisk: where memory is short, conversations go to disk and come back; each
// gets what it gets alone.
func TestEvictedToDisk(t *testing.T) {
	e := open(t)
	kept := store(t, e, t.TempDir(), func(line string) { t.Error(line) })
	s := startTimed(t, e, schedule.Options{Sessions: kept, KVMemory: 16 * e.KVPageBytes(), Sequences: 2, Slack: -1})
	defer e.Budget().Limit(0)
	const many = 5
	var lists [many][]schedule.Request
	var wants [many][]answer
	e.Budget().Limit(0)
	for i := range many {
		lists[i], wants[i] = turns(t, e, 5, uint64(30+i))
	}
	e.Budget().Limit(16 * e.KVPageBytes())
	for turn := range 5 {
		for i := range many {
			got, err := follow(t, submit(t, e, s, lists[i][turn]))
			if err != nil {
				t.Fatal(err)
			}
			compare(t, fmt.Sprintf("conversation %d, turn %d", i, turn), got, wants[i][turn])
		}
	}
	st := s.State()
	if st.SessionLoads < many || st.SessionSaves < many || st.SessionFailures > 0 {
		t.Errorf("%d saves, %d loads, %d failures: want some of each but the last", st.SessionSaves, st.SessionLoads, st.SessionFailures)
	}
	if err := s.SaveSessions(t.Context()); err != nil {
		t.Error(err)
	}
	s.Close()
	if used, _ := e.Budget().Used(); used != 0 {
		t.Errorf("%d bytes are taken when all is closed", used)
	}
}

// TestDeleteSession: what is deleted is neither on disk nor in memory.
func TestDeleteSession(t *testing.T) {
	e := open(t)
	kept := store(t, e, t.TempDir(), nil)
	s := start(t, e, schedule.Options{Sessions: kept})
	list, _ := turns(t, e, 3, 23)
	list[1].Session = "x"
	if _, err := follow(t, submit(t, e, s, list[1])); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteSession(t.Context(), "", "x"); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteSession(t.Context(), "", "x"); !errors.Is(err, session.ErrUnknown) {
		t.Error(err)
	}
	if err := s.SaveSessions(t.Context()); err != nil {
		t.Error(err)
	}
	if got, _ := follow(t, submit(t, e, s, list[2])); got.sum.Stats.CachedTokens != 0 || kept.Bytes() != 0 {
		t.Errorf("%d tokens are there still, %d bytes on disk", got.sum.Stats.CachedTokens, kept.Bytes())
	}
	s.Close()
	if _, err := s.SaveSession(t.Context(), "", "x"); !errors.Is(err, schedule.ErrClosed) {
		t.Error(err)
	}
	none := start(t, e, schedule.Options{})
	if _, err := none.SaveSession(t.Context(), "", "x"); !errors.Is(err, schedule.ErrNoSessions) {
		t.Error(err)
	}
}

// TestSeal: what is run ahead of time is there for the prompt that begins with it, which
// gets what it gets alone; a request does not wait for it, and it goes on after that.
func TestSeal(t *testing.T) {
	e := open(t)
	list, want := turns(t, e, 5, 24)
	last := list[4]
	for _, m := range manners(e) {
		x, _ := in(t, e, m, 64)
		s := schedule.New(x, schedule.Options{Chunk: 64})
		defer s.Close()
		n := len(list[3].Prompt)
		s.Seal(schedule.Request{Prompt: last.Prompt[:n]})
		got, err := follow(t, submit(t, e, s, list[1])) // in the midst of it
		if err != nil {
			t.Fatal(err)
		}
		compare(t, "beside it", got, want[1])
		sealed := func() int {
			if m == coarse {
				return n / 64 * 64
			}
			return n
		}()
		for end := time.Now().Add(2 * time.Minute); s.Seals() > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d tokens are sealed, want about %d", s.State().SealedTokens, sealed)
			}
		}
		if n := s.State().SealedTokens; n < int64(sealed-len(list[2].Prompt)) {
			t.Errorf("%s: %d tokens are sealed, want about %d", m, n, sealed)
		}
		got, err = follow(t, submit(t, e, s, last))
		if err != nil {
			t.Fatal(err)
		}
		if got.sum.Stats.CachedTokens < sealed {
			t.Errorf("%s: %d tokens were there, want %d", m, got.sum.Stats.CachedTokens, sealed)
		}
		compare(t, "after it", got, want[4])
		if st := s.State(); st.Requests != 2 || st.Running != 0 {
			t.Errorf("what nobody asked for is counted: %+v", st)
		}
		s.Close()
	}
}

// TestPromptsTogether: prompts that come together share forwards where their rows keep
// their bits so, and nowhere else; each gets what it gets alone.
func TestPromptsTogether(t *testing.T) {
	const chunk = 256
	e := open(t)
	list := requests(t, e, 12, 77)
	for i := range list {
		list[i].Prompt = list[i].Prompt[:min(len(list[i].Prompt), 20+11*i)]
		list[i].Options.MaxTokens = 5
	}
	want := aloneIn(t, e, chunk, list)
	for _, m := range manners(e) {
		x, like := in(t, e, m, chunk)
		s := schedule.New(x, schedule.Options{Chunk: chunk, Sequences: len(list), Prefixes: -1})
		var streams []*schedule.Stream
		for _, q := range list {
			streams = append(streams, submit(t, e, s, q))
		}
		for i, stream := range streams {
			got, err := follow(t, stream)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, fmt.Sprintf("%s, request %d", m, i), got, want[i])
		}
		s.Close()
		if like != nil && (like.shared.Load() > 0) != (m == alike) {
			t.Errorf("%s: %d forwards had several prompts", m, like.shared.Load())
		}
	}
}
