package schedule

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"windrow/backend"
	"windrow/decoder"
	"windrow/model"
	"windrow/session"
)

// loop runs passes while there is something to do, until ctx ends.
func (s *Scheduler) loop(ctx context.Context) {
	defer close(s.finished)
	for ctx.Err() == nil {
		s.takePosted()
		s.dropCancelled()
		s.yield()
		s.admit(ctx)
		s.save()
		s.publish()
		if s.pass(ctx) || s.seal(ctx) {
			if s.awaited {
				// Forwards keep all processors: who reads would be let in after some 10 ms.
				s.awaited = false
				runtime.Gosched()
			}
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
	s.closeDisk()
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
		case j.follows: // what it waits for is being computed
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
		if j.seal {
			s.tally(func(c *Counters) { c.SealedTokens += int64(j.cache.Base() - sum.Stats.CachedTokens) })
		} else {
			s.mutex.Lock()
			s.queue.serve(j.request.Owner, cost(j))
			s.mutex.Unlock()
			s.count(&sum)
		}
	} else if err == nil {
		j.stream.append([]decoder.Event{decoder.Finished{Reason: decoder.FinishCancelled}})
	}
	if tokens := s.keep(j); j.request.Session != "" && s.disk.store != nil && len(tokens) > 0 && (!j.seal || sum.FinishReason == decoder.FinishLength) {
		s.saveLater(&save{Session: session.Session{Owner: j.request.Owner, Name: j.request.Session, Salt: j.request.Salt, Tokens: tokens}})
	}
	if j.sequence != nil {
		j.sequence.Close()
	}
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

// keep makes a prefix of what a request leaves, and returns its tokens; nil where there
// is none.
func (s *Scheduler) keep(j *job) []int32 {
	if j.cache == nil {
		return nil
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
			return nil
		}
		if fork, err := s.engine.ForkCache(context.Background(), c, n, n, 1); err == nil {
			// Where layers have a state it may have fewer.
			if n = fork.Base(); n < backend.PageTokens {
				s.engine.FreeCache(fork)
				return nil
			}
			x := &prefix{salt: j.request.Salt, owner: j.request.Owner, tokens: slices.Clone(tokens[:n]), cache: fork}
			s.prefixes.put(x)
			return x.tokens
		}
	}
	return nil
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
		if s.follow(j) || s.restore(ctx, j) {
			continue
		}
		err := s.begin(ctx, j)
		var lacks *backend.MemoryError
		switch {
		case err == nil:
			s.mutex.Lock()
			s.queue.remove(j)
			s.mutex.Unlock()
			s.running = append(s.running, j)
		case errors.Is(err, errLater):
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
		switch {
		case err == nil || !errors.As(err, &lacks):
			return err
		case !j.seal && s.saveFirst(j):
			return errLater
		case !s.prefixes.evict():
			return err
		}
	}
}

func (s *Scheduler) tryBegin(ctx context.Context, j *job) error {
	prompt := j.wanted()
	capacity, rows := decoder.CacheSize(len(j.request.Prompt), j.request.Options)
	from := s.beginning(j, prompt)
	// The prompt's pages and one more are taken now; later ones as they are needed.
	c, err := s.takeCache(ctx, from.cache, min(from.n, capacity), capacity, rows, min(len(prompt)+backend.PageTokens, capacity))
	if err != nil {
		return err
	}
	cached := c.Base()
	if j.sequence == nil {
		j.sequence, err = decoder.NewSequence(c, j.request.Prompt, j.request.Options, j.request.Detokenizer)
		j.admitted = s.now()
		if !j.seal {
			s.tally(func(c *Counters) {
				c.Requests++
				c.PrefixQueries += int64(len(prompt))
				c.PrefixHits += int64(cached)
			})
		}
	} else {
		err = j.sequence.Move(c)
		s.tally(func(c *Counters) { c.ReplayedRows += int64(len(prompt) - cached) })
	}
	if err != nil {
		s.engine.FreeCache(c)
		return err
	}
	j.cache, j.whole = c, min(cached, len(j.request.Prompt))
	return nil
}

// takeCache makes a cache, of which the first n tokens are those of another where from is
// not nil (or fewer, where a state does not go back to there), with pages for reserve tokens, and room left to those that run.
func (s *Scheduler) takeCache(ctx context.Context, from *model.Cache, n, capacity, rows, reserve int) (c *model.Cache, err error) {
	if from != nil {
		c, err = s.engine.ForkCache(ctx, from, n, capacity, rows)
	} else {
		c, err = s.engine.NewCache(ctx, capacity, rows)
	}
	if err != nil {
		return nil, err
	}
	if err = s.engine.ReserveCache(ctx, c, reserve); err == nil {
		err = s.roomToGoOn(c)
	}
	if err != nil {
		s.engine.FreeCache(c)
		return nil, err
	}
	return c, nil
}

// roomToGoOn returns an error where those that run would soon have no memory: some pages
// are left to each, so that who is admitted is not preempted at once.
func (s *Scheduler) roomToGoOn(c *model.Cache) error {
	used, limit := s.engine.Budget().Used()
	if limit == 0 {
		return nil
	}
	need := int64(max(s.o.Slack, 0)) * int64(len(s.running)) * s.engine.KVPageBytes()
	if limit-used < need {
		return &backend.MemoryError{Span: -1, Bytes: need, Free: limit - used, Limit: limit}
	}
	return nil
}

// pass runs one forward, and reports whether there was one to run.
func (s *Scheduler) pass(ctx context.Context) bool {
	for {
		list := s.choose()
		drafting := s.draft(ctx, list)
		b, in, prompts := s.plan(list)
		if len(in) == 0 {
			return false
		}
		start := s.now()
		results, err := s.engine.Forward(ctx, b)
		if err == nil {
			took := s.now().Sub(start)
			for _, j := range s.running {
				j.rows = 0
			}
			for i, j := range in {
				j.rows = b.Spans[i].Rows
			}
			tokens := s.absorb(in, results, Pass{took, len(b.Tokens), len(in)})
			s.shares.took(tokens, took.Seconds(), drafting, b.Prepared)
			s.booked(prompts, len(b.Tokens), took)
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

// plan makes the batch of a forward: who is in it, and how many of its rows are of
// prompts. Those who choose their rows do it last, by what the others feed.
func (s *Scheduler) plan(list []chosen) (b *model.Batch, in []*job, prompts int) {
	b = new(model.Batch)
	reading := 0
	for _, j := range s.running {
		if j.sequence.Prefilling() {
			reading++
		}
	}
	s.shares.begin(reading)
	for _, c := range list {
		if c.job.sequence.Elastic() {
			s.shares.elastic(&c.job.request.Options, c.job.sequence)
			s.shares.drafts(c.job.sequence)
			continue
		}
		before := len(b.Tokens)
		c.job.sequence.Plan(b, c.rows)
		rows := len(b.Tokens) - before
		if rows == 0 {
			continue
		}
		in = append(in, c.job)
		if c.job.sequence.Prefilling() {
			prompts += rows
		}
		s.shares.fixed(rows, c.job.sequence.Prefilling())
		s.shares.drafts(c.job.sequence)
	}
	s.shares.settle()
	for _, c := range list {
		if c.job.sequence.Elastic() && !s.shares.weigh(c.job) {
			s.shares.plan(c.job, b, 0)
			in = append(in, c.job)
		}
	}
	for _, p := range s.shares.divide() {
		s.shares.plan(p.job, b, p.rows)
		in = append(in, p.job)
	}
	return b, in, prompts
}

// absorb hands each its results, and returns how many tokens the steps brought.
func (s *Scheduler) absorb(in []*job, results []model.Result, pass Pass) (tokens int) {
	for _, j := range in {
		prefilling := j.sequence.Prefilling()
		base := j.cache.Base()
		n := j.sequence.Wanted()
		before := j.sequence.Tokens()
		events, err := j.sequence.Absorb(results[:n])
		results = results[n:]
		if !prefilling {
			tokens += j.sequence.Tokens() - before
		}
		if j.request.Steps {
			events = pass.timed(events)
		}
		j.stream.append(events)
		if prefilling && base == j.whole && (s.mixes() || !j.tellsPrompt()) {
			j.whole = min(j.cache.Base(), len(j.request.Prompt))
		}
		if prefilling && !j.sequence.Prefilling() && j.prefilled.IsZero() {
			j.prefilled = s.now()
		}
		s.awaited = s.awaited || before == 0 && j.sequence.Tokens() > 0
		if err != nil || j.sequence.Done() {
			s.awaited = true
			s.end(j, err)
		}
	}
	return tokens
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
	s.seen = s.snapshot(s.seen[:0])
	s.state.Running, s.state.Prefixes = len(s.running), s.prefixes.len()
	if s.sealing() != nil {
		s.state.Running--
	}
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
		c.Drafters.Add(&st.Drafters)
	})
}
