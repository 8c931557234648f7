package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"windrow/backend"
	"windrow/schedule"
	"windrow/session"
)

// Sessions are the conversations that a model keeps on disk; a *schedule.Scheduler has
// these. Owners see their own alone.
type Sessions interface {
	// SaveSession returns when the session is durable; session.ErrUnknown where there is
	// none of that name.
	SaveSession(ctx context.Context, owner, name string) (session.Info, error)
	Sessions(owner string) ([]session.Info, error)
	DeleteSession(ctx context.Context, owner, name string) error
}

// maxSessionName bounds the name of a session.
const maxSessionName = 64

// goodSession reports whether a session may have a name: letters, digits, '.', '_', '-'.
func goodSession(name string) bool {
	for _, r := range name {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r)) {
			return false
		}
	}
	return name != "" && len(name) <= maxSessionName
}

// readSession reads the name under which a conversation is to be saved.
func readSession(f *fields) string {
	if !f.has("session") {
		return ""
	}
	name := f.text("session")
	if f.err == nil && !goodSession(name) {
		f.bad("session", "want 1 to %d letters, digits, '.', '_' or '-'", maxSessionName)
	}
	return name
}

// checkSession refuses a session where none can be kept.
func (r *run) checkSession() error {
	switch {
	case r.params.session == "":
	case r.model.Sessions == nil:
		return unsupported("session", "a session, as the server keeps none on disk: it")
	case r.params.choices > 1:
		return badValue("session", "want n to be 1 beside it: a session goes on in one way")
	}
	return nil
}

// The wire format of sessions.
type (
	sessionReply struct {
		Name   string `json:"name"`
		Object string `json:"object"`
		// Named is false where nobody gave it the name.
		Named  bool   `json:"named"`
		Tokens int    `json:"tokens"`
		Bytes  int64  `json:"bytes"`
		Used   string `json:"used"`
	}
	sessionList struct {
		Object string         `json:"object"`
		Data   []sessionReply `json:"data"`
	}
	sessionDeleted struct {
		Name    string `json:"name"`
		Object  string `json:"object"`
		Deleted bool   `json:"deleted"`
	}
)

func replyOf(i session.Info) sessionReply {
	return sessionReply{i.Name, "session", i.Named, i.Tokens, i.Bytes, i.Used.UTC().Format(time.RFC3339)}
}

// sessionRoute finds what answers a path below /sessions; nil: nothing does.
func (s *Server) sessionRoute(path string) *route {
	if path == "/sessions" {
		return &route{name: "sessions", get: s.sessions}
	}
	rest, ok := strings.CutPrefix(path, "/sessions/")
	if !ok {
		return nil
	}
	name, action, deep := strings.Cut(rest, "/")
	switch {
	case !goodSession(name):
		return nil
	case !deep:
		return &route{name: "session", remove: s.deleteSession(name)}
	case action == "save":
		return &route{name: "save_session", post: s.saveSession(name)}
	}
	return nil
}

// kept are the sessions of a model, the first or ?model=NAME, for who has a key.
func (s *Server) kept(r *http.Request) (list Sessions, owner string, err error) {
	m, err := s.take(r, r.URL.Query().Get("model"))
	if err != nil {
		return nil, "", err
	}
	if m.Sessions == nil {
		return nil, "", sessionError(schedule.ErrNoSessions)
	}
	return m.Sessions, recordOf(r).key, nil
}

// sessions answers GET /sessions.
func (s *Server) sessions(w http.ResponseWriter, r *http.Request) error {
	kept, owner, err := s.kept(r)
	if err != nil {
		return err
	}
	list, err := kept.Sessions(owner)
	if err != nil {
		return sessionError(err)
	}
	reply := sessionList{Object: "list", Data: []sessionReply{}}
	for _, i := range list {
		reply.Data = append(reply.Data, replyOf(i))
	}
	writeJSON(w, http.StatusOK, reply)
	return nil
}

// saveSession answers POST /sessions/{name}/save: once it is on disk.
func (s *Server) saveSession(name string) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		kept, owner, err := s.kept(r)
		if err != nil {
			return err
		}
		info, err := kept.SaveSession(r.Context(), owner, name)
		if errors.Is(err, session.ErrUnknown) { // most likely it was too short to be kept
			err = fmt.Errorf("%w: one is kept from %d tokens on, prompt and answer together", err, backend.PageTokens)
		}
		if err != nil {
			return sessionError(err)
		}
		writeJSON(w, http.StatusOK, replyOf(info))
		return nil
	}
}

// deleteSession answers DELETE /sessions/{name}.
func (s *Server) deleteSession(name string) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		kept, owner, err := s.kept(r)
		if err != nil {
			return err
		}
		if err := kept.DeleteSession(r.Context(), owner, name); err != nil {
			return sessionError(err)
		}
		writeJSON(w, http.StatusOK, sessionDeleted{name, "session", true})
		return nil
	}
}

// sessionError says what is wrong with a session in the API's words.
func sessionError(err error) error {
	var full *session.FullError
	switch {
	case errors.Is(err, schedule.ErrNoSessions):
		return newError(http.StatusNotImplemented, typeInvalid, codeUnsupported, "the server keeps no sessions on disk")
	case errors.Is(err, session.ErrUnknown):
		return newError(http.StatusNotFound, typeNotFound, "session_not_found", "%v", err)
	case errors.Is(err, session.ErrShort):
		return newError(http.StatusBadRequest, typeInvalid, "session_too_short", "%v", err)
	case errors.As(err, &full):
		return newError(http.StatusInsufficientStorage, typeServer, "session_disk_full", "%v", full)
	case errors.Is(err, session.ErrClosed):
		return drainingError()
	case errors.Is(err, schedule.ErrClosed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return newError(http.StatusInternalServerError, typeServer, "session_failed", "%v", err)
}
