package schedule_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"windrow/conformance/decodertest"
	"windrow/decoder"
	"windrow/engine"
	"windrow/schedule"
)

// hybridTalk are the turns of a conversation with a hybrid, in all modes that it has,
// and what each gets alone. At times a turn goes on from the prompt before, as where its
// answer's thinking was dropped.
func hybridTalk(t *testing.T, e *engine.Engine, n int, seed uint64) (list []schedule.Request, want []answer) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 8))
	problems := decodertest.HybridProblems(t, "../model/testdata/golden")
	s := start(t, e, schedule.Options{Prefixes: -1})
	defer s.Close()
	for i := range n {
		prompt := problems[r.IntN(len(problems))].Prompt
		for i == 0 && len(prompt) < 80 {
			prompt = slices.Concat(prompt, prompt)
		}
		if i > 0 {
			before := list[i-1].Prompt
			if i%3 != 2 {
				before = slices.Concat(before, want[i-1].ids)
			}
			prompt = slices.Concat(before, prompt)
		}
		o := decoder.Options{Mode: []decoder.Mode{decoder.AR, decoder.Verified}[r.IntN(2)], MaxTokens: 5 + r.IntN(30)}
		if r.IntN(3) == 0 {
			o.Sampling = decoder.Sampling{Temperature: 0.8, TopP: 0.95, Seed: r.Uint64()}
		}
		o, err := e.Complete(o, len(prompt))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, schedule.Request{Prompt: prompt, Options: o})
		a, err := follow(t, submit(t, e, s, list[i]))
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, a)
	}
	return list, want
}

// TestHybridRestart: a conversation with a hybrid goes on after each restart from disk,
// with the bytes that it has alone: from the end of an answer, and where that is not what
// follows, from the end of the prompt. Only what is new is computed.
func TestHybridRestart(t *testing.T) {
	e, dir := openHybrid(t), t.TempDir()
	list, want := hybridTalk(t, e, 6, 31)
	for i, q := range list {
		kept := store(t, e, dir, func(line string) { t.Error(line) })
		s := start(t, e, schedule.Options{Sessions: kept})
		q.Session, q.Owner = "talk", "ann"
		got, err := follow(t, submit(t, e, s, q))
		if err != nil {
			t.Fatal(err)
		}
		compare(t, fmt.Sprintf("turn %d", i), got, want[i])
		if i > 0 {
			before := len(list[i-1].Prompt) - 1
			if i%3 != 2 {
				before += len(want[i-1].ids)
			}
			if st := s.State(); st.SessionLoads != 1 || int(st.CachedTokens) < before {
				t.Errorf("turn %d: %d loads, %d of %d tokens were there, of which %d were saved", i, st.SessionLoads, st.CachedTokens, len(q.Prompt), before)
			}
		}
		info, err := s.SaveSession(t.Context(), "ann", "talk")
		if err != nil || info.Tokens < len(q.Prompt) {
			t.Errorf("turn %d: %+v, %v", i, info, err)
		}
		s.Close()
		kept.Close()
	}
	if used, _ := e.Budget().Used(); used != 0 {
		t.Errorf("%d bytes are taken when all is closed", used)
	}
}

// TestHybridHitIsMiss: prompts that part from a saved conversation with a hybrid anywhere
// get the bytes that they get alone, from disk, whatever of it can be used.
func TestHybridHitIsMiss(t *testing.T) {
	e, dir := openHybrid(t), t.TempDir()
	r := rand.New(rand.NewPCG(4, 4))
	talk, answers := hybridTalk(t, e, 3, 32)
	last := talk[2]
	whole := slices.Concat(last.Prompt, answers[2].ids)
	var list []schedule.Request
	near := 12
	if os.Getenv("CI") != "" && !testing.Short() {
		near = 80
	}
	add := func(n int) {
		x := last
		x.Options.MaxTokens = 6
		x.Prompt = slices.Clone(whole[:n])
		for range 1 + r.IntN(9) {
			x.Prompt = append(x.Prompt, int32(r.IntN(4000)))
		}
		list = append(list, x)
	}
	for range near {
		add(len(whole) - r.IntN(40))
		add(len(last.Prompt) - r.IntN(40))
		add(1 + r.IntN(len(whole)-1))
	}
	want := alone(t, e, list)
	kept := store(t, e, dir, func(line string) { t.Error(line) })
	s := start(t, e, schedule.Options{Sessions: kept})
	last.Session = "talk"
	if _, err := follow(t, submit(t, e, s, last)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.SaveSession(t.Context(), "", "talk"); err != nil {
		t.Fatal(err)
	}
	s.Close()
	loads, cached := 0, 0
	for i, q := range list { // each is alone with the disk
		s := start(t, e, schedule.Options{Sessions: kept})
		got, err := follow(t, submit(t, e, s, q))
		if err != nil {
			t.Fatal(err)
		}
		compare(t, fmt.Sprintf("from disk, request %d", i), got, want[i])
		st := s.State()
		loads += int(st.SessionLoads)
		cached += int(st.CachedTokens)
		if st.SessionFailures > 0 {
			t.Errorf("request %d: %d failures", i, st.SessionFailures)
		}
		s.Close()
	}
	if loads < near || cached < near*(len(last.Prompt)-64) {
		t.Errorf("%d of %d requests came from disk, %d tokens: nothing is shown", loads, len(list), cached)
	}
}

// TestHybridPlaces: where bits depend on how prompts are cut, a conversation with a hybrid
// goes on from the last of its places that is a chunk's end, if later ones are none.
func TestHybridPlaces(t *testing.T) {
	const chunk, marked = 512, 2048
	e := openHybrid(t)
	x, _ := in(t, e, coarse, chunk)
	kept := store(t, x, t.TempDir(), func(line string) { t.Error(line) })
	prompt := make([]int32, marked+52)
	for i := range prompt {
		prompt[i] = int32(i * 37 % 4000)
	}
	request := func(prompt []int32) (q schedule.Request) {
		t.Helper()
		o, err := e.Complete(decoder.Options{Mode: decoder.AR, MaxTokens: 40}, len(prompt))
		if err != nil {
			t.Fatal(err)
		}
		return schedule.Request{Prompt: prompt, Options: o}
	}
	ask := func(q schedule.Request) answer {
		t.Helper()
		s := schedule.New(x, schedule.Options{Chunk: chunk, Sessions: kept})
		defer s.Close()
		a, err := follow(t, submit(t, e, s, q))
		if err == nil && q.Session != "" {
			_, err = s.SaveSession(t.Context(), "", q.Session)
		}
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := request(prompt)
	first.Session = "talk"
	next := request(slices.Concat(prompt, ask(first).ids, prompt[:chunk]))
	got := ask(next)
	compare(t, "the next turn", got, aloneIn(t, e, chunk, []schedule.Request{next})[0])
	if n := got.sum.Stats.CachedTokens; n != marked {
		t.Errorf("the next turn: %d tokens were there, want the %d whose states were kept at a chunk's end", n, marked)
	}
}

// TestHybridsToDisk: where memory is short, conversations with a hybrid go to disk and
// come back, marks that go in the meantime or not; each gets what it gets alone.
func TestHybridsToDisk(t *testing.T) {
	e := openHybrid(t)
	const many = 4
	var lists [many][]schedule.Request
	var wants [many][]answer
	for i := range many {
		lists[i], wants[i] = hybridTalk(t, e, 4, uint64(40+i))
	}
	c, err := e.NewCache(t.Context(), 600, 40)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.ReserveCache(t.Context(), c, 600); err != nil {
		t.Fatal(err)
	}
	each := c.Bytes()
	e.FreeCache(c)
	kept := store(t, e, t.TempDir(), func(line string) { t.Error(line) })
	s := startTimed(t, e, schedule.Options{Sessions: kept, KVMemory: 2 * each, Sequences: 2, Slack: -1, StepTime: time.Millisecond})
	defer e.Budget().Limit(0)
	for turn := range 4 {
		for i := range many {
			got, err := follow(t, submit(t, e, s, lists[i][turn]))
			if err != nil {
				t.Fatal(err)
			}
			compare(t, fmt.Sprintf("conversation %d, turn %d", i, turn), got, wants[i][turn])
		}
	}
	if err := s.SaveSessions(t.Context()); err != nil {
		t.Error(err)
	}
	st := s.State()
	t.Logf("%d saves, %d loads, %d of %d tokens were there", st.SessionSaves, st.SessionLoads, st.CachedTokens, st.PromptTokens)
	if st.SessionLoads < many || st.SessionSaves < many || st.SessionFailures > 0 {
		t.Errorf("%d saves, %d loads, %d failures: want some of each but the last", st.SessionSaves, st.SessionLoads, st.SessionFailures)
	}
	s.Close()
	if used, _ := e.Budget().Used(); used != 0 {
		t.Errorf("%d bytes are taken when all is closed", used)
	}
}
