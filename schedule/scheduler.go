package schedule

import (
	"context"
	"errors"
	"sync"
	"time"

	"windrow/backend"
	"windrow/decoder"
	"windrow/model"
)

// Engine is what a scheduler needs of a model: an *engine.Engine.
type Engine interface {
	decoder.Engine
	// NewCache, ForkCache and FreeCache make and free the storage of a sequence.
	NewCache(ctx context.Context, capacity, maxRows int) (*model.Cache, error)
	ForkCache(ctx context.Context, c *model.Cache, n, capacity, maxRows int) (*model.Cache, error)
	ReserveCache(ctx context.Context, c *model.Cache, n int) error
	FreeCache(c *model.Cache)
	// ExportCache and ImportCache copy a page from and to a cache, between two forwards.
	ExportCache(ctx context.Context, c *model.Cache, page int, dst []byte) error
	// RoomCache is where the next pages may be put before they are imported, if anywhere.
	ImportCache(ctx context.Context, c *model.Cache, pages ...[]byte) error
	RoomCache(ctx context.Context, c *model.Cache, n int) ([][]byte, error)
	// ExportStates and ImportStates do the same with states, if the model has some.
	ExportStates(ctx context.Context, c *model.Cache, p backend.Place, dst []byte) error
	ImportStates(ctx context.Context, c *model.Cache, p backend.Place, end int, src []byte) error
	Features() backend.Features
	Budget() *backend.Budget
	// KVPageBytes is what a page of backend.PageTokens tokens takes of the Budget.
	KVPageBytes() int64
}

// Scheduler runs the requests of one model. Its methods may be called by many
// goroutines.
type Scheduler struct {
	engine   Engine
	o        Options
	features backend.Features
	wake     chan struct{} // holds one when the loop has something to look at
	quit     context.CancelFunc
	finished chan struct{}

	mutex    sync.Mutex // guards what follows
	queue    queue
	number   int64
	draining bool
	closed   bool
	state    State
	posted   []func()       // what the loop shall call
	seen     []RequestState // those that ran after the last pass

	// Of the loop alone.
	running  []*job
	prefixes prefixes
	rates    rates
	shares   shares
	awaited  bool // somebody's first token came in the last pass, or an end
	disk     disk
	seals    []Request // the last brought is next
}

// New starts a scheduler. Close ends it.
func New(e Engine, o Options) *Scheduler {
	s := idle(e, o)
	ctx, quit := context.WithCancel(context.Background())
	s.quit, s.disk.ctx = quit, ctx
	go s.loop(ctx)
	return s
}

// idle is a scheduler whose loop does not run.
func idle(e Engine, o Options) *Scheduler {
	f := e.Features()
	s := &Scheduler{
		engine: e, features: f, o: o.withDefaults(f.PrefillRows),
		wake: make(chan struct{}, 1), finished: make(chan struct{}),
	}
	s.prefixes = newPrefixes(s.o.Prefixes, s.o.CacheShare, s.memoryTokens, e.FreeCache, s.now)
	s.disk = disk{store: s.o.Sessions, loads: map[string]*load{}}
	if s.o.KVMemory > 0 {
		e.Budget().Limit(s.o.KVMemory)
	}
	return s
}

func (s *Scheduler) now() time.Time { return s.o.Now() }

// Submit queues a request. Its context ends it, at any time.
//
// Errors: *FullError, ErrDraining, ErrClosed, or those of decoder.NewSequence for
// options that cannot be.
func (s *Scheduler) Submit(ctx context.Context, r Request) (*Stream, error) {
	s.cut(&r.Options)
	if err := r.Options.Validate(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	run, cancel := context.WithCancelCause(ctx)
	j := &job{request: r, ctx: run, stream: newStream(cancel, s.look), arrived: s.now()}
	if err := s.enqueue(j); err != nil {
		cancel(nil)
		return nil, err
	}
	context.AfterFunc(run, s.look) // a request that ends is looked at
	s.look()
	return j.stream, nil
}

// cut says in which pieces a request's rows go: in those that keep everybody's bits.
func (s *Scheduler) cut(o *decoder.Options) {
	o.PrefillRows = s.o.Chunk
	o.PrefillAnywhere = s.alike()
	if !s.mixes() {
		o.InvariantRows = s.features.BatchInvariantRows
	}
}

func (s *Scheduler) enqueue(j *job) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	switch {
	case s.closed:
		return ErrClosed
	case s.draining:
		return ErrDraining
	}
	if err := s.queue.check(&j.request, &s.o, s.retryAfter()); err != nil {
		return err
	}
	s.number++
	j.number = s.number
	s.queue.push(j)
	return nil
}

// retryAfter is when the queue may have room: what waits, by the recent rate.
func (s *Scheduler) retryAfter() time.Duration {
	rate := max(s.state.TokensPerSecond, 1)
	return min(max(time.Duration(float64(s.queue.tokens)/rate*float64(time.Second)), time.Second), time.Minute)
}

// look wakes the loop.
func (s *Scheduler) look() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Drain takes no more requests, refuses those that wait, and lets those that run end;
// when ctx ends first they are stopped, with what they have.
func (s *Scheduler) Drain(ctx context.Context) error {
	s.mutex.Lock()
	s.draining = true
	s.mutex.Unlock()
	s.look()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if st := s.State(); st.Running == 0 && st.Waiting == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.finished:
			return nil
		case <-tick.C:
		}
	}
}

// Close stops what runs, with ErrClosed, frees all that is kept, and waits for the
// loop's end. The engine stays open.
func (s *Scheduler) Close() {
	s.mutex.Lock()
	s.closed = true
	s.mutex.Unlock()
	s.quit()
	<-s.finished
}

// State is what a scheduler is at.
type State struct {
	// Running and Waiting count requests; Prefixes are the beginnings that are kept.
	Running, Waiting, Prefixes int
	// MemoryUsed and MemoryLimit are bytes of keys and values; a limit of 0: none.
	MemoryUsed, MemoryLimit int64
	// LastForward is when the last forward ended.
	LastForward time.Time
	// TokensPerSecond is the recent rate of prompt and output together.
	TokensPerSecond float64
	Counters
}

// Counters only grow.
type Counters struct {
	Requests, Forwards, Preemptions     int64
	PromptTokens, CachedTokens, Tokens  int64
	Rows, PrefillRows, Drafts, Accepted int64
	// Drafters say the same of drafts by who proposed them.
	Drafters decoder.Drafters

	PrefixQueries, PrefixHits, ReplayedRows int64
	// SealedTokens were computed ahead of time. Sessions were saved and loaded, or were
	// not as something was wrong.
	SealedTokens                                int64
	SessionSaves, SessionLoads, SessionFailures int64
}

// Plus is what two schedulers have counted, one after the other.
func (c Counters) Plus(d Counters) Counters {
	drafters := c.Drafters
	drafters.Add(&d.Drafters)
	return Counters{
		Drafters: drafters,
		Requests: c.Requests + d.Requests, Forwards: c.Forwards + d.Forwards, Preemptions: c.Preemptions + d.Preemptions,
		PromptTokens: c.PromptTokens + d.PromptTokens, CachedTokens: c.CachedTokens + d.CachedTokens, Tokens: c.Tokens + d.Tokens,
		Rows: c.Rows + d.Rows, PrefillRows: c.PrefillRows + d.PrefillRows, Drafts: c.Drafts + d.Drafts, Accepted: c.Accepted + d.Accepted,
		PrefixQueries: c.PrefixQueries + d.PrefixQueries, PrefixHits: c.PrefixHits + d.PrefixHits, ReplayedRows: c.ReplayedRows + d.ReplayedRows,
		SealedTokens: c.SealedTokens + d.SealedTokens, SessionSaves: c.SessionSaves + d.SessionSaves,
		SessionLoads: c.SessionLoads + d.SessionLoads, SessionFailures: c.SessionFailures + d.SessionFailures,
	}
}

// tally changes the counters.
func (s *Scheduler) tally(change func(c *Counters)) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	change(&s.state.Counters)
}

// State returns the state after the last pass.
func (s *Scheduler) State() State {
	used, limit := s.engine.Budget().Used()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	st := s.state
	st.Waiting, st.MemoryUsed, st.MemoryLimit = len(s.queue.jobs), used, limit
	return st
}

// mixes reports whether rows keep their bits in any batch, so that prompts may ride
// with steps.
func (s *Scheduler) mixes() bool { return s.features.BatchInvariantRows >= s.o.Chunk+64*s.o.Sequences }

// alike reports whether rows of prompts keep their bits in any forward of prompts, so
// that prompts may be cut anywhere, share forwards, and go on from any prefix.
func (s *Scheduler) alike() bool { return s.mixes() || s.features.PromptRows >= s.o.Chunk }

// step is what prefixes are cut to multiples of.
func (s *Scheduler) step() int {
	if s.alike() {
		return 1
	}
	return s.o.Chunk
}

// memoryTokens is how many tokens all memory for keys and values has; 0: no limit.
func (s *Scheduler) memoryTokens() int {
	_, limit := s.engine.Budget().Used()
	return int(limit / max(1, s.engine.KVPageBytes()) * backend.PageTokens)
}

// rates are the recent seconds of a row of a prompt, and of forwards of either kind.
type rates struct {
	row             float64 // seconds a row of prompts takes, 0: unknown
	restore         float64 // seconds a byte of a session takes to come from disk, 0: unknown
	restored        time.Time
	prefill, decode float64 // faded seconds spent
	tokens, seconds float64 // faded
}

const fading = 0.9

var (
	errFault = errors.New("the model's forward failed")
	errLater = errors.New("what has to go is saved first")
)
