package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"
)

// record is what is known of a request for its line in the log.
type record struct {
	id, key string
	run     *run
}

type recordKey struct{}

func recordOf(r *http.Request) *record {
	rec, _ := r.Context().Value(recordKey{}).(*record)
	if rec == nil {
		rec = &record{}
	}
	return rec
}

// watched is a ResponseWriter that knows whether a header was written.
type watched struct {
	http.ResponseWriter
	status int // 0: not yet
}

// WriteHeader implements http.ResponseWriter.
func (w *watched) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *watched) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// statusGone is the status, in logs and metrics, of a client that left.
const statusGone = 499

// ServeHTTP implements http.Handler: it is around all routes.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	out := &watched{ResponseWriter: w}
	rec := &record{id: requestID(r.Header.Get("X-Request-Id"))}
	r = r.WithContext(context.WithValue(r.Context(), recordKey{}, rec))
	h := out.Header()
	h.Set("X-Request-Id", rec.id)
	h.Set("Request-Id", rec.id)
	h.Set("X-Content-Type-Options", "nosniff")
	name, err := s.safely(out, r)
	if errors.Is(err, http.ErrAbortHandler) {
		panic(http.ErrAbortHandler)
	}
	status := out.status
	if err != nil {
		e := errorOf(err)
		status = e.status
		if r.Context().Err() != nil {
			status = statusGone
		}
		if out.status == 0 {
			writeError(out, e)
		}
	}
	s.metrics.answered(name, status)
	s.log(r, rec, name, status, time.Since(began), err)
}

// safely answers a request, and makes an error of a panic.
func (s *Server) safely(w *watched, r *http.Request) (name string, err error) {
	defer func() {
		switch p := recover(); {
		case p == nil:
		case p == http.ErrAbortHandler:
			err = http.ErrAbortHandler
		default:
			s.o.Log.Error("panic", "id", recordOf(r).id, "what", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
			err = newError(http.StatusInternalServerError, typeServer, "internal_error", "the server failed; its log has request %s", recordOf(r).id)
			if w.status == http.StatusOK && w.Header().Get("Content-Type") == "text/event-stream" {
				newEventsGoingOn(w).fail(err)
			}
		}
	}()
	if err := s.permitted(r); err != nil {
		return "", err
	}
	return s.answer(w, r)
}

// newEventsGoingOn goes on with events whose header is out.
func newEventsGoingOn(w http.ResponseWriter) *events {
	e := newEvents(w)
	e.begun = true
	return e
}

// log writes a request's line: nothing that was asked or answered is in it.
func (s *Server) log(r *http.Request, rec *record, name string, status int, took time.Duration, err error) {
	level := slog.LevelInfo
	if status >= 500 {
		level = slog.LevelWarn
	}
	if !s.o.Log.Enabled(r.Context(), level) {
		return
	}
	if name == "" {
		name = "none"
	}
	attrs := []slog.Attr{slog.String("id", rec.id), slog.String("route", name), slog.Int("status", status), slog.Float64("ms", milliseconds(took))}
	if rec.key != "" {
		attrs = append(attrs, slog.String("key", rec.key))
	}
	if g := rec.run; g != nil && len(g.choices) > 0 {
		u, c := g.usage(), g.choices[0]
		attrs = append(attrs, slog.String("mode", string(c.mode)), slog.Int("prompt", u.PromptTokens), slog.Int("cached", u.PromptTokensDetails.CachedTokens),
			slog.Int("generated", u.CompletionTokens), slog.String("finish", string(c.reason)))
		if !c.first.IsZero() {
			attrs = append(attrs, slog.Float64("ttft_ms", milliseconds(c.first.Sub(g.began))))
		}
		if n := c.summary.Stats.Forwards; n > 0 {
			attrs = append(attrs, slog.Float64("tokens_per_forward", float64(c.tokens)/float64(n)))
		}
	}
	if err != nil {
		if e := errorOf(err); e.Code != nil {
			attrs = append(attrs, slog.String("code", *e.Code))
		}
		if status == http.StatusInternalServerError {
			attrs = append(attrs, slog.String("error", err.Error()))
		}
	}
	s.o.Log.LogAttrs(r.Context(), level, "request", attrs...)
}

// requestID is the client's name for its request, if it is one of 1 to 64 harmless
// characters, else a new one.
func requestID(given string) string {
	if len(given) < 1 || len(given) > 64 {
		return newID("req_")
	}
	for i := range len(given) {
		c := given[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.') {
			return newID("req_")
		}
	}
	return given
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// begin submits a request.
func (s *Server) begin(r *http.Request, g *run) error {
	if s.draining.Load() {
		return drainingError()
	}
	if st := s.model.Scheduler.State(); st.Running+st.Waiting == 0 {
		s.busySince.Store(time.Now().UnixNano())
	}
	rec := recordOf(r)
	rec.run, g.owner = g, rec.key
	return g.start(r.Context())
}

// ended notes how a request ended.
func (s *Server) ended(r *http.Request, g *run, err error) { s.metrics.ended(g, err) }
