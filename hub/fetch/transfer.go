package fetch

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"math/rand/v2"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"windrow/hub"
)

// transfer fetches files over several connections. Files begin in their order; a
// connection takes the next run of pieces that nobody has, of the first file that has
// one.
type transfer struct {
	o       Options
	client  *client
	source  source
	main    *supplier   // of client and source
	peers   []*supplier // who have some of the contents, too
	cache   *hub.Cache
	repo    string
	commit  string
	limiter *rate.Limiter // nil: no limit
	done    func(*file) error
	// lacks looks once more, under the lock, whether a file has to be fetched; nil: it has.
	stillLacks func(ctx context.Context, f hub.File) (bool, error)

	requests atomic.Int64
	fetched  atomic.Int64
	recorded atomic.Int64 // bytes of all files that are on disk

	mu      sync.Mutex
	wake    *sync.Cond
	files   []*file
	target  int // connections that may ask now
	runs    map[*run]bool
	opening bool
	resume  time.Time // nobody asks before
	said    map[string]bool
	err     error
	cancel  context.CancelCauseFunc
}

// The states of a file.
const (
	fileWaiting = iota
	fileActive
	fileDone
)

// maxTries is how often is tried without a new byte.
const maxTries = 10

// maxRun is how many pieces a connection takes in a row at most: few enough that they are
// spread.
const maxRun = 16

// file is a file that is fetched.
type file struct {
	hub.File
	state  int
	part   *part
	unlock func()
	// reserved is closed when no more blocks are taken ahead: that changes the file's time.
	reserved chan struct{}
	busy     []bool      // by piece: a run has it
	tries    []int       // by piece: without a new byte
	after    []time.Time // by piece: not to be tried before
	hurdles  int         // answers of status 416
	at       *url.URL    // where a redirect led to; nil: ask the source
	whole    bool        // the server knows no ranges: one connection takes all
	newHash  func() hash.Hash
	key      [32]byte
	header   map[string]string // sent with every request
}

// run is what one connection fetches: pieces of a file in a row.
type run struct {
	s          *supplier
	f          *file
	first, n   int
	begin, end int64 // bytes of the file
	got        atomic.Int64
	started    time.Time
	answered   time.Duration // from the request to the answer's first line
	cancel     context.CancelCauseFunc
}

var (
	errStalled = errors.New("no byte came")
	errSlow    = errors.New("the connection is slow")
)

// fileKey names a content in a journal.
func fileKey(d hub.Digest) (key [32]byte) {
	b, _ := hex.DecodeString(string(d))
	copy(key[:], b)
	return key
}

// run fetches all files, and returns when they are in the cache.
func (t *transfer) run(ctx context.Context) error {
	ctx, t.cancel = context.WithCancelCause(ctx)
	defer t.cancel(nil)
	t.wake = sync.NewCond(&t.mu)
	t.main = &supplier{client: t.client, source: t.source}
	t.runs, t.said = map[*run]bool{}, map[string]bool{}
	t.target = min(2, t.o.Connections)
	if t.o.Limit > 0 {
		t.limiter = rate.NewLimiter(rate.Limit(t.o.Limit), limitBurst(t.o.Limit))
	}
	stop := context.AfterFunc(ctx, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.wake.Broadcast()
	})
	defer stop()
	var work sync.WaitGroup
	fail := func(err error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.fail(err)
	}
	for range t.o.Connections {
		work.Go(func() { t.connect(ctx, t.main, &work, fail) })
	}
	t.startPeers(ctx, &work, fail)
	watching, watched := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { t.watch(watching) })
	work.Wait()
	watched()
	watch.Wait()
	for _, f := range t.files {
		f.close()
	}
	t.progress(0, false)
	if t.err != nil {
		return t.err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// fail ends the transfer. The caller has the lock.
func (t *transfer) fail(err error) {
	if t.err == nil {
		t.err = err
	}
	t.cancel(err)
}

// limitBurst is how many bytes may come at once under a limit.
func limitBurst(limit int64) int { return int(min(max(limit/8, 4<<10), 256<<10)) }

// close lets go of a file's part and lock.
func (f *file) close() {
	if f.part != nil {
		f.part.close()
	}
	if f.unlock != nil {
		f.unlock()
		f.unlock = nil
	}
}

// connect is one connection to a supplier: it takes runs until there are none.
func (t *transfer) connect(ctx context.Context, s *supplier, work *sync.WaitGroup, fail func(error)) {
	buf := make([]byte, 256<<10)
	for {
		r, open := t.next(ctx, s)
		switch {
		case open != nil:
			err := t.open(ctx, open)
			t.opened(ctx, open, err, work, fail)
			if err != nil {
				return
			}
		case r == nil:
			return
		default:
			err := t.fetch(ctx, r, buf)
			if err := t.ended(ctx, r, err); err != nil {
				fail(err)
				return
			}
		}
	}
}

// opened notes that a file can be fetched, or is there.
func (t *transfer) opened(ctx context.Context, f *file, err error, work *sync.WaitGroup, fail func(error)) {
	if err != nil {
		fail(err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.opening = false
	t.wake.Broadcast()
	if err != nil {
		return
	}
	if f.part == nil {
		f.state = fileDone // somebody else has fetched it
		return
	}
	f.state = fileActive
	n := f.part.pieces
	f.busy, f.tries, f.after = make([]bool, len(n)), make([]int, len(n)), make([]time.Time, len(n))
	f.reserved = make(chan struct{})
	work.Go(func() {
		defer close(f.reserved)
		if err := f.part.reserve(ctx); err != nil {
			fail(t.explain(f, err))
		}
	})
	work.Go(func() {
		if err := t.finish(ctx, f); err != nil {
			fail(err)
		}
	})
}

// next waits for something to do: a run to fetch, or a file to open; neither: all is
// done.
func (t *transfer) next(ctx context.Context, s *supplier) (*run, *file) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for ctx.Err() == nil && t.err == nil {
		now := time.Now()
		var soon time.Time
		switch {
		case t.settled(), s.out:
			return nil, nil
		case !s.peer() && s.runs >= t.target:
		case !s.peer() && now.Before(t.resume):
			soon = t.resume
		case now.Before(s.after):
			soon = s.after
		default:
			r, later, open := t.choose(now, s)
			switch {
			case r != nil:
				t.runs[r] = true
				s.runs++
				return r, nil
			case open != nil && !t.opening:
				t.opening = true
				return nil, open
			}
			soon = later
		}
		if !soon.IsZero() {
			timer := time.AfterFunc(soon.Sub(now), t.wakeAll)
			t.wake.Wait()
			timer.Stop()
			continue
		}
		t.wake.Wait()
	}
	return nil, nil
}

func (t *transfer) wakeAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wake.Broadcast()
}

// settled reports whether all files are there.
func (t *transfer) settled() bool {
	for _, f := range t.files {
		if f.state != fileDone {
			return false
		}
	}
	return true
}

// choose takes the next run; where there is none, it says when there may be one, and a file that
// can be opened.
func (t *transfer) choose(now time.Time, s *supplier) (r *run, soon time.Time, open *file) {
	for _, f := range t.files {
		if f.state == fileWaiting && open == nil {
			open = f
		}
		if f.state != fileActive || s.peer() && (f.whole || s.lacks[f.Hash]) {
			continue
		}
		first, free := -1, 0
		for i := range f.busy {
			x := f.part.of(i)
			if f.busy[i] || x.have == f.part.length(i) {
				continue
			}
			if f.after[i].After(now) {
				if soon.IsZero() || f.after[i].Before(soon) {
					soon = f.after[i]
				}
				continue
			}
			free++
			if first < 0 {
				first = i
			}
		}
		switch {
		case first < 0, f.whole && t.hasRun(f):
			continue
		case f.whole:
			// What is there came of ranges, or of an answer that broke off.
			if err := f.part.clear(f.newHash); err != nil {
				t.fail(err)
				return nil, soon, nil
			}
			return t.take(s, f, 0, len(f.busy)), time.Time{}, nil
		default:
			return t.take(s, f, first, free), time.Time{}, nil
		}
	}
	return nil, soon, open
}

func (t *transfer) hasRun(f *file) bool {
	for r := range t.runs {
		if r.f == f {
			return true
		}
	}
	return false
}

// take makes a run of a piece and those that follow it.
func (t *transfer) take(s *supplier, f *file, first, free int) *run {
	r := &run{s: s, f: f, first: first, n: 1, started: time.Now()}
	r.begin = int64(first)*f.part.pieceSize + f.part.of(first).have
	most := max(1, min(s.worth(f.part.pieceSize), free/(2*t.o.Connections)))
	if f.whole {
		most = len(f.busy)
	}
	f.busy[first] = true
	for i := first + 1; i < len(f.busy) && r.n < most && !f.busy[i] && f.part.of(i).have == 0; i++ {
		f.busy[i] = true
		r.n++
	}
	r.end = min(int64(first+r.n)*f.part.pieceSize, f.Size)
	return r
}

// worth is how many pieces a run should have at least for the wait for its answer not to
// count: two hundredths of its time. More of them, and the hash, which needs them in their order,
// waits for the first of many runs.
func (s *supplier) worth(pieceSize int64) int {
	if s.usual == 0 {
		return 1
	}
	return int(min(max(1, 50*s.latency.Seconds()*s.usual/float64(pieceSize)), maxRun))
}

// ended gives back what a run did not fetch, and says when it is tried again. An error
// ends the transfer.
func (t *transfer) ended(ctx context.Context, r *run, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.runs, r)
	f, s, now := r.f, r.s, time.Now()
	s.runs--
	for i := r.first; i < r.first+r.n; i++ {
		f.busy[i] = false
	}
	defer t.wake.Broadcast()
	got, took := r.got.Load(), now.Sub(r.started).Seconds()
	if err == nil || got > 0 {
		if rate := float64(got) / max(took, 1e-4); got > 0 && !errors.Is(err, errSlow) {
			if s.usual == 0 {
				s.usual = rate
			}
			s.usual += (rate - s.usual) / 4
			s.latency += (r.answered - s.latency) / 4
		}
	}
	if err == nil {
		for i := r.first; i < r.first+r.n; i++ {
			f.tries[i] = 0
		}
		s.tries = 0
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, errSlow) {
		s.usual /= 2 // perhaps all have become slow
	}
	var status *statusError
	isStatus := errors.As(err, &status)
	if ownFault(err) {
		return t.explain(f, err)
	}
	if s.peer() {
		t.peerEnded(r, got, err)
		return nil
	}
	if isPermanent(err) {
		return err
	}
	if t.helped(f) && !errors.Is(err, errWhole) && (!isStatus || status.status >= 500 || status.busy()) {
		// Peers go on meanwhile: the source is tried for as long as they do.
		s.tries++
		s.after = now.Add(min(t.o.times.backoff<<min(s.tries, 16), t.o.times.maxBackoff))
		if isStatus && status.busy() {
			t.slowDown(f, status, now)
		}
		t.say("retry", f.Path, fmt.Sprintf("%s: %v: asking again", f.Path, err), err.Error())
		return nil
	}
	at := r.first // the piece at which it stands
	for at < r.first+r.n-1 && f.part.of(at).have == f.part.length(at) {
		f.tries[at] = 0
		at++
	}
	switch {
	case isStatus && status.status == 416:
		f.at = nil
		if f.hurdles++; f.hurdles >= 3 {
			return fmt.Errorf("%s: %w, three times, for bytes %d to %d of %d: the server's file is another one", f.Path, err, r.begin, r.end-1, f.Size)
		}
	case isStatus && status.cached:
		f.at = nil // the signature has expired
		f.tries[at]++
		return t.tooOften(f, at, err)
	case isStatus && (status.status == 401 || status.status == 403 || status.status == 404 || status.status == 410 || status.status == 451):
		return t.source.refusal(t.repo, t.commit, status)
	case isStatus && status.busy():
		t.slowDown(f, status, now)
	case errors.Is(err, errWhole):
		return nil // at once, all of it
	}
	if got > 0 {
		f.tries[at] = 0
	}
	f.tries[at]++
	if err := t.tooOften(f, at, err); err != nil {
		return err
	}
	pause := t.o.times.backoff << min(f.tries[at]-1, 16)
	pause = min(pause, t.o.times.maxBackoff)
	pause = pause/2 + rand.N(pause/2+1)
	if errors.Is(err, errSlow) || got > 0 && f.tries[at] == 1 {
		pause = 0 // bytes come: another connection goes on at once
	}
	f.after[at] = now.Add(pause)
	t.say("retry", f.Path, fmt.Sprintf("%s: %v: asking again", f.Path, err), err.Error())
	return nil
}

// tooOften is an error where a piece was tried in vain so often.
func (t *transfer) tooOften(f *file, piece int, err error) error {
	if f.tries[piece] < maxTries {
		return nil
	}
	return fmt.Errorf("%s: no new byte in %d tries: %w", f.Path, maxTries, err)
}

// slowDown obeys a server that wants fewer requests.
func (t *transfer) slowDown(f *file, e *statusError, now time.Time) {
	t.target = max(1, t.target-1)
	if e.wait > 0 {
		if until := now.Add(e.wait); until.After(t.resume) {
			t.resume = until
		}
		t.say("wait", f.Path, fmt.Sprintf("%s wants a pause of %s", e.where, e.wait.Round(time.Second)), "busy")
	}
}

// say tells of an event once for each key. The caller has the lock.
func (t *transfer) say(event, path, text, key string) {
	if t.said[event+key] || len(t.said) > 1000 {
		return
	}
	t.said[event+key] = true
	t.o.Event(Event{Event: event, File: path, Text: text})
}

// explain makes one line of an error that ends the transfer.
func (t *transfer) explain(f *file, err error) error {
	if isNoSpace(err) {
		return t.noSpace(f, err)
	}
	return err
}

// ownFault reports whether an error is of this machine's files, not of the network.
func ownFault(err error) bool {
	var path *os.PathError
	return errors.As(err, &path)
}
