package server

import (
	"cmp"
	"crypto/tls"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"windrow/hub"
)

// Options say how a server answers. The zero value serves everybody who can connect.
type Options struct {
	// Keys are those that are let in; nil: everybody.
	Keys *Keys
	// TLS encrypts connections that are not made at a Unix socket; nil: none is.
	TLS *tls.Config
	// Hosts are names by which clients may call the server, besides localhost and
	// addresses.
	Hosts []string
	// AnyModel answers whatever model is asked for.
	AnyModel bool
	// StrictFields refuses fields that are not known, in place of naming them.
	StrictFields bool
	// OpenMetrics lets /metrics, /props and /slots be read without a key.
	OpenMetrics bool
	// NoUI leaves the web page out.
	NoUI bool
	// KeepAlive is after how long without an event a stream shows that it lives (15 s).
	KeepAlive time.Duration
	// WriteTime is how long a client may take to read what is written to it (30 s).
	WriteTime time.Duration
	// Connections is how many clients are served at a time (1,024).
	Connections int
	// Version is this program, for the probes; "": the first model says it.
	Version string
	// Seal has what a conversation's next prompt will begin with computed while nobody
	// waits.
	Seal bool
	// Share gives those who bring a key the models of a cache; nil: nobody.
	Share *hub.Share
	// Log gets one line a request, without content; nil: nothing is logged.
	Log *slog.Logger
}

// Server answers HTTP requests; it is an http.Handler. See also [Server.Serve].
type Server struct {
	pool      *Pool
	o         Options
	keys      atomic.Pointer[Keys] // nil: everybody is let in
	metrics   *metrics
	rendering chan struct{} // holds one for each prompt that is being made
	origins   *http.CrossOriginProtection
}

// New makes a server of an open model.
func New(m *Model, o Options) *Server {
	o.Version = cmp.Or(o.Version, m.Version)
	return NewOf(poolOf(m), o)
}

// NewOf makes a server of several models, or of one that is not loaded yet.
func NewOf(p *Pool, o Options) *Server {
	if o.KeepAlive <= 0 {
		o.KeepAlive = 15 * time.Second
	}
	if o.WriteTime <= 0 {
		o.WriteTime = writeTime
	}
	if o.Connections <= 0 {
		o.Connections = 1024
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		pool: p, o: o, metrics: newMetrics(p), origins: http.NewCrossOriginProtection(),
		rendering: make(chan struct{}, runtime.GOMAXPROCS(0)),
	}
	s.keys.Store(o.Keys)
	return s
}

// SetKeys lets in others from now on; nil: everybody. Requests that run go on.
func (s *Server) SetKeys(k *Keys) { s.keys.Store(k) }

// handler answers a request. An error is for the client, unless something was written.
type handler func(w http.ResponseWriter, r *http.Request) error

// route is a path's handler by method.
type route struct {
	name     string // for metrics: never a client's text
	get      handler
	post     handler
	remove   handler // DELETE
	anyone   bool    // needs no key
	metrical bool    // needs none with OpenMetrics
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
	case "/messages":
		return &route{name: "messages", post: s.anthropicMessages}
	case "/messages/count_tokens":
		return &route{name: "count_tokens", post: s.countTokens}
	case "/responses":
		return &route{name: "responses", post: s.responses}
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
	if at := s.sessionRoute(api); at != nil {
		return at
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
	case "/openapi.json":
		return &route{name: "openapi", get: s.openAPI, anyone: true}
	case "/api/version":
		return &route{name: "ollama-version", get: s.ollamaVersion}
	case "/api/tags":
		return &route{name: "ollama-tags", get: s.ollamaTags}
	case "/api/show":
		return &route{name: "ollama-show", post: s.ollamaShow}
	case "/apply-template":
		return &route{name: "apply-template", post: s.applyTemplate}
	}
	return nil
}

// answer routes a request: after the checks of who asks.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) (name string, err error) {
	at := s.pageRoute(r)
	if at == nil {
		at = s.shareRoute(r)
	}
	if at == nil {
		at = s.route(r.URL.Path)
	}
	if at != nil {
		name = at.name
	}
	// Clients ask without a key whether somebody is there.
	there := r.Method == http.MethodHead && name == "root"
	if at == nil || !at.anyone && !(at.metrical && s.o.OpenMetrics) && !there {
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
	if at.remove != nil {
		methods += ", DELETE"
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		h = at.get
	case http.MethodDelete:
		h = at.remove
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
// its model, by the name that it gives, as take finds it.
func (s *Server) accept(w http.ResponseWriter, r *http.Request, f *fields, model string) (*Model, error) {
	if err := s.ignored(w, f); err != nil {
		return nil, err
	}
	return s.take(r, model)
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
