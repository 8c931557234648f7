package schedule_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"windrow/conformance/decodertest"
	"windrow/decoder"
	"windrow/schedule"
)

// TestSmallerModelAmongOthers: a smaller model drafts for many requests at a time; what
// each says is ar's, alone and among others, with its beginning cached, and where memory
// is so short that requests lose theirs. What the smaller model took is given back.
func TestSmallerModelAmongOthers(t *testing.T) {
	e, small := open(t), open(t)
	if err := e.DraftWith(t.Context(), small); err != nil {
		t.Fatal(err)
	}
	n := 24
	if testing.Short() {
		n = 8
	}
	r := rand.New(rand.NewPCG(12, 1))
	problems := decodertest.Problems(t)
	var list, plain []schedule.Request
	for i := range n {
		prompt := problems[r.IntN(6)].Prompt
		if i%3 == 0 {
			prompt = slices.Concat(prompt, problems[r.IntN(6)].Prompt, problems[i%len(problems)].Prompt)
		}
		o := decoder.Options{Mode: decoder.Verified, Draft: decoder.DraftModel, MaxTokens: 5 + r.IntN(60)}
		if r.IntN(2) == 0 {
			o.Sampling = decoder.Sampling{Temperature: 0.8, TopP: 0.95, Seed: r.Uint64()}
		}
		for _, to := range []*[]schedule.Request{&list, &plain} {
			o, err := e.Complete(o, len(prompt))
			if err != nil {
				t.Fatal(err)
			}
			*to = append(*to, schedule.Request{Prompt: prompt, Options: o})
		}
	}
	for i := range plain {
		o := &plain[i].Options
		o.Mode, o.Draft, o.NewDrafter = decoder.AR, "", nil
	}
	want := alone(t, e, plain)
	s := start(t, e, schedule.Options{StepTime: 2 * time.Millisecond, Sequences: 8})
	same := func(what string) {
		t.Helper()
		var streams []*schedule.Stream
		for _, r := range list {
			streams = append(streams, submit(t, e, s, r))
		}
		accepted, drafts := 0, 0
		for i, stream := range streams {
			got, err := follow(t, stream)
			if err != nil {
				t.Errorf("%s, request %d: %v", what, i, err)
			}
			d := got.sum.Stats.Drafters[decoder.ModelDrafter]
			accepted, drafts = accepted+d.Accepted, drafts+d.Drafts
			got.sum.Stats, want[i].sum.Stats = decoder.Stats{}, decoder.Stats{}
			compare(t, what, got, want[i])
		}
		if accepted < 10*n || accepted*2 < drafts {
			t.Errorf("%s: %d of %d drafts stood", what, accepted, drafts)
		}
	}
	same("together")
	same("with beginnings cached")
	s.Close()
	if used, _ := small.Budget().Used(); used != 0 {
		t.Errorf("%d bytes of the smaller model's keys and values are taken when all is done", used)
	}
	// Room for three of the model's, and for one of the smaller one's: who lacks it goes on
	// without drafts.
	c, err := e.NewCache(t.Context(), 200, 40)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.ReserveCache(t.Context(), c, 200); err != nil {
		t.Fatal(err)
	}
	each := c.Bytes()
	e.FreeCache(c)
	small.Budget().Limit(each)
	s = start(t, e, schedule.Options{StepTime: 2 * time.Millisecond, Sequences: 8, KVMemory: 3 * each})
	var streams []*schedule.Stream
	for _, r := range list {
		streams = append(streams, submit(t, e, s, r))
	}
	for i, stream := range streams {
		got, err := follow(t, stream)
		if err != nil {
			t.Errorf("short of memory, request %d: %v", i, err)
		}
		got.sum.Stats, want[i].sum.Stats = decoder.Stats{}, decoder.Stats{}
		compare(t, "short of memory", got, want[i])
	}
	s.Close()
	e.Budget().Limit(0)
	if used, _ := small.Budget().Used(); used != 0 {
		t.Errorf("%d bytes of the smaller model's keys and values are taken when all is done", used)
	}
}
