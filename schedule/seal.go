package schedule

import (
	"context"
	"slices"

	"windrow/backend"
	"windrow/decoder"
)

// mostSeals is how many prompts wait to be run ahead of time: later ones push earlier
// ones out.
const mostSeals = 64

// Seal has a prompt's keys and values computed while nobody waits, so that a prompt that
// begins with it finds them; it generates nothing. Request's Prompt, Owner, Salt and
// Session are used. A request that comes ends it between two forwards, and it goes on
// when there are none again. It may never be done: nobody is told.
func (s *Scheduler) Seal(r Request) {
	r.Options = decoder.Options{Mode: decoder.AR, MaxTokens: 1, Vocabulary: decoder.Vocabulary{MaskID: -1}}
	s.cut(&r.Options)
	// What does not fill a chunk is computed again, hit or miss.
	r.Prompt = r.Prompt[:len(r.Prompt)/s.step()*s.step()]
	if len(r.Prompt) < backend.PageTokens || s.o.Prefixes < 0 { // too little to be kept
		return
	}
	s.post(func() { s.sealLater(r) })
}

func (s *Scheduler) sealLater(r Request) {
	s.seals = slices.DeleteFunc(s.seals, func(old Request) bool {
		return old.Salt == r.Salt && decoder.CommonPrefix(old.Prompt, r.Prompt) == len(old.Prompt)
	})
	if s.seals = append(s.seals, r); len(s.seals) > mostSeals {
		s.seals = slices.Delete(s.seals, 0, 1)
	}
}

// seal begins the last prompt that was brought, where nothing runs or waits, and reports
// whether it did.
func (s *Scheduler) seal(ctx context.Context) bool {
	for len(s.running) == 0 && len(s.seals) > 0 && !s.wanting() {
		last := len(s.seals) - 1
		r := s.seals[last]
		s.seals = slices.Delete(s.seals, last, last+1)
		if _, n := s.prefixes.peek(r.Salt, r.Prompt); n == len(r.Prompt) {
			continue
		}
		run, cancel := context.WithCancelCause(ctx)
		j := &job{request: r, ctx: run, stream: newStream(cancel, s.look), arrived: s.now(), seal: true}
		if err := s.begin(ctx, j); err != nil { // there is no memory for a guess
			cancel(nil)
			continue
		}
		s.running = append(s.running, j)
		return true
	}
	return false
}

// wanting reports whether somebody waits, or the end is near: no time for guesses.
func (s *Scheduler) wanting() bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return len(s.queue.jobs) > 0 || s.draining || s.closed
}

// sealing is what is being sealed; nil: nothing.
func (s *Scheduler) sealing() *job {
	if len(s.running) > 0 && s.running[0].seal {
		return s.running[0]
	}
	return nil
}

// yield ends what is sealed where somebody waits, or was begun since it was looked. What
// was computed of it is kept.
func (s *Scheduler) yield() {
	if j := s.sealing(); j != nil && (len(s.running) > 1 || s.wanting()) {
		s.end(j, nil)
		s.sealLater(j.request)
	}
}

// unseal forgets what is to be sealed, or is, of a session.
func (s *Scheduler) unseal(owner, name string) {
	s.seals = slices.DeleteFunc(s.seals, func(r Request) bool { return r.Owner == owner && r.Session == name })
	if j := s.sealing(); j != nil && j.request.Owner == owner && j.request.Session == name {
		s.end(j, nil)
	}
}
