package schedule_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"windrow/conformance/decodertest"
	"windrow/decoder"
	"windrow/schedule"
)

// TestSharedBeginnings: requests that come together and begin alike have their beginning
// computed once, and get what they get alone; so when the first is cancelled.
func TestSharedBeginnings(t *testing.T) {
	e := open(t)
	base := requests(t, e, 1, 5)[0]
	for len(base.Prompt) < 900 {
		base.Prompt = append(base.Prompt, base.Prompt...)
	}
	base.Prompt = base.Prompt[:900]
	var list []schedule.Request
	own := 0
	for i := range 12 {
		x := base
		x.Options.MaxTokens = 8
		x.Options.Mode = []decoder.Mode{decoder.AR, decoder.Verified, decoder.WeDLM}[i%3]
		x.Prompt = slices.Clone(base.Prompt)
		for k := range i * 5 {
			x.Prompt = append(x.Prompt, int32(100+i+k))
		}
		own += len(x.Prompt) - len(base.Prompt)
		list = append(list, x)
	}
	want := aloneIn(t, e, 128, list)
	s := start(t, e, schedule.Options{Chunk: 128})
	together(t, e, s, list, want)
	// Each computes the last row of its prompt once more, and may part within a page, or
	// on a GPU within a chunk.
	if st := s.State(); st.PrefillRows > int64(len(base.Prompt)+own+len(list)*max(64, 2*decodertest.Chunk())) {
		t.Errorf("%d rows of prompts, want %d and some", st.PrefillRows, len(base.Prompt)+own)
	}
	s.Close()

	want = aloneIn(t, e, 16, list)
	s = start(t, e, schedule.Options{Chunk: 16})
	first := submit(t, e, s, list[0])
	if _, err := first.Next(t.Context()); err != nil { // it runs
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i, r := range list[1:] {
		stream := submit(t, e, s, r)
		all.Go(func() {
			got, err := follow(t, stream)
			if err != nil {
				t.Error(err)
			}
			compare(t, fmt.Sprintf("request %d", i+1), got, want[i+1])
		})
	}
	first.Cancel()
	all.Wait()
	if st := s.State(); st.PrefillRows > int64(len(base.Prompt)+own+len(list)*64) {
		t.Errorf("the first cancelled: %d rows of prompts, want %d and some", st.PrefillRows, len(base.Prompt)+own)
	}
}
