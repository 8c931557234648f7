package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"windrow/backend"
	"windrow/decoder"
	"windrow/model"
)

// loop runs passes while there is something to do, until ctx ends.
func (s *Scheduler) loop(ctx context.Context) {
	defer close(s.finished)
	for ctx.Err() == nil {
		s.dropCancelled()
		s.admit(ctx)
		s.publish()
		worked := s.pass(ctx)
		if worked {
			continue
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
		case <-time.After(time.Second): // late requests
		}
	}
	for _, j := range slices.Clone(s.running) {
		s.end(j, ErrClosed)
	}
	s.mutex.Lock()
	waiting := slices.Clone(s.queue.jobs)
	s.mutex.Unlock()
	for _, j := range waiting {
		s.end(j, ErrClosed)
	}
	s.prefixes.clear()
	s.publish()
}

// dropCancelled ends the requests whose contexts have ended, and those that waited too
// long or came before a drain.
func (s *Scheduler) dropCancelled() {
	for _, j := range slices.Clone(s.running) {
		if j.ctx.Err() != nil {
			s.end(j, nil)
		}
	}
	s.mutex.Lock()
	waiting, draining := slices.Clone(s.queue.jobs), s.draining
	s.mutex.Unlock()
	for _, j := range waiting {
		switch waited := s.now().Sub(j.arrived); {
		case j.ctx.Err() != nil:
			s.end(j, nil)
		case j.sequence != nil: // preempted: it was begun
		case draining:
			s.end(j, ErrDraining)
		case waited > s.o.QueueTime:
			s.end(j, &LateError{waited})
		}
	}
}

// end is the end of a request: err, or, where that is nil and it has not ended by
// itself, that it was cancelled.
func (s *Scheduler) end(j *job, err error) {
	j.ended = s.now()
	sum := decoder.Summary{FinishReason: decoder.FinishCancelled}
	if j.sequence != nil {
		reason := decoder.FinishCancelled
		if err != nil {
			reason = ""
		}
		j.stream.append(j.sequence.Stop(reason))
		sum = j.sequence.Summary()
		s.mutex.Lock()
		s.queue.serve(j.request.Owner, cost(j))
		s.mutex.Unlock()
		s.count(&sum)
	} else if err == nil {
		j.stream.append([]decoder.Event{decoder.Finished{Reason: decoder.FinishCancelled}})
	}
	s.keep(j)
	timings := j.measured()
	sum.Stats.PrefillSeconds, sum.Stats.DecodeSeconds = timings.Prefill.Seconds(), timings.Decode.Seconds()
	if i := slices.Index(s.running, j); i >= 0 {
		s.running = slices.Delete(s.running, i, i+1)
	}
	s.mutex.Lock()
	s.queue.remove(j)
	if len(s.running) == 0 {
		s.queue.level()
	}
	s.mutex.Unlock()
	s.publish() // who reads to the end finds it gone
	j.stream.end(sum, timings, err)
}

// keep makes a prefix of what a request leaves.
func (s *Scheduler) keep(j *job) {
	if j.cache == nil {
		return
	}
	c, tokens := j.cache, j.sequence.Permanent()
	j.cache = nil
	n := c.Base()
	if !s.mixes() {
		n = min(n, j.whole)
	}
	defer s.engine.FreeCache(c)
	// A fork has the pages of n tokens and no others. Where there is no page for the
	// last of them, full ones do.
	for _, n := range []int{n, n / backend.PageTokens * backend.PageTokens} {
		if n < backend.PageTokens || s.o.Prefixes < 0 { // not worth an entry
			return
		}
		if fork, err := s.engine.ForkCache(context.Background(), c, n, n, 1); err == nil {
			s.prefixes.put(&prefix{salt: j.request.Salt, tokens: slices.Clone(tokens[:n]), whole: min(j.whole, n), cache: fork})
			return
		}
	}
}

// admit begins requests while there is room.
func (s *Scheduler) admit(ctx context.Context) {
	for len(s.running) < s.o.Sequences {
		s.mutex.Lock()
		j := s.queue.next()
		s.mutex.Unlock()
		if j == nil {
			return
		}
		err := s.begin(ctx, j)
		var lacks *backend.MemoryError
		switch {
		case err == nil:
			s.mutex.Lock()
			s.queue.remove(j)
			s.mutex.Unlock()
			s.running = append(s.running, j)
		case errors.As(err, &lacks) && len(s.running) > 0:
			return // somebody's end makes room
		default:
			s.end(j, err)
		}
	}
}

// begin gives a request its cache, and its sequence where it has none. Prefixes go
// while there is no room.
func (s *Scheduler) begin(ctx context.Context, j *job) error {
	for {
		err := s.tryBegin(ctx, j)
		var lacks *backend.MemoryError
		if err == nil || !errors.As(err, &lacks) || !s.prefixes.evict() {
			return err
		}
	}
}

func (s *Scheduler) tryBegin(ctx context.Context, j *job) (err error) {
	prompt := j.request.Prompt
	if j.sequence != nil {
		prompt = j.sequence.Permanent()
		if len(prompt) < len(j.request.Prompt) {
			prompt = j.request.Prompt
		}
	}
	capacity, rows := decoder.CacheSize(len(j.request.Prompt), j.request.Options)
	from, n := s.prefixes.find(j.request.Salt, prompt, s.step())
	var c *model.Cache
	if from != nil {
		c, err = s.engine.ForkCache(ctx, from.cache, min(n, capacity), capacity, rows)
	} else {
		c, err = s.engine.NewCache(ctx, capacity, rows)
	}
	if err != nil {
		return err
	}
	// The prompt's pages and one more are taken now; later ones as they are needed.
	if err = s.engine.ReserveCache(ctx, c, min(len(prompt)+backend.PageTokens, capacity)); err == nil {
		err = s.roomToGoOn(c)
	}
	if err != nil {
		s.engine.FreeCache(c)
		return err
	}
	cached := c.Base()
	if j.sequence == nil {
		j.sequence, err = decoder.NewSequence(c, j.request.Prompt, j.request.Options, j.request.Detokenizer)
		j.admitted = s.now()
		s.tally(func(c *Counters) {
			c.Requests++
			c.PrefixQueries += int64(len(prompt))
			c.PrefixHits += int64(cached)
		})
	} else {
		err = j.sequence.Move(c)
		s.tally(func(c *Counters) { c.ReplayedRows += int64(len(prompt) - cached) })
	}
	if err != nil {
		s.engine.FreeCache(c)
		return err
	}
	j.cache, j.whole = c, min(cached, len(j.request.Prompt))
	if from != nil {
		j.whole = min(j.whole, from.whole)
	}
	return nil
}

// roomToGoOn returns an error where those that run would soon have no memory: some pages
// are left to each, so that who is admitted is not preempted at once.
func (s *Scheduler) roomToGoOn(c *model.Cache) error {
	used, limit := s.engine.Budget().Used()
	if limit == 0 {
		return nil
	}
	need := int64(max(s.o.Slack, 0)) * int64(len(s.running)) * int64(c.PageBytes())
	if limit-used < need {
		return &backend.MemoryError{Span: -1, Bytes: need, Free: limit - used, Limit: limit}
	}
	return nil
}

// pass runs one forward, and reports whether there was one to run.
func (s *Scheduler) pass(ctx context.Context) bool {
	for {
		jobs := s.choose()
		b := new(model.Batch)
		var in []*job
		prompts := 0
		for _, c := range jobs {
			spans := len(b.Spans)
			before := len(b.Tokens)
			c.job.sequence.Plan(b, c.rows)
			if len(b.Spans) > spans {
				in = append(in, c.job)
				if c.job.sequence.Prefilling() {
					prompts += len(b.Tokens) - before
				}
			}
		}
		if len(in) == 0 {
			return false
		}
		start := s.now()
		results, err := s.engine.Forward(ctx, b)
		if err == nil {
			s.absorb(in, results)
			s.booked(prompts, len(b.Tokens), s.now().Sub(start))
			return true
		}
		var lacks *backend.MemoryError
		switch {
		case ctx.Err() != nil:
			return false
		case errors.As(err, &lacks):
			if s.prefixes.evict() || s.preempt() {
				continue
			}
			s.end(in[max(0, min(lacks.Span, len(in)-1))], err)
		default:
			for _, j := range in {
				s.end(j, fmt.Errorf("%w: %w", errFault, err))
			}
		}
		return true
	}
}

// absorb hands each its results.
func (s *Scheduler) absorb(in []*job, results []model.Result) {
	for _, j := range in {
		prefilling := j.sequence.Prefilling()
		base := j.cache.Base()
		n := j.sequence.Wanted()
		events, err := j.sequence.Absorb(results[:n])
		results = results[n:]
		j.stream.append(events)
		if prefilling && base == j.whole {
			j.whole = min(j.cache.Base(), len(j.request.Prompt))
		}
		if prefilling && !j.sequence.Prefilling() && j.prefilled.IsZero() {
			j.prefilled = s.now()
		}
		if err != nil || j.sequence.Done() {
			s.end(j, err)
		}
	}
}

// preempt takes the cache of the sequence that is the least of them, and reports
// whether there is one: of the lowest priority, then the one that has computed least.
// The oldest keeps its.
func (s *Scheduler) preempt() bool {
	var oldest, victim *job
	for _, j := range s.running {
		if oldest == nil || j.number < oldest.number {
			oldest = j
		}
	}
	for _, j := range s.running {
		if j == oldest {
			continue
		}
		if victim == nil || j.request.Priority < victim.request.Priority ||
			j.request.Priority == victim.request.Priority && j.cache.Base() < victim.cache.Base() {
			victim = j
		}
	}
	if victim == nil {
		return false
	}
	s.engine.FreeCache(victim.cache)
	victim.cache = nil
	s.running = slices.DeleteFunc(s.running, func(j *job) bool { return j == victim })
	victim.timings.Preempted++
	s.tally(func(c *Counters) { c.Preemptions++ })
	s.mutex.Lock()
	s.queue.push(victim)
	s.mutex.Unlock()
	return true
}

// publish makes the state that others see.
func (s *Scheduler) publish() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.state.Running, s.state.Prefixes = len(s.running), len(s.prefixes.list)
}

// count adds what a request came to.
func (s *Scheduler) count(sum *decoder.Summary) {
	st := &sum.Stats
	s.tally(func(c *Counters) {
		c.PromptTokens += int64(st.PromptTokens)
		c.CachedTokens += int64(st.CachedTokens)
		c.Tokens += int64(len(sum.Tokens))
		c.Drafts += int64(st.Drafts)
		c.Accepted += int64(st.Accepted)
	})
}
