package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"windrow/backend"
	"windrow/decoder"
	"windrow/model"
	"windrow/session"
)

// ErrNoSessions is the use of sessions where none are kept.
var ErrNoSessions = errors.New("no sessions are kept here")

// disk is what a scheduler does with its store of sessions, if it has one. Files are
// read and written by goroutines beside the loop, which take the device for a page at a
// time, between two forwards; what they come to is posted to the loop, whose everything
// here is but for the store.
type disk struct {
	store   *session.Store
	ctx     context.Context // ends with the loop
	all     sync.WaitGroup  // goroutines
	saving  *save           // one at a time
	waiting []*save
	loads   map[string]*load // by the hit's key
}

// save is a conversation that is to be on disk.
type save struct {
	session.Session
	ended   bool
	waiters []chan<- saved
}

// saved is what came of a save.
type saved struct {
	info session.Info
	err  error
}

// load is a conversation that comes from disk.
type load struct{ ended bool }

// full is the part of the memory for keys and values from which on the least recently
// used prefixes are saved, so that they are on disk before they have to go.
const full = 0.75

// post has the loop call f.
func (s *Scheduler) post(f func()) {
	s.mutex.Lock()
	s.posted = append(s.posted, f)
	s.mutex.Unlock()
	s.look()
}

// takePosted calls what was posted.
func (s *Scheduler) takePosted() {
	s.mutex.Lock()
	posted := s.posted
	s.posted = nil
	s.mutex.Unlock()
	for _, f := range posted {
		f()
	}
}

// wholePages is how many of so many tokens are whole pages with the bits that they have for
// everybody.
func (s *Scheduler) wholePages(n int) int {
	return n / s.step() * s.step() / backend.PageTokens * backend.PageTokens
}

// kept is how many of so many tokens a session keeps: all where there are states, which
// go back to few places.
func (s *Scheduler) kept(n int) int {
	if s.disk.store.States() {
		return n
	}
	return s.wholePages(n)
}

// saveLater queues a save, in place of one of the same name.
func (s *Scheduler) saveLater(w *save) {
	if w.Name != "" {
		s.disk.waiting = slices.DeleteFunc(s.disk.waiting, func(old *save) bool {
			same := old.Owner == w.Owner && old.Name == w.Name
			if same {
				w.waiters = append(w.waiters, old.waiters...)
				old.ended = true
			}
			return same
		})
	}
	s.disk.waiting = append(s.disk.waiting, w)
}

// saveOf is a save of a prefix, without a name.
func saveOf(x *prefix) *save {
	return &save{Session: session.Session{Owner: x.owner, Salt: x.salt, Tokens: x.tokens, Used: x.used}}
}

// unsaved reports whether a prefix has pages that are not on disk.
func (s *Scheduler) unsaved(x *prefix) bool { return x.saved < s.kept(len(x.tokens)) }

// save goes on with saving: what waits, and where memory is short the least recently
// used prefix that is not on disk.
func (s *Scheduler) save() {
	d := &s.disk
	if d.store == nil || d.saving != nil {
		return
	}
	if len(d.waiting) == 0 {
		if x := s.goesNext(); x != nil {
			d.waiting = []*save{saveOf(x)}
		}
	}
	if len(d.waiting) > 0 {
		w := d.waiting[0]
		d.waiting = slices.Delete(d.waiting, 0, 1)
		s.start(w)
	}
}

// goesNext is what should be saved as it may soon have to go; nil: nothing.
func (s *Scheduler) goesNext() *prefix {
	used, limit := s.engine.Budget().Used()
	if (limit == 0 || float64(used) < full*float64(limit)) && float64(s.prefixes.len()) < full*float64(s.o.Prefixes) {
		return nil
	}
	n := s.prefixes.len()/2 + 1
	for e := s.prefixes.order.Front(); e != nil && n > 0; e, n = e.Next(), n-1 {
		if x := e.Value.(*prefix); s.unsaved(x) && s.paysOf(x) {
			return x
		}
	}
	return nil
}

// start begins a save.
func (s *Scheduler) start(w *save) {
	d := &s.disk
	x, there := s.prefixes.peek(w.Salt, w.Tokens)
	n := s.kept(there)
	var disk *session.Hit
	if disk = d.store.Find(w.Salt, w.Tokens); disk != nil {
		n = max(n, s.kept(disk.Tokens))
	}
	d.saving = w
	if x != nil {
		x.pins++
	}
	w.Tokens = w.Tokens[:min(n, len(w.Tokens))]
	pages := there / backend.PageTokens
	if d.store.States() { // the last may be of fewer tokens
		pages = (there + backend.PageTokens - 1) / backend.PageTokens
	}
	d.all.Go(func() {
		save := func() (session.Info, error) {
			w.States = s.states(x, disk, len(w.Tokens))
			return d.store.Save(d.ctx, w.Session, func(page int, dst []byte) error {
				if page >= pages {
					return errors.New("its keys are in memory no more")
				}
				return s.engine.ExportCache(d.ctx, x.cache, page, dst)
			})
		}
		info, err := save()
		for errors.Is(err, backend.ErrNoPlace) { // a mark went: there is one less
			info, err = save()
		}
		s.post(func() {
			if x != nil {
				x.saved = max(x.saved, n)
				s.prefixes.unpin(x)
			}
			d.saving = nil
			s.finish(w, info, err)
		})
	})
}

// states are what is to be saved of the states of a prefix, or stays on disk, up to n
// tokens.
func (s *Scheduler) states(x *prefix, disk *session.Hit, n int) (list []session.States) {
	if !s.disk.store.States() {
		return nil
	}
	add := func(y session.States) {
		same := func(old session.States) bool { return old.End == y.End }
		if y.From <= y.End && !slices.ContainsFunc(list, same) {
			list = append(list, y)
		}
	}
	if x != nil {
		for _, p := range x.cache.Places() {
			end := min(p.End, n)
			add(session.States{From: p.From, End: end, Bytes: x.cache.StatesBytes(backend.Place{From: p.From, End: end}), Export: func(dst []byte) error {
				return s.engine.ExportStates(s.disk.ctx, x.cache, backend.Place{From: p.From, End: end}, dst)
			}})
		}
	}
	if disk != nil && disk.Tokens == disk.End && disk.End <= n { // of these tokens, not of others that begin alike
		add(session.States{From: disk.From, End: disk.End, Bytes: disk.StatesBytes(), Export: func([]byte) error {
			return errors.New("its states are in memory no more")
		}})
	}
	slices.SortFunc(list, func(a, b session.States) int { return a.End - b.End })
	return list
}

// finish says what came of a save.
func (s *Scheduler) finish(w *save, info session.Info, err error) {
	w.ended = true
	switch {
	case err == nil:
		s.tally(func(c *Counters) { c.SessionSaves++ })
	case errors.Is(err, session.ErrShort), s.disk.ctx.Err() != nil:
	default:
		s.tally(func(c *Counters) { c.SessionFailures++ })
		s.o.Note(fmt.Sprintf("a session of %d tokens is not saved: %v", len(w.Tokens), err))
	}
	for _, c := range w.waiters {
		c <- saved{info, err}
	}
}

// forgets is how long it counts how fast pages came from disk: where that was too slow
// none come, and nothing shows that the disk, or the device, has less to do by now.
const forgets = 10 * time.Minute

// pays reports whether to have so many bytes from disk takes less than to compute the
// tokens that they are of, as far as either was measured of late.
func (s *Scheduler) pays(bytes int64, tokens int) bool {
	r := &s.rates
	if r.restore == 0 || r.row == 0 || s.now().Sub(r.restored) > forgets {
		return true
	}
	return float64(bytes)*r.restore < r.row*float64(tokens)
}

// came notes that so many bytes are in a cache that was asked for then: read, checked, and
// handed over between forwards.
func (s *Scheduler) came(bytes int64, asked time.Time) {
	r, now := &s.rates, s.now()
	second := now.Sub(asked).Seconds() / float64(max(bytes, 1))
	if r.restore == 0 || now.Sub(r.restored) > forgets {
		r.restore = second
	} else {
		r.restore += (second - r.restore) / 4
	}
	r.restored = now
}

// paysOf reports whether it will pay to have a prefix on disk.
func (s *Scheduler) paysOf(x *prefix) bool {
	bytes := int64(len(x.tokens)) * int64(x.cache.PageBytes()) / backend.PageTokens
	if places := x.cache.Places(); len(places) > 0 {
		bytes += int64(x.cache.StatesBytes(places[len(places)-1]))
	}
	return s.pays(bytes, len(x.tokens))
}

// saveFirst reports whether a request should wait, as what would have to go for it is
// not on disk yet; then it is saved first.
func (s *Scheduler) saveFirst(j *job) bool {
	d := &s.disk
	x := s.prefixes.victim()
	if d.store == nil || x == nil || !s.unsaved(x) || !s.paysOf(x) {
		return false
	}
	w := d.saving
	if x.pins == 0 || w == nil {
		w = saveOf(x)
		d.waiting = slices.Insert(d.waiting, 0, w)
	}
	j.waits = func() bool { return !w.ended }
	return true
}

// restore reports whether a request should wait, as the beginning of its prompt comes
// from disk.
func (s *Scheduler) restore(ctx context.Context, j *job) bool {
	d := &s.disk
	if d.store == nil || s.o.Prefixes < 0 || j.lookedUp || j.tellsPrompt() {
		return false
	}
	j.lookedUp = true
	tokens := j.wanted()
	h := s.hit(j.request.Salt, tokens)
	if h == nil {
		return false
	}
	b := s.beginning(j, tokens)
	if d.store.States() {
		// States begin anew. What memory has the tokens of it keeps as it is.
		if _, n := s.prefixes.peek(j.request.Salt, tokens[:h.Tokens]); n == h.Tokens {
			return false
		}
		if b.cache != nil {
			b = beginning{n: b.cache.Reach(b.n)}
		}
	}
	if s.kept(h.Tokens)-b.n < backend.PageTokens || !s.pays(h.Bytes(0), h.Tokens) {
		return false
	}
	l := d.loads[h.Key()]
	if l == nil {
		c := s.roomFor(ctx, j, b, h.Tokens)
		if c == nil {
			j.lookedUp = j.waits == nil
			return j.waits != nil
		}
		l = s.load(j, h, c)
	}
	j.waits = func() bool { return !l.ended }
	return true
}

// hit is what the store has of some tokens, of which at least one is to be run. States go
// back to few places, of which the last ones may have none where a prompt may be cut.
func (s *Scheduler) hit(salt string, tokens []int32) *session.Hit {
	if !s.disk.store.States() {
		return s.disk.store.Find(salt, tokens)
	}
	for n := len(tokens) - 1; ; {
		h := s.disk.store.Find(salt, tokens[:n/s.step()*s.step()])
		if h == nil {
			return nil
		}
		if n = h.Tokens / s.step() * s.step(); h.Cut(n) {
			return h
		}
	}
}

// roomFor makes a cache for so many tokens, that begins with the whole pages of what is
// there; nil where there is no memory, or where j must wait for what has to go.
func (s *Scheduler) roomFor(ctx context.Context, j *job, b beginning, n int) *model.Cache {
	for {
		pages := b.n / backend.PageTokens * backend.PageTokens
		if pages == 0 {
			b.cache = nil
		}
		c, err := s.takeCache(ctx, b.cache, pages, n, 1, n)
		if err == nil {
			return c
		}
		var lacks *backend.MemoryError
		if !errors.As(err, &lacks) || s.saveFirst(j) || !s.prefixes.evict() {
			return nil
		}
		if b.prefix != nil && b.prefix.gone { // what it begins with comes from disk, too
			b = beginning{}
		}
	}
}

// load reads keys into a cache, and makes a prefix of it.
func (s *Scheduler) load(j *job, h *session.Hit, c *model.Cache) *load {
	d, l := &s.disk, new(load)
	x := &prefix{salt: j.request.Salt, owner: j.request.Owner, tokens: slices.Clone(j.wanted()[:h.Tokens]), saved: h.Tokens, cache: c}
	d.loads[h.Key()] = l
	asked, from := s.now(), c.Base()/backend.PageTokens
	d.all.Go(func() {
		err := d.store.Load(d.ctx, h, from, session.Into{
			Room:   func(n int) ([][]byte, error) { return s.engine.RoomCache(d.ctx, c, n) },
			Filled: c.Filled,
			Put:    func(pages ...[]byte) error { return s.engine.ImportCache(d.ctx, c, pages...) },
			States: func(states []byte) error {
				return s.engine.ImportStates(d.ctx, c, backend.Place{From: h.From, End: h.End}, h.Tokens, states)
			},
		})
		s.post(func() {
			delete(d.loads, h.Key())
			l.ended = true
			if err != nil {
				s.engine.FreeCache(c)
				s.tally(func(c *Counters) { c.SessionFailures++ })
				return
			}
			s.tally(func(c *Counters) { c.SessionLoads++ })
			s.came(h.Bytes(from), asked)
			s.prefixes.put(x)
		})
	})
	return l
}

// closeDisk ends what is read and written, and says so to those that wait.
func (s *Scheduler) closeDisk() {
	s.disk.all.Wait() // the loop's context has ended, and theirs with it
	s.takePosted()
	for _, w := range s.disk.waiting {
		s.finish(w, session.Info{}, ErrClosed)
	}
	s.disk.waiting = nil
}

// await waits for what the loop, or a save, sends.
func await[T any](ctx context.Context, s *Scheduler, c <-chan T) (v T, err error) {
	select {
	case v = <-c:
		return v, nil
	case <-ctx.Done():
		return v, context.Cause(ctx)
	case <-s.finished:
	}
	select {
	case v = <-c:
		return v, nil
	default:
		return v, ErrClosed
	}
}

// SaveSession returns once the last that is known of a session is on disk. A request
// with a name (Request.Session) is saved when it ends: this waits for that.
//
// Errors: ErrNoSessions, session.ErrUnknown, ErrClosed, ctx's, or what kept it from being
// saved.
func (s *Scheduler) SaveSession(ctx context.Context, owner, name string) (session.Info, error) {
	d := &s.disk
	if d.store == nil {
		return session.Info{}, ErrNoSessions
	}
	c := make(chan saved, 1)
	s.post(func() {
		for _, w := range append(slices.Clone(d.waiting), d.saving) {
			if w != nil && w.Owner == owner && w.Name == name {
				w.waiters = append(w.waiters, c)
				return
			}
		}
		info, err := d.store.Get(owner, name)
		c <- saved{info, err}
	})
	v, err := await(ctx, s, c)
	if err == nil {
		err = v.err
	}
	return v.info, err
}

// SaveSessions saves all that is kept and is not on disk, what was used last first, as
// long as ctx lasts.
func (s *Scheduler) SaveSessions(ctx context.Context) error {
	d := &s.disk
	if d.store == nil {
		return nil
	}
	all := make(chan []chan saved, 1)
	s.post(func() {
		for e := s.prefixes.order.Back(); e != nil; e = e.Prev() {
			if x := e.Value.(*prefix); s.unsaved(x) {
				d.waiting = append(d.waiting, saveOf(x))
			}
		}
		var list []chan saved
		for _, w := range append(slices.Clone(d.waiting), d.saving) {
			if w != nil {
				c := make(chan saved, 1)
				w.waiters = append(w.waiters, c)
				list = append(list, c)
			}
		}
		all <- list
	})
	list, err := await(ctx, s, all)
	for _, c := range list {
		v, late := await(ctx, s, c)
		if late != nil {
			return late
		}
		if v.err != nil && !errors.Is(v.err, session.ErrShort) {
			err = v.err
		}
	}
	return err
}

// KeepsSessions reports whether there is a store of sessions.
func (s *Scheduler) KeepsSessions() bool { return s.disk.store != nil }

// Sessions lists what an owner has on disk.
func (s *Scheduler) Sessions(owner string) ([]session.Info, error) {
	if s.disk.store == nil {
		return nil, ErrNoSessions
	}
	return s.disk.store.List(owner), nil
}

// DeleteSession removes a session from disk, and what is kept of it in memory.
//
// Errors: ErrNoSessions, session.ErrUnknown, ErrClosed, ctx's, or what the disk said.
func (s *Scheduler) DeleteSession(ctx context.Context, owner, name string) error {
	d := &s.disk
	if d.store == nil {
		return ErrNoSessions
	}
	pending, ended := make(chan [][]int32, 1), make(chan saved, 1)
	s.post(func() {
		var tokens [][]int32
		s.unseal(owner, name)
		d.waiting = slices.DeleteFunc(d.waiting, func(w *save) bool {
			mine := w.Owner == owner && w.Name == name
			if mine {
				tokens = append(tokens, w.Tokens)
				s.finish(w, session.Info{}, session.ErrUnknown)
			}
			return mine
		})
		// One that is being saved is there once that has ended, and would come back.
		if w := d.saving; w != nil && w.Owner == owner && w.Name == name {
			w.waiters = append(w.waiters, ended)
		} else {
			ended <- saved{}
		}
		pending <- tokens
	})
	texts, err := await(ctx, s, pending)
	if err == nil {
		_, err = await(ctx, s, ended)
	}
	if err != nil {
		return err
	}
	tokens, err := d.store.Delete(owner, name)
	switch {
	case err == nil:
		texts = append(texts, tokens)
	case len(texts) == 0 || !errors.Is(err, session.ErrUnknown):
		return err
	}
	done := make(chan struct{}, 1)
	s.post(func() {
		s.forget(owner, texts)
		done <- struct{}{}
	})
	_, err = await(ctx, s, done)
	return err
}

// forget drops the prefixes of an owner that continue texts, or are the beginnings of
// some.
func (s *Scheduler) forget(owner string, texts [][]int32) {
	var gone []*prefix
	for e := s.prefixes.order.Front(); e != nil; e = e.Next() {
		x := e.Value.(*prefix)
		for _, text := range texts {
			n := decoder.CommonPrefix(x.tokens, text)
			if x.owner == owner && n > 0 && n >= min(s.wholePages(len(x.tokens)), s.wholePages(len(text))) {
				gone = append(gone, x)
				break
			}
		}
	}
	for _, x := range gone {
		s.prefixes.remove(x)
	}
}
