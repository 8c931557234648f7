package server

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"

	"windrow/hub"
)

// shareRoute finds what gives other machines the models of the cache; nil: it is another
// path, or nothing is shared. Both need a key.
func (s *Server) shareRoute(r *http.Request) *route {
	if s.o.Share == nil {
		return nil
	}
	path := r.URL.EscapedPath()
	if digest, ok := strings.CutPrefix(path, "/blob/"); ok {
		return &route{name: "share-blob", get: func(w http.ResponseWriter, r *http.Request) error {
			return s.blob(w, r, hub.Digest(digest))
		}}
	}
	if rest, ok := strings.CutPrefix(path, "/manifest/"); ok {
		return &route{name: "share-manifest", get: func(w http.ResponseWriter, r *http.Request) error {
			at := strings.LastIndexByte(rest, '/')
			revision, err := url.PathUnescape(rest[at+1:])
			if at < 0 || err != nil {
				return notShared()
			}
			m, err := s.o.Share.Manifest(rest[:at], revision)
			if err != nil {
				return shareError(err)
			}
			w.Header().Set("Content-Type", "application/json")
			return json.NewEncoder(w).Encode(m)
		}}
	}
	return nil
}

func notShared() error {
	return newError(http.StatusNotFound, typeNotFound, "not_found", "no shared model has it")
}

func shareError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return notShared()
	}
	return err
}

// blob sends a file, or a range of it.
func (s *Server) blob(w http.ResponseWriter, r *http.Request, digest hub.Digest) error {
	f, err := s.o.Share.Open(digest)
	if err != nil {
		return shareError(err)
	}
	defer f.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(&renewed{w, http.NewResponseController(w), s.o.WriteTime}, r, "", time.Time{}, f)
	return nil
}

// renewed gives a client time to read with each write: a file may take hours.
type renewed struct {
	http.ResponseWriter
	control *http.ResponseController
	time    time.Duration
}

// Write implements io.Writer.
func (w *renewed) Write(p []byte) (int, error) {
	w.control.SetWriteDeadline(time.Now().Add(w.time))
	return w.ResponseWriter.Write(p)
}
