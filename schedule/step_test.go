package schedule_test

import (
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"windrow/decoder"
	"windrow/schedule"
)

// TestSteps: a request that asks for steps has them with what is known of their
// forwards, and its tokens do not depend on it.
func TestSteps(t *testing.T) {
	t.Parallel()
	e := open(t)
	list := requests(t, e, 6, 11)
	want := alone(t, e, list)
	s := start(t, e, schedule.Options{})
	var streams []*schedule.Stream
	for _, r := range list {
		r.Steps = true
		streams = append(streams, submit(t, e, s, r))
	}
	for i, stream := range streams {
		var ids, committed []int32
		steps, drafts, accepted := 0, 0, 0
		for {
			events, err := stream.Next(t.Context())
			for _, e := range events {
				switch e := e.(type) {
				case decoder.Token:
					ids = append(ids, int32(e))
				case decoder.Step:
					t.Errorf("request %d: a step without its forward", i)
				case schedule.Step:
					steps++
					drafts, accepted = drafts+e.Drafts, accepted+e.Accepted
					committed = append(committed, e.Committed...)
					if e.Took <= 0 || e.PassRows < len(e.Slots) || e.Sequences < 1 || e.Sequences > len(list) || e.Dropped != 0 {
						t.Errorf("request %d: %+v", i, e.Pass)
					}
				}
			}
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		st := stream.Summary().Stats
		if !slices.Equal(ids, want[i].ids) || steps != st.Forwards || drafts != st.Drafts || accepted != st.Accepted {
			t.Errorf("request %d: %d steps of %d, ids %v, want %v", i, steps, st.Forwards, ids, want[i].ids)
		}
		// ar emits a token before its keys are permanent.
		if n := len(committed); !slices.Equal(committed, ids[:min(n, len(ids))]) || n < len(ids)-1 {
			t.Errorf("request %d: committed %v of %v", i, committed, ids)
		}
	}
}

// TestRequests: who runs and who waits can be seen, with the rows of the last pass.
func TestRequests(t *testing.T) {
	t.Parallel()
	e := open(t)
	s := start(t, e, schedule.Options{Sequences: 2})
	o, err := e.Complete(decoder.Options{Mode: decoder.Verified, MaxTokens: 3000}, 3)
	if err != nil {
		t.Fatal(err)
	}
	o.StopIDs = nil
	var streams []*schedule.Stream
	for _, name := range []string{"a", "b", "c"} {
		streams = append(streams, submit(t, e, s, schedule.Request{Prompt: []int32{1, 2, 3}, Options: o, Name: name}))
	}
	for {
		list := s.Requests()
		if len(list) != 3 || list[0].Tokens == 0 || list[1].Tokens == 0 {
			if time.Sleep(time.Millisecond); t.Context().Err() != nil {
				t.Fatal(list)
			}
			continue
		}
		for i, name := range []string{"a", "b"} {
			if r := list[i]; r.Name != name || r.Phase != schedule.Decode || r.Rows < 1 || r.Prompt != 3 || r.Mode != decoder.Verified {
				t.Errorf("%+v", r)
			}
		}
		if r := list[2]; r.Name != "c" || r.Phase != schedule.Waiting || r.Rows != 0 {
			t.Errorf("%+v", r)
		}
		break
	}
	for _, stream := range streams {
		stream.Cancel()
		follow(t, stream)
	}
	for len(s.Requests()) > 0 {
		time.Sleep(time.Millisecond)
	}
}
