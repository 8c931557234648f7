package server

import (
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
)

// Options say how a server answers. The zero value serves everybody who can connect.
type Options struct {
	// Keys are those that are let in; nil: everybody.
	Keys *Keys
	// Hosts are names by which clients may call the server, besides localhost and
	// addresses.
	Hosts []string
	// AnyModel answers whatever model is asked for.
	AnyModel bool
	// StrictFields refuses fields that are not known, in place of naming them.
	StrictFields bool
	// OpenMetrics lets /metrics, /props and /slots be read without a key.
	OpenMetrics bool
	// KeepAlive is after how long without an event a stream shows that it lives (15 s).
	KeepAlive time.Duration
	// Connections is how many clients are served at a time (1,024).
	Connections int
	// Log gets one line a request, without content; nil: nothing is logged.
	Log *slog.Logger
}

// Server answers HTTP requests; it is an http.Handler. See also [Server.Serve].
type Server struct {
	model     *Model
	o         Options
	metrics   *metrics
	rendering chan struct{} // holds one for each prompt that is being made
	draining  atomic.Bool
	busySince atomic.Int64 // when a request came that found none, in Unix nanoseconds
	origins   *http.CrossOriginProtection
}

// New makes a server of an open model.
func New(m *Model, o Options) *Server {
	if o.KeepAlive <= 0 {
		o.KeepAlive = 15 * time.Second
	}
	if o.Connections <= 0 {
		o.Connections = 1024
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		model: m, o: o, metrics: newMetrics(m), origins: http.NewCrossOriginProtection(),
		rendering: make(chan struct{}, runtime.GOMAXPROCS(0)),
	}
	s.busySince.Store(time.Now().UnixNano())
	return s
}

// handler answers a request. An error is for the client, unless something was written.
type handler func(w http.ResponseWriter, r *http.Request) error

// route is a path's handler by method.
type route struct {
	name     string // for metrics: never a client's text
	get      handler
	post     handler
	anyone   bool // needs no key
	metrical bool // needs none with OpenMetrics
}

// route finds what answers a path; nil: nothing does. /v1 and a final slash may be
// left out or be there.
func (s *Server) route(path string) *route {
	path = strings.TrimSuffix(path, "/")
	api := strings.TrimPrefix(path, "/v1")
	switch api {
	case "/chat/completions":
		return &route{name: "chat", post: s.chat}
	case "/completions":
		return &route{name: "completions", post: s.complete}
	case "/models":
		return &route{name: "models", get: s.models}
	case "/embeddings":
		return &route{name: "embeddings", post: func(http.ResponseWriter, *http.Request) error {
			return newError(http.StatusNotImplemented, typeInvalid, codeUnsupported, "there are no embeddings here: the models generate text")
		}}
	}
	if name, ok := strings.CutPrefix(api, "/models/"); ok {
		return &route{name: "model", get: s.oneModel(name)}
	}
	switch path {
	case "":
		return &route{name: "root", get: s.root}
	case "/health":
		return &route{name: "health", get: s.health, anyone: true}
	case "/ready":
		return &route{name: "ready", get: s.ready, anyone: true}
	case "/props":
		return &route{name: "props", get: s.props, metrical: true}
	case "/slots":
		return &route{name: "slots", get: s.slots, metrical: true}
	case "/metrics":
		return &route{name: "metrics", get: s.metrics.serve, metrical: true}
	case "/tokenize":
		return &route{name: "tokenize", post: s.tokenize}
	case "/detokenize":
		return &route{name: "detokenize", post: s.detokenize}
	case "/apply-template":
		return &route{name: "apply-template", post: s.applyTemplate}
	}
	return nil
}

// answer routes a request: after the checks of who asks.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) (name string, err error) {
	at := s.route(r.URL.Path)
	if at != nil {
		name = at.name
	}
	if at == nil || !at.anyone && !(at.metrical && s.o.OpenMetrics) {
		if err := s.authenticate(r); err != nil && r.Method != http.MethodOptions {
			return name, err
		}
	}
	if at == nil {
		return "", newError(http.StatusNotFound, typeNotFound, "not_found", "there is nothing at this path: see docs/api.md")
	}
	methods := "OPTIONS"
	h := at.post
	if at.get != nil {
		methods += ", GET, HEAD"
	}
	if at.post != nil {
		methods += ", POST"
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		h = at.get
	case http.MethodOptions:
		w.Header().Set("Allow", methods)
		w.WriteHeader(http.StatusNoContent)
		return name, nil
	case http.MethodPost:
	default:
		h = nil
	}
	if h == nil {
		e := newError(http.StatusMethodNotAllowed, typeInvalid, "method_not_allowed", "this path takes %s", methods)
		e.allow = methods
		return name, e
	}
	return name, h(w, r)
}

// accept finishes the reading of a request: what is wrong, what was ignored, and
// whether its model is here.
func (s *Server) accept(w http.ResponseWriter, f *fields, p *params) error {
	if f.err != nil {
		return f.err
	}
	if err := s.ignored(w, f); err != nil {
		return err
	}
	if p.model != "" && p.model != s.model.Name && !s.o.AnyModel {
		return unknownModel(p.model)
	}
	return nil
}

// ignored names the fields that were not used.
func (s *Server) ignored(w http.ResponseWriter, f *fields) error {
	if f.err != nil {
		return f.err
	}
	unknown := f.unknown()
	if len(unknown) > 0 && s.o.StrictFields {
		return badValue(shortName(unknown[0]), "there is no such field")
	}
	const most = 20
	for i, name := range unknown {
		if i == most {
			break
		}
		w.Header().Add("Windrow-Ignored", shortName(name))
	}
	return nil
}
