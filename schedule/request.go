package schedule

import (
	"errors"
	"fmt"
	"time"

	"windrow/decoder"
)

// Request is a generation that is asked for.
type Request struct {
	// Prompt are the ids to continue; Options must be complete (engine.Complete).
	// Options.PrefillRows, PrefillAnywhere and InvariantRows are the scheduler's.
	Prompt  []int32
	Options decoder.Options
	// Detokenizer turns ids into text; nil: there is no text.
	Detokenizer decoder.Detokenizer
	// Name is what Requests calls it.
	Name string
	// Steps asks for events of type Step in place of decoder.Step.
	Steps bool
	// Owner is whose the request is, for fairness; "" is an owner too.
	Owner string
	// Priority: the higher goes first.
	Priority int
	// Salt parts what is kept of prompts: only requests of one salt share it.
	Salt string
	// Session is the name under which the conversation is saved when the request ends,
	// where there are sessions; "": none.
	Session string
}

// Timings are what a request waited for, and worked.
type Timings struct {
	// Queued is the time before it was admitted; Prefill until its prompt was done;
	// Decode from then on.
	Queued, Prefill, Decode time.Duration
	// Preempted is how often it lost its cache.
	Preempted int
}

// FullError is a request that the queue has no room for.
type FullError struct {
	// What is full: "the queue", or "the share of one owner".
	What string
	// RetryAfter is when there may be room, by the recent rate: 1 s to 60 s.
	RetryAfter time.Duration
}

func (e *FullError) Error() string {
	return fmt.Sprintf("%s is full; try again in %d s", e.What, int(e.RetryAfter.Seconds()))
}

// LateError is a request that waited too long.
type LateError struct{ Waited time.Duration }

func (e *LateError) Error() string {
	return fmt.Sprintf("the request waited %d s and was not begun", int(e.Waited.Seconds()))
}

var (
	// ErrDraining is a request to a scheduler that takes no more.
	ErrDraining = errors.New("the model takes no more requests")
	// ErrClosed is the end of what was running when the scheduler was closed.
	ErrClosed = errors.New("the scheduler is closed")
)
