package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// errWhole says that the server sent the whole file where a range was asked for.
var errWhole = errors.New("the server knows no ranges")

// fetch asks for a run's bytes, and writes them as they come.
func (t *transfer) fetch(ctx context.Context, r *run, buf []byte) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t.mu.Lock()
	r.cancel = cancel
	t.mu.Unlock()
	stalled := time.AfterFunc(t.o.times.stall+headerTime, func() { cancel(errStalled) })
	defer stalled.Stop()
	asked := time.Now()
	body, err := t.open206(ctx, r)
	if err != nil {
		return ending(ctx, err)
	}
	defer body.Close()
	r.answered = time.Since(asked)
	stalled.Reset(t.o.times.stall)
	part, pos := r.f.part, r.begin
	for pos < r.end {
		i := int(pos / part.pieceSize)
		most := min(int64(len(buf)), int64(i)*part.pieceSize+part.length(i)-pos, r.end-pos)
		if t.limiter != nil {
			most = min(most, int64(t.limiter.Burst()))
		}
		n, err := body.Read(buf[:most])
		if n > 0 {
			stalled.Reset(t.o.times.stall)
			t.fetched.Add(int64(n))
			r.s.fetched.Add(int64(n))
			r.got.Add(int64(n))
			if err := part.write(i, buf[:n], r.s.bit); err != nil {
				return err
			}
			pos += int64(n)
			part.letHash(ctx)
			if t.limiter != nil {
				if err := t.limiter.WaitN(ctx, n); err != nil {
					return ending(ctx, err)
				}
			}
		}
		if err != nil && pos < r.end {
			if errors.Is(err, io.EOF) {
				err = fmt.Errorf("the answer ended after %d of %d bytes", pos-r.begin, r.end-r.begin)
			}
			return ending(ctx, err)
		}
	}
	if n, _ := body.Read(buf[:1]); n > 0 {
		return fmt.Errorf("the answer goes on after its %d bytes", r.end-r.begin)
	}
	return nil
}

// ending is the reason why a run was cut, where there is one.
func ending(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// open206 asks for a run's bytes and checks that the answer is of exactly these.
func (t *transfer) open206(ctx context.Context, r *run) (io.ReadCloser, error) {
	f, s := r.f, r.s
	t.mu.Lock()
	u, cached := f.at, f.at != nil && !s.peer()
	whole := f.whole
	t.mu.Unlock()
	if !cached {
		u = s.source.address(t.repo, t.commit, f.File)
	}
	header := http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", r.begin, r.end-1)}}
	if whole {
		delete(header, "Range")
	}
	for name, value := range f.header {
		header.Set(name, value)
	}
	t.requests.Add(1)
	resp, at, err := s.client.get(ctx, u, header, func(h http.Header) error {
		if cached {
			return nil // it was compared when the source redirected here
		}
		return s.source.agrees(h, t.commit, f.File)
	})
	if err != nil {
		return nil, err
	}
	if err := asked(resp, at); err != nil {
		var status *statusError
		if errors.As(err, &status) {
			signed := cached || origin(at) != origin(s.client.base)
			status.cached = signed && expired(status.status)
		}
		return nil, err
	}
	refuse := func(format string, args ...any) (io.ReadCloser, error) {
		resp.Body.Close()
		if s.peer() {
			return nil, permanent("%s: "+format, append([]any{where(at)}, args...)...)
		}
		return nil, fmt.Errorf("%s: "+format, append([]any{where(at)}, args...)...)
	}
	if encoding := resp.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return refuse("the answer is packed as %.20q, which was not asked for", encoding)
	}
	all := r.begin == 0 && r.end == f.Size
	if resp.StatusCode == http.StatusOK {
		switch {
		case !all && s.peer():
			resp.Body.Close()
			return nil, permanent("%s: answers with the whole file: want a range of it", where(at))
		case !all:
			resp.Body.Close()
			return nil, t.takeWhole(f)
		case resp.ContentLength >= 0 && resp.ContentLength != f.Size:
			return refuse("answers with %d bytes: want %d", resp.ContentLength, f.Size)
		}
	} else {
		begin, last, total, ok := contentRange(resp.Header.Get("Content-Range"))
		switch {
		case !ok || begin != r.begin || last != r.end-1 || total != f.Size:
			return refuse("answers with range %.60q: want bytes %d-%d/%d", resp.Header.Get("Content-Range"), r.begin, r.end-1, f.Size)
		case resp.ContentLength >= 0 && resp.ContentLength != r.end-r.begin:
			return refuse("answers with %d bytes: want %d", resp.ContentLength, r.end-r.begin)
		}
	}
	if at != u && !s.peer() {
		t.mu.Lock()
		f.at = at
		t.mu.Unlock()
	}
	return resp.Body, nil
}

// expired reports whether a status can mean that an address with a signature is too old.
func expired(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone:
		return true
	}
	return false
}

// takeWhole makes one connection take all of a file whose server knows no ranges, from
// its beginning on.
func (t *transfer) takeWhole(f *file) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	f.whole = true
	for r := range t.runs {
		if r.f == f && r.cancel != nil {
			r.cancel(errWhole)
		}
	}
	return errWhole
}

// watch looks at the rates: it opens connections while that helps, replaces slow ones,
// writes journals, and tells of progress.
func (t *transfer) watch(ctx context.Context) {
	tick := time.NewTicker(t.o.times.tick)
	defer tick.Stop()
	var (
		last     = t.main.fetched.Load()
		was      = time.Now()
		recorded = was
		rate     float64
		window   []sample
	)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, bytes, mains := time.Now(), t.fetched.Load(), t.main.fetched.Load()
		speed := float64(mains-last) / now.Sub(was).Seconds()
		last, was = mains, now
		window = append(window, sample{now, bytes})
		for len(window) > 1 && now.Sub(window[0].at) > 10*time.Second {
			window = window[1:]
		}
		t.mu.Lock()
		if t.main.runs >= t.target && t.target < t.o.Connections && speed > rate*1.1 && now.After(t.resume) {
			t.target++
			t.wake.Broadcast()
		}
		rate = max(rate*0.98, speed) // what was reached is forgotten slowly
		t.replaceSlow(now)
		var active []*part
		for _, f := range t.files {
			if f.state == fileActive && f.part != nil {
				active = append(active, f.part)
			}
		}
		t.mu.Unlock()
		if now.Sub(recorded) >= t.o.times.record {
			recorded = now
			for _, p := range active {
				p.record(true) // a full disk is noticed by who writes the content
			}
		}
		t.progress(rateOf(window), false)
	}
}

// sample is how many bytes there were at a time.
type sample struct {
	at    time.Time
	bytes int64
}

func rateOf(window []sample) float64 {
	first, last := window[0], window[len(window)-1]
	if seconds := last.at.Sub(first.at).Seconds(); seconds > 0 {
		return float64(last.bytes-first.bytes) / seconds
	}
	return 0
}

// replaceSlow cuts runs that come at less than a tenth of what is usual: what is left of
// them goes to another connection. The caller has the lock.
func (t *transfer) replaceSlow(now time.Time) {
	usual := 0.0 // of the quickest supplier
	for _, s := range append([]*supplier{t.main}, t.peers...) {
		if !s.out {
			usual = max(usual, s.usual)
		}
	}
	if t.limiter != nil {
		return // it is we who are slow
	}
	for r := range t.runs {
		if age := now.Sub(r.started); age > t.o.times.slow && r.cancel != nil {
			if float64(r.got.Load())/age.Seconds() < usual/10 {
				r.cancel(errSlow)
			}
		}
	}
}

// progress tells how far it is.
func (t *transfer) progress(rate float64, verifying bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var total int64
	for _, f := range t.files {
		total += f.Size
	}
	done := min(t.recorded.Load(), total)
	t.o.Event(Event{Event: "progress", Done: done, Total: total, Rate: rate, Connections: len(t.runs), Verifying: verifying || done == total && !t.settled()})
}

// fetchPiece asks for a piece once more, into memory.
func (t *transfer) fetchPiece(ctx context.Context, f *file, i int, buf []byte) ([]byte, error) {
	begin := int64(i) * f.part.pieceSize
	buf = buf[:f.part.length(i)]
	var err error
	for try := range maxTries {
		if try > 0 {
			if err := pause(ctx, min(t.o.times.backoff<<(try-1), t.o.times.maxBackoff)); err != nil {
				return nil, err
			}
		}
		err = func() error {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			stalled := time.AfterFunc(t.o.times.stall+headerTime, func() { cancel(errStalled) })
			defer stalled.Stop()
			body, err := t.open206(ctx, &run{s: t.main, f: f, first: i, n: 1, begin: begin, end: begin + int64(len(buf))})
			if err != nil {
				return ending(ctx, err)
			}
			defer body.Close()
			n, err := io.ReadFull(body, buf)
			t.fetched.Add(int64(n))
			return err
		}()
		if err == nil || isPermanent(err) || ctx.Err() != nil || errors.Is(err, errWhole) {
			return buf, err
		}
		t.mu.Lock()
		f.at = nil
		t.mu.Unlock()
	}
	return nil, err
}

// pause waits.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
