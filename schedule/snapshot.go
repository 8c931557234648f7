package schedule

import (
	"slices"

	"windrow/decoder"
)

// Phase is what a request is at.
type Phase string

// The phases.
const (
	Waiting Phase = "waiting" // not admitted, or preempted
	Prefill Phase = "prefill"
	Decode  Phase = "decode"
	Paused  Phase = "paused" // its reader is far behind
)

// RequestState is a request that runs or waits.
type RequestState struct {
	// Name is the request's.
	Name  string
	Mode  decoder.Mode
	Phase Phase
	// Prompt and Tokens count those of the prompt and those generated; Rows are those
	// that it had in the last pass.
	Prompt, Tokens, Rows int
}

// Requests are those that run, as they were after the last pass, then those that wait.
// It does not wait for a forward.
func (s *Scheduler) Requests() []RequestState {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	list := slices.Clone(s.seen)
	for _, j := range s.queue.jobs {
		list = append(list, RequestState{Name: j.request.Name, Mode: j.request.Options.Mode, Phase: Waiting, Prompt: len(j.request.Prompt)})
	}
	return list
}

// snapshot appends what those that run are at to list; the loop's.
func (s *Scheduler) snapshot(list []RequestState) []RequestState {
	for _, j := range s.running {
		if j.seal { // nobody's request
			continue
		}
		r := RequestState{
			Name: j.request.Name, Mode: j.request.Options.Mode, Phase: Decode,
			Prompt: len(j.request.Prompt), Tokens: j.sequence.Tokens(), Rows: j.rows,
		}
		switch {
		case j.sequence.Prefilling():
			r.Phase = Prefill
		case j.stream.behind() > mostUnread:
			r.Phase = Paused
		}
		list = append(list, r)
	}
	return list
}
