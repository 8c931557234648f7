package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

// writeTime is how long a client may take to read what is written to it, where
// Options do not say.
const writeTime = 30 * time.Second

// events writes server-sent events. Its header goes out with the first.
type events struct {
	w       http.ResponseWriter
	control *http.ResponseController
	time    time.Duration // for a write
	begun   bool
	err     error // of a write: nothing more is written

	// What APIs say each in their own way. ping keeps the connection open, fail tells
	// a client that follows a stream of an error, end is the mark after the last event.
	ping func()
	fail func(*apiError)
	end  func()
}

// newEvents is a stream of the chat API's manners: others set their own.
func (s *Server) newEvents(w http.ResponseWriter) *events {
	e := &events{w: w, control: http.NewResponseController(w), time: s.o.WriteTime}
	// One newline, no empty line: some clients take that for an event without data.
	e.ping = func() { e.line(": ping\n") }
	e.fail = func(err *apiError) { e.send(errorBody{err}) } // and no mark of the end
	e.end = func() { e.line("data: [DONE]\n\n") }
	return e
}

// begin writes the header, once.
func (e *events) begin() {
	if e.begun {
		return
	}
	e.begun = true
	h := e.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx holds events back otherwise
	e.w.WriteHeader(http.StatusOK)
}

// send writes a value as an event: one line, and an empty one.
func (e *events) send(v any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // our own types: cannot happen
	}
	e.line("data: " + string(data) + "\n\n")
}

// named writes a value as an event that has a name.
func (e *events) named(name string, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // as in send
	}
	e.line("event: " + name + "\ndata: " + string(data) + "\n\n")
}

func (e *events) line(s string) {
	e.begin()
	if e.err != nil {
		return
	}
	e.err = e.control.SetWriteDeadline(time.Now().Add(e.time))
	if errors.Is(e.err, http.ErrNotSupported) {
		e.err = nil // a test's recorder
	}
	if e.err == nil {
		_, e.err = e.w.Write([]byte(s))
	}
	if e.err == nil {
		e.err = e.control.Flush()
	}
}

// stream follows a run in the chat API's manner.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, g *run, begin func(*events), show func(*events, update), finish func(*events)) error {
	return s.streamTo(s.newEvents(w), r, g, begin, show, finish)
}

// streamTo follows a run and has show write its updates; finish writes what comes after
// the last, before the mark of the end. An error before the first byte is returned,
// for an ordinary reply; a later one is an event.
func (s *Server) streamTo(out *events, r *http.Request, g *run, begin func(*events), show func(*events, update), finish func(*events)) error {
	ctx := r.Context()
	recordOf(r).events = out
	ping := time.NewTicker(s.o.KeepAlive)
	defer ping.Stop()
	begun, left := false, len(g.choices)
	updates, stop := g.follow(ctx)
	defer stop()
	for left > 0 {
		select {
		case <-ctx.Done():
			if out.begun { // half of the connection may be left, on which to say so
				out.fail(errorOf(ctx.Err()))
			}
			return ctx.Err()
		case <-ping.C:
			out.ping()
		case u := <-updates:
			if u.err != nil && !out.begun {
				return u.err
			}
			if u.err != nil {
				out.fail(errorOf(u.err))
				return u.err
			}
			if len(u.events) == 0 && len(u.steps) == 0 && len(u.prompt) == 0 && !u.done {
				continue // a chunk of the prompt, or a token without text yet
			}
			if !begun {
				begin(out)
				begun = true
			}
			show(out, u)
			if u.done {
				left--
			}
			ping.Reset(s.o.KeepAlive)
		}
		if out.err != nil {
			return out.err
		}
	}
	finish(out)
	out.end()
	return out.err
}

// collect follows a run to its end.
func (g *run) collect(r *http.Request, add func(update)) error {
	updates, stop := g.follow(r.Context())
	defer stop()
	for left := len(g.choices); left > 0; {
		select {
		case <-r.Context().Done():
			return r.Context().Err()
		case u := <-updates:
			if u.err != nil {
				return u.err
			}
			add(u)
			if u.done {
				left--
			}
		}
	}
	return nil
}
