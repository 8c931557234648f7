package schedule

import (
	"testing"

	"windrow/decoder"
)

// TestStepsNeverPause: steps that nobody reads are left out and counted, long before
// they would pause their sequence; text is kept.
func TestStepsNeverPause(t *testing.T) {
	s := newStream(func(error) {}, func() {})
	const steps = 10000
	for range steps {
		s.append([]decoder.Event{decoder.Token(1), decoder.Text("x"), Step{Step: decoder.Step{Slots: make([]decoder.Slot, 32)}}})
	}
	if s.behind() > mostUnread/2 {
		t.Errorf("%d bytes are unread", s.behind())
	}
	s.mutex.Lock()
	left := s.dropped
	s.mutex.Unlock()
	read := func() (seen, dropped, text int) {
		events, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			switch e := e.(type) {
			case Step:
				seen, dropped = seen+1, dropped+e.Dropped
			case decoder.Text:
				text++
			}
		}
		return seen, dropped, text
	}
	if seen, dropped, text := read(); seen < 100 || seen+left != steps || dropped != 0 || text != steps {
		t.Errorf("%d steps and %d left out of %d; %d dropped, %d texts", seen, left, steps, dropped, text)
	}
	s.append([]decoder.Event{Step{}})
	if seen, dropped, _ := read(); seen != 1 || dropped != left {
		t.Errorf("%d steps, %d dropped: want 1 and %d", seen, dropped, left)
	}
}
