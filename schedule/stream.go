package schedule

import (
	"context"
	"io"
	"sync"

	"windrow/decoder"
)

// Stream is what a request generates: the scheduler appends, a reader follows. It is
// safe for concurrent use by one reader.
type Stream struct {
	mutex   sync.Mutex
	more    chan struct{} // holds one when there is something new
	events  []decoder.Event
	unread  int // bytes, about
	dropped int // steps since the last that is in events
	done    bool
	err     error
	sum     decoder.Summary
	timings Timings
	cancel  context.CancelCauseFunc
	wake    func() // tells the scheduler that something was read
}

// mostUnread is how many bytes a reader may be behind before its sequence pauses; it
// goes on when half of them are read.
const mostUnread = 4 << 20

func newStream(cancel context.CancelCauseFunc, wake func()) *Stream {
	return &Stream{more: make(chan struct{}, 1), cancel: cancel, wake: wake}
}

// Next returns what happened since the last call, waiting for at least one event.
// After the last, which is a decoder.Finished, it returns io.EOF; where the generation
// failed, why. A request whose context ended ends with decoder.FinishCancelled.
func (s *Stream) Next(ctx context.Context) ([]decoder.Event, error) {
	for {
		s.mutex.Lock()
		events, behind := s.events, s.unread
		s.events, s.unread = nil, 0
		done, err := s.done, s.err
		s.mutex.Unlock()
		switch {
		case len(events) > 0:
			if behind > mostUnread/2 {
				s.wake()
			}
			return events, nil
		case done && err != nil:
			return nil, err
		case done:
			return nil, io.EOF
		}
		select {
		case <-s.more:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Cancel ends the request, as the end of its context does.
func (s *Stream) Cancel() { s.cancel(context.Canceled) }

// Summary is what came of a generation that has ended.
func (s *Stream) Summary() decoder.Summary {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.sum
}

// Timings are those of a generation that has ended.
func (s *Stream) Timings() Timings {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.timings
}

// append adds events, and wakes the reader.
func (s *Stream) append(events []decoder.Event) {
	if len(events) == 0 {
		return
	}
	s.mutex.Lock()
	for _, e := range events {
		if step, ok := e.(Step); ok {
			if s.unread > mostSteps {
				s.dropped++
				continue
			}
			step.Dropped, s.dropped = s.dropped, 0
			e = step
		}
		s.events = append(s.events, e)
		s.unread += eventBytes(e)
	}
	s.mutex.Unlock()
	s.notify()
}

// end is the last that is heard of a request.
func (s *Stream) end(sum decoder.Summary, timings Timings, err error) {
	s.mutex.Lock()
	s.sum, s.timings, s.err, s.done = sum, timings, err, true
	s.mutex.Unlock()
	s.notify()
	s.cancel(nil) // its context holds nothing any more
}

func (s *Stream) notify() {
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// behind is how many bytes are unread, about.
func (s *Stream) behind() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.unread
}

// eventBytes is about what an event takes.
func eventBytes(e decoder.Event) int {
	switch e := e.(type) {
	case decoder.Text:
		return 24 + len(e)
	case decoder.Logprobs:
		return 48 + 8*len(e.Top)
	case decoder.PromptLogprobs:
		return 56 + 8*len(e.Top)
	case Step:
		return 48 + eventBytes(e.Step)
	case decoder.Step:
		return 128 + 16*len(e.Slots) + 4*len(e.Committed) + 4*len(e.Entropy) + 16*len(e.Filled)
	}
	return 24
}
