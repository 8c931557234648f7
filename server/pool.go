package server

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"windrow/schedule"
)

// Source is a model that a server may load when it is asked for.
type Source struct {
	// Name is what clients call it; Created is when its files were made, and Context
	// how many tokens it has, 0 where that is not known before it is loaded.
	Name    string
	Created time.Time
	Context int
	// Open loads it; ctx ends when nobody waits for it any more because the server goes
	// down. progress may be called with the part that is done, 0 to 1, from any
	// goroutine until Open returns.
	Open func(ctx context.Context, progress func(done float64)) (*Loaded, error)
}

// Loaded is an open model. Close frees it; its scheduler has nothing to do then.
type Loaded struct {
	Model *Model
	Close func()
}

// PoolOptions bound what a Pool keeps and who waits. A zero field takes its default.
type PoolOptions struct {
	// Loaded is how many models are loaded at a time (1).
	Loaded int
	// Queue is how many requests wait for models that are not loaded (128), and
	// QueueTime how long (2 minutes).
	Queue     int
	QueueTime time.Duration
	// IdleUnload is how long after the end of its last request a model is unloaded; 0:
	// it stays.
	IdleUnload time.Duration
	// Log gets a line a change; nil: nothing is logged.
	Log *slog.Logger
}

// Pool has the models of a server and lends them to requests. A model is loaded when a
// request asks for it, in place of the one that was asked for least recently where there
// is no room: that one answers the requests that have it, and new ones wait. Whoever
// waits longest decides what is loaded next, so that two models that are both asked for
// take turns.
type Pool struct {
	o       PoolOptions
	entries []*entry
	// ctx ends loading when the server goes down.
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	mutex    sync.Mutex // guards what follows, and the entries
	waiting  []*waiter  // who came first is first
	changing bool       // a model is being loaded or unloaded
	started  bool       // a model has been loaded
	draining bool
}

// phase is where a model is between its file and its requests.
type phase string

const (
	unloaded  phase = "unloaded"
	loading   phase = "loading"
	ready     phase = "loaded"
	leaving   phase = "draining" // answers the requests that have it, and takes no more
	unloading phase = "unloading"
)

// entry is a model of a pool.
type entry struct {
	Source
	phase    phase
	loaded   *Loaded
	progress float64
	busy     int       // requests that have it
	used     time.Time // when the last one ended, or it was loaded
	idle     *time.Timer
	past     schedule.Counters // of earlier times that it was loaded
	failed   error             // why it could not be loaded, at failedAt
	failedAt time.Time
}

// failedTime is how long a model that could not be loaded is not tried again: another
// one may have to leave for each try.
const failedTime = 10 * time.Second

// waiter is a request that waits for a model.
type waiter struct {
	entry *entry
	got   chan error // gets one: nil when the model is lent to it
}

// NewPool makes a pool of models, of which none is loaded; "" means the first.
func NewPool(o PoolOptions, sources ...Source) *Pool {
	if o.Loaded < 1 {
		o.Loaded = 1
	}
	if o.Queue < 1 {
		o.Queue = 128
	}
	if o.QueueTime <= 0 {
		o.QueueTime = 2 * time.Minute
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p := &Pool{o: o}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	for _, s := range sources {
		p.entries = append(p.entries, &entry{Source: s, phase: unloaded})
	}
	return p
}

// poolOf is a pool of one model, which is loaded and stays its owner's.
func poolOf(m *Model) *Pool {
	p := NewPool(PoolOptions{}, Source{Name: m.Name, Created: m.Created, Context: m.Context})
	e := p.entries[0]
	e.begin(&Loaded{Model: m, Close: func() {}})
	p.started = true
	return p
}

// begin is where a model's requests begin.
func (e *entry) begin(l *Loaded) {
	e.loaded, e.phase, e.used = l, ready, time.Now()
	e.Context = l.Model.Context
	l.Model.busySince.Store(e.used.UnixNano())
}

// stay ends the wait for the time at which a model is unloaded.
func (e *entry) stay() {
	if e.idle != nil {
		e.idle.Stop()
		e.idle = nil
	}
}

// find returns a model by its name, and the first for "".
func (p *Pool) find(name string) *entry {
	for _, e := range p.entries {
		if name == "" || e.Name == name {
			return e
		}
	}
	return nil
}

// Take lends a model until release is called, and waits until it is loaded. release may
// be called more than once.
//
// Errors: ErrUnknownModel, a *schedule.FullError, a *NotLoadedError, a *LoadError,
// schedule.ErrDraining, or ctx's.
func (p *Pool) Take(ctx context.Context, name string) (m *Model, release func(), err error) {
	e := p.find(name)
	if e == nil {
		return nil, nil, ErrUnknownModel
	}
	p.mutex.Lock()
	switch {
	case p.draining:
		err = schedule.ErrDraining
	case e.failed != nil && time.Since(e.failedAt) < failedTime:
		err = &LoadError{e.Name, e.failed}
	case e.phase == ready && !p.awaited(e):
		p.lend(e)
		defer p.mutex.Unlock()
		return e.loaded.Model, p.release(e), nil
	case len(p.waiting) >= p.o.Queue:
		err = &schedule.FullError{What: "the queue", RetryAfter: 5 * time.Second}
	}
	if err != nil {
		p.mutex.Unlock()
		return nil, nil, err
	}
	w := &waiter{entry: e, got: make(chan error, 1)}
	p.waiting = append(p.waiting, w)
	p.settle()
	p.mutex.Unlock()
	if err := p.await(ctx, w); err != nil {
		return nil, nil, err
	}
	return e.loaded.Model, p.release(e), nil
}

// awaited reports whether somebody waits for a model already: who comes later does not
// overtake.
func (p *Pool) awaited(e *entry) bool {
	return slices.ContainsFunc(p.waiting, func(w *waiter) bool { return w.entry == e })
}

// await waits for a model to be lent, as long as ctx and the queue's time last.
func (p *Pool) await(ctx context.Context, w *waiter) error {
	late := time.NewTimer(p.o.QueueTime)
	defer late.Stop()
	select {
	case err := <-w.got:
		return err
	case <-ctx.Done():
	case <-late.C:
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	select {
	case err := <-w.got: // in the meantime
		if err == nil && ctx.Err() != nil {
			p.giveBack(w.entry)
			return ctx.Err()
		}
		return err
	default:
	}
	p.waiting = slices.DeleteFunc(p.waiting, func(x *waiter) bool { return x == w })
	p.settle()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &NotLoadedError{Model: w.entry.Name, Loading: w.entry.phase == loading, Waited: p.o.QueueTime}
}

// lend counts a request that has a model.
func (p *Pool) lend(e *entry) {
	e.busy++
	e.stay()
}

// release gives a model back, once.
func (p *Pool) release(e *entry) func() {
	var once sync.Once
	return func() {
		once.Do(func() {
			p.mutex.Lock()
			defer p.mutex.Unlock()
			p.giveBack(e)
		})
	}
}

func (p *Pool) giveBack(e *entry) {
	e.busy--
	e.used = time.Now()
	if e.busy == 0 {
		p.watchIdle(e)
	}
	p.settle()
}

// watchIdle unloads a model that nobody asks for, in time.
func (p *Pool) watchIdle(e *entry) {
	if p.o.IdleUnload <= 0 || e.phase != ready || e.busy > 0 || p.draining {
		return
	}
	var t *time.Timer
	t = time.AfterFunc(p.o.IdleUnload, func() {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		if e.idle != t {
			return // it was lent since
		}
		e.idle = nil
		e.phase = leaving
		p.settle()
	})
	e.idle = t
}

// settle begins what is to be done next: it lends loaded models to those who wait for
// them, and loads or unloads one where that is needed. One change runs at a time.
func (p *Pool) settle() {
	if p.draining {
		return
	}
	p.waiting = slices.DeleteFunc(p.waiting, func(w *waiter) bool {
		if w.entry.phase != ready {
			return false
		}
		p.lend(w.entry)
		w.got <- nil
		return true
	})
	if p.changing {
		return
	}
	if len(p.waiting) > 0 {
		p.makeRoom(p.waiting[0].entry)
	}
	for _, e := range p.entries {
		if e.phase == leaving && e.busy > 0 && len(p.waiting) == 0 {
			e.phase = ready // who it was to leave for has gone
		}
		if e.phase == leaving && e.busy == 0 {
			p.change(e, unloading, p.unload)
			return
		}
	}
}

// makeRoom loads a model, or has another one leave first. A model that was leaving and
// is wanted again stays.
func (p *Pool) makeRoom(e *entry) {
	if e.phase == leaving {
		e.phase = ready
		p.settle()
		return
	}
	var oldest *entry
	n := 0
	for _, x := range p.entries {
		switch x.phase {
		case leaving:
			return // there will be room
		case ready:
			n++
			if oldest == nil || idler(x, oldest) {
				oldest = x
			}
		}
	}
	if n < p.o.Loaded {
		p.change(e, loading, p.load)
		return
	}
	oldest.phase = leaving
	p.o.Log.Info("model leaves", "model", oldest.Name, "for", e.Name, "running", oldest.busy)
}

// idler reports whether a is to leave rather than b: one without requests, and of
// several the one that was used least recently.
func idler(a, b *entry) bool {
	if (a.busy == 0) != (b.busy == 0) {
		return a.busy == 0
	}
	return a.used.Before(b.used)
}

// change begins work on a model.
func (p *Pool) change(e *entry, to phase, work func(*entry)) {
	p.changing = true
	e.phase = to
	e.stay()
	p.work.Go(func() { work(e) })
}

// load opens a model, and lends it to those who wait for it.
func (p *Pool) load(e *entry) {
	began := time.Now()
	l, err := e.Open(p.ctx, func(done float64) {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		e.progress = min(max(done, 0), 1)
	})
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.changing, e.progress = false, 0
	if err != nil {
		e.phase = unloaded
		if p.draining {
			return
		}
		e.failed, e.failedAt = err, time.Now()
		p.o.Log.Error("model not loaded", "model", e.Name, "error", err.Error())
		p.refuse(&LoadError{e.Name, err}, func(w *waiter) bool { return w.entry == e })
		p.settle()
		return
	}
	e.begin(l)
	e.failed, p.started = nil, true
	p.o.Log.Info("model loaded", "model", e.Name, "ms", milliseconds(time.Since(began)))
	p.settle()
	p.watchIdle(e)
}

// unload closes a model that no request has.
func (p *Pool) unload(e *entry) {
	l := e.loaded
	past := l.Model.Scheduler.State().Counters
	l.Close()
	p.mutex.Lock()
	defer p.mutex.Unlock()
	e.past = e.past.Plus(past)
	e.loaded, e.phase, p.changing = nil, unloaded, false
	p.o.Log.Info("model unloaded", "model", e.Name)
	p.settle()
}

// refuse ends the waiting of some.
func (p *Pool) refuse(err error, which func(*waiter) bool) {
	p.waiting = slices.DeleteFunc(p.waiting, func(w *waiter) bool {
		if which(w) {
			w.got <- err
			return true
		}
		return false
	})
}

// Load loads the first model and returns what went wrong.
func (p *Pool) Load(ctx context.Context) error {
	_, release, err := p.Take(ctx, "")
	if err == nil {
		release()
	}
	var failed *LoadError
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

// Drain takes no more requests, refuses those that wait, and waits for those that run,
// as long as ctx lasts.
func (p *Pool) Drain(ctx context.Context) {
	p.mutex.Lock()
	p.draining = true
	p.cancel()
	p.refuse(schedule.ErrDraining, func(*waiter) bool { return true })
	var schedulers []Scheduler
	for _, e := range p.entries {
		e.stay()
		if e.loaded != nil && e.phase != unloading {
			schedulers = append(schedulers, e.loaded.Model.Scheduler)
		}
	}
	p.mutex.Unlock()
	var all sync.WaitGroup
	for _, s := range schedulers {
		all.Go(func() { s.Drain(ctx) })
	}
	all.Wait()
}

// Close frees all models, after Drain. No request has one any more.
func (p *Pool) Close() {
	p.mutex.Lock()
	p.draining = true
	p.cancel()
	p.mutex.Unlock()
	p.work.Wait()
	for _, e := range p.entries {
		if e.loaded != nil {
			e.loaded.Close()
			e.loaded, e.phase = nil, unloaded
		}
	}
}

// Standing is where a model of a pool is.
type Standing struct {
	Source   Source
	Phase    string
	Progress float64 // of loading, 0 to 1
	Busy     int     // requests that have it
	Model    *Model  // nil: not loaded
	State    schedule.State
	Requests []schedule.RequestState
}

// Standings are those of all models, in their order. Counters go on where a model was
// unloaded in between.
func (p *Pool) Standings() []Standing {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	list := make([]Standing, len(p.entries))
	for i, e := range p.entries {
		s := Standing{Source: e.Source, Phase: string(e.phase), Progress: e.progress, Busy: e.busy}
		if e.loaded != nil && e.phase != unloading {
			s.Model, s.State = e.loaded.Model, e.loaded.Model.Scheduler.State()
			s.Requests = e.loaded.Model.Scheduler.Requests()
		}
		s.State.Counters = s.State.Counters.Plus(e.past)
		list[i] = s
	}
	return list
}

// starting is how far the first model is loaded, as long as none has been.
func (p *Pool) starting() (progress float64, yes bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.entries[0].progress, !p.started
}

// isDraining reports whether no more requests are taken.
func (p *Pool) isDraining() bool {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.draining
}
