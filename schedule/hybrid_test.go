package schedule_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"windrow/conformance/decodertest"
	"windrow/decoder"
	"windrow/engine"
	"windrow/schedule"
)

// openHybrid opens tiny-gsm-next, whose recurrent layers keep states.
func openHybrid(t *testing.T) *engine.Engine {
	t.Helper()
	e, err := engine.Open(t.Context(), "../models/tinygsmnext", engine.Options{Backend: engine.CPU})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// hybridRequests are of the modes that hybrids have; many begin alike.
func hybridRequests(t *testing.T, e *engine.Engine, n int) (list []schedule.Request) {
	t.Helper()
	r := rand.New(rand.NewPCG(11, 1))
	problems := decodertest.HybridProblems(t, "../model/testdata/golden")
	for i := range n {
		p := problems[r.IntN(4)]
		prompt := p.Prompt
		switch i % 3 {
		case 1: // the next turn
			prompt = slices.Concat(prompt, p.AR, problems[r.IntN(8)].Prompt)
		case 2: // without what was said last
			prompt = slices.Concat(prompt, p.AR[:r.IntN(len(p.AR))], problems[r.IntN(8)].Prompt)
		}
		o := decoder.Options{Mode: []decoder.Mode{decoder.AR, decoder.Verified}[r.IntN(2)], MaxTokens: 5 + r.IntN(30)}
		if o.Mode == decoder.Verified {
			o.Draft = []decoder.DraftChoice{decoder.DraftAuto, decoder.DraftMTP, decoder.DraftMTP}[r.IntN(3)]
		}
		if r.IntN(3) == 0 {
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

// TestHybridAmongOthers: a request to a hybrid gives the same alone and among others,
// with its beginning cached or not, also where memory is so short that requests wait for
// it and nearly nothing is kept.
func TestHybridAmongOthers(t *testing.T) {
	e := openHybrid(t)
	n := 20
	if testing.Short() {
		n = 6
	}
	list := hybridRequests(t, e, n)
	want := alone(t, e, list)
	s := start(t, e, schedule.Options{StepTime: 2 * time.Millisecond, Sequences: 8})
	for range 2 {
		together(t, e, s, list, want)
	}
	if st := s.State(); st.PrefixHits == 0 {
		t.Errorf("nothing was cached: %+v", st)
	}
	s.Close()
	if used, _ := e.Budget().Used(); used != 0 {
		t.Errorf("%d bytes are taken when all is closed", used)
	}
	c, err := e.NewCache(t.Context(), 100, 40)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.ReserveCache(t.Context(), c, 100); err != nil {
		t.Fatal(err)
	}
	each := c.Bytes()
	e.FreeCache(c)
	s = start(t, e, schedule.Options{StepTime: 2 * time.Millisecond, Sequences: 8, KVMemory: 3 * each})
	together(t, e, s, list, want)
	st := s.State()
	t.Logf("short of memory: %d preemptions, %d rows computed again, %d of %d tokens cached", st.Preemptions, st.ReplayedRows, st.PrefixHits, st.PrefixQueries)
	s.Close()
	e.Budget().Limit(0)
}

// TestHybridTurns: an answer again, and the next turn, begin where states can be had: at
// the end of the prompt, and of the answer.
func TestHybridTurns(t *testing.T) {
	e := openHybrid(t)
	s := start(t, e, schedule.Options{Sequences: 1})
	p := decodertest.HybridProblems(t, "../model/testdata/golden")
	prompt := slices.Concat(p[0].Prompt, p[0].AR, p[1].Prompt, p[1].AR, p[2].Prompt)
	ask := func(prompt []int32) answer {
		t.Helper()
		o, err := e.Complete(decoder.Options{Mode: decoder.AR, MaxTokens: 60}, len(prompt))
		if err != nil {
			t.Fatal(err)
		}
		a, err := follow(t, submit(t, e, s, schedule.Request{Prompt: prompt, Options: o}))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := ask(prompt)
	again := ask(prompt)
	if !slices.Equal(again.ids, first.ids) || again.sum.Stats.CachedTokens != len(prompt)-1 {
		t.Errorf("again: %v with %d of %d tokens cached, first %v", again.ids, again.sum.Stats.CachedTokens, len(prompt), first.ids)
	}
	held := slices.Concat(prompt, first.ids[:len(first.ids)-1])
	if next := ask(slices.Concat(held, first.ids[len(first.ids)-1:], p[3].Prompt)); next.sum.Stats.CachedTokens < len(held) {
		t.Errorf("the next turn: %d tokens cached, want %d", next.sum.Stats.CachedTokens, len(held))
	}
	long := make([]int32, 2100)
	for i := range long {
		long[i] = int32(i * 37 % 4000)
	}
	ask(long)
	if got := ask(append(long[:2060:2060], p[0].Prompt...)).sum.Stats.CachedTokens; got != 2048 {
		t.Errorf("%d tokens of a long beginning cached, want the 2,048 whose states were kept on the way", got)
	}
	other := ask(slices.Concat(prompt, p[4].AR))
	if got := other.sum.Stats.CachedTokens; got < len(prompt)-1 {
		t.Errorf("another answer to the same: %d tokens cached, want %d", got, len(prompt))
	}
}
