package schedule

import (
	"time"

	"windrow/decoder"
)

// Step is a decoder.Step, and what is known of the forward that it was part of. Streams
// of requests that ask for it (Request.Steps) have it in place of a decoder.Step.
type Step struct {
	decoder.Step
	Pass
	// Dropped is how many steps before this one were left out, since their reader was
	// far behind.
	Dropped int
}

// Pass is a forward of all sequences together.
type Pass struct {
	// Took is the forward's time.
	Took time.Duration
	// PassRows and Sequences are all of it, rows of prompts included.
	PassRows, Sequences int
}

// mostSteps is how many unread bytes make a stream leave out steps: they must never be
// why a sequence pauses.
const mostSteps = mostUnread / 4

// timed puts a Step in the place of each decoder.Step.
func (p Pass) timed(events []decoder.Event) []decoder.Event {
	for i, e := range events {
		if e, ok := e.(decoder.Step); ok {
			events[i] = Step{Step: e, Pass: p}
		}
	}
	return events
}
