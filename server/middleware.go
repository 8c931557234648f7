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
	id, key  string
	run      *run
	events   *events // the stream that answers it
	model    *Model
	releases []func() // give models back
}

// done gives back what a request was lent.
func (r *record) done() {
	for _, release := range r.releases {
		release()
	}
}

type recordKey struct{}

func recordOf(r *http.Request) *record {
	rec, _ := r.Context().Value(recordKey{}).(*record)
	if rec == nil {
		rec = &record{}
	}
	return rec
}

// watched is a ResponseWriter that knows whether a header was written. From then on a
// client has some time to read: streams renew it with each event.
type watched struct {
	http.ResponseWriter
	status int // 0: not yet
	time   time.Duration
}

// WriteHeader implements http.ResponseWriter.
func (w *watched) WriteHeader(status int) {
	w.begin(status)
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *watched) Write(p []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

func (w *watched) begin(status int) {
	if w.status != 0 {
		return
	}
	w.status = status
	// Where there are no deadlines, as in a test's recorder, nobody has to be waited for.
	http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.time))
}

// Unwrap is for http.ResponseController.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// statusGone is the status, in logs and metrics, of a client that left.
const statusGone = 499

// ServeHTTP implements http.Handler: it is around all routes.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	out := &watched{ResponseWriter: w, time: s.o.WriteTime}
	rec := &record{id: requestID(r.Header.Get("X-Request-Id"))}
	r = r.WithContext(context.WithValue(r.Context(), recordKey{}, rec))
	defer rec.done()
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
		d, e := speaks(r), errorOf(err)
		status = d.status(e)
		if r.Context().Err() != nil {
			status = statusGone
		}
		if out.status == 0 {
			writeError(out, d, e, rec.id)
		}
	}
	s.metrics.answered(rec.model, name, status)
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
			if stream := recordOf(r).events; stream != nil && stream.begun {
				stream.fail(errorOf(err))
			}
		}
	}()
	if err := checkHeader(r); err != nil {
		return "", err
	}
	if err := s.permitted(r); err != nil {
		return "", err
	}
	return s.answer(w, r)
}

// checkHeader refuses a header that is too long. One that is far too long the HTTP
// library refuses, in its own words.
func checkHeader(r *http.Request) error {
	n := len(r.RequestURI)
	for name, values := range r.Header {
		for _, v := range values {
			n += len(name) + len(v)
		}
	}
	if n > maxHeader {
		return newError(http.StatusRequestHeaderFieldsTooLarge, typeInvalid, "header_too_large", "the header has %d bytes: want at most %d", n, maxHeader)
	}
	return nil
}

// log writes a request's line: nothing that was asked or answered is in it.
func (s *Server) log(r *http.Request, rec *record, name string, status int, took time.Duration, err error) {
	level := slog.LevelInfo
	if status >= 500 {
		level = slog.LevelWarn
	} else if name == pageName {
		level = slog.LevelDebug // a dozen files of a visit
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
	// Not LogAttrs, which looks for the line of the program that logs: nobody prints it.
	line := slog.NewRecord(time.Now(), level, "request", 0)
	line.AddAttrs(attrs...)
	s.o.Log.Handler().Handle(r.Context(), line)
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
	if s.pool.isDraining() {
		return drainingError()
	}
	if st := g.model.Scheduler.State(); st.Running+st.Waiting == 0 {
		g.model.busySince.Store(time.Now().UnixNano())
	}
	rec := recordOf(r)
	rec.run, g.owner, g.id = g, rec.key, rec.id
	return g.start(r.Context())
}

// ended notes how a request ended.
func (s *Server) ended(r *http.Request, g *run, err error) {
	s.metrics.ended(g, err)
	if err == nil {
		s.seal(r, g)
	}
}
