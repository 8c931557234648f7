package schedule_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"

	"windrow/decoder"
	"windrow/schedule"
)

// told reads what a stream says of its prompt and of its tokens.
func told(t *testing.T, s *schedule.Stream) (list []string) {
	for {
		events, err := s.Next(t.Context())
		for _, e := range events {
			switch e := e.(type) {
			case decoder.PromptLogprobs, decoder.Token, decoder.Logprobs:
				list = append(list, fmt.Sprintf("%T%v", e, e))
			}
		}
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Error(err)
			return list
		}
	}
}

// TestPromptLogprobs: what is told of a prompt is the same alone and among others, when
// its beginning is cached, and after preemptions; it changes no text; and nobody is given
// the keys of a prompt that was cut for it, where their bits are not those of others.
func TestPromptLogprobs(t *testing.T) {
	e := open(t)
	two := 2
	var list, plain []schedule.Request
	for i, r := range requests(t, e, 10, 17) {
		for len(r.Prompt) < 150 {
			r.Prompt = slices.Concat(r.Prompt, r.Prompt)
		}
		r.Prompt = r.Prompt[:150]
		r.Options.Logprobs, r.Options.MaxTokens = &two, 10
		if i >= 6 { // two pages each at first, then three
			r.Prompt, r.Options.MaxTokens, r.Options.StopIDs, r.Options.Mode = r.Prompt[:60], 74, nil, decoder.AR
		}
		plain = append(plain, r)
		if i%2 == 0 {
			r.Options.PromptLogprobs = &two
		}
		list = append(list, r)
	}
	all := manners(e)
	if testing.Short() && len(all) > 2 {
		t.Log("left out: a GPU that finds whole chunks alone: leave -short out")
		all = slices.Delete(all, 1, 2)
	}
	for _, m := range all {
		x, _ := in(t, e, m, 128)
		gpu := m != asItIs
		begin := func(o schedule.Options) *schedule.Scheduler {
			o.Chunk = 128
			s := schedule.New(x, o)
			t.Cleanup(s.Close)
			return s
		}
		var want, without [][]string
		s := begin(schedule.Options{Sequences: 1, Prefixes: -1})
		for i := range list {
			want = append(want, told(t, submit(t, e, s, list[i])))
			without = append(without, told(t, submit(t, e, s, plain[i])))
		}
		s.Close()
		for i := range list {
			n := 0
			if list[i].Options.PromptLogprobs != nil {
				n = len(list[i].Prompt) - 1
			}
			if len(want[i]) < n || fmt.Sprint(want[i][n:]) != fmt.Sprint(without[i]) {
				t.Fatalf("%s, request %d: %v, without its prompt's %v", m, i, want[i], without[i])
			}
		}
		together := func(what string, s *schedule.Scheduler, first int) {
			t.Helper()
			var wait sync.WaitGroup
			for i := first; i < len(list); i++ {
				stream := submit(t, e, s, list[i])
				wait.Go(func() {
					if got := told(t, stream); fmt.Sprint(got) != fmt.Sprint(want[i]) {
						t.Errorf("%s, %s, request %d: %v, alone %v", m, what, i, got, want[i])
					}
				})
			}
			wait.Wait()
		}
		s = begin(schedule.Options{})
		for range 2 { // the second time beginnings are cached
			together("among others", s, 0)
		}
		if s.State().PrefixHits == 0 {
			t.Errorf("%s: nothing was cached", m)
		}
		s.Close()
		s = begin(schedule.Options{KVMemory: 8 * e.KVPageBytes(), Prefixes: -1, Slack: -1})
		together("preempted", s, 6)
		if s.State().Preemptions == 0 {
			t.Errorf("%s: nothing was preempted", m)
		}
		s.Close()
		e.Budget().Limit(0)

		s = begin(schedule.Options{})
		told(t, submit(t, e, s, list[0]))
		before := s.State()
		told(t, submit(t, e, s, plain[0]))
		if hits := s.State().PrefixHits - before.PrefixHits; gpu && hits > 0 || !gpu && hits == 0 {
			t.Errorf("%s: %d tokens were taken over from a prompt that was told of", m, hits)
		}
		s.Close()
	}
}
