package server

import (
	"net/http"
	"strings"

	"windrow/page"
)

// pageRoute finds what answers a browser: the page at / where the request's Accept
// names HTML, and its assets. They need no key: the page asks for it. nil: it is a
// request of the API.
func (s *Server) pageRoute(r *http.Request) *route {
	if s.o.NoUI {
		return nil
	}
	of := func(h http.HandlerFunc) *route {
		return &route{name: pageName, anyone: true, get: func(w http.ResponseWriter, r *http.Request) error {
			h(w, r)
			return nil
		}}
	}
	switch {
	case r.URL.Path == "/" && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		if acceptsHTML(r) {
			return of(page.Index)
		}
	case page.Has(r.URL.Path):
		return of(page.Asset)
	}
	return nil
}

// pageName is the page's name in metrics and in the log.
const pageName = "page"

// acceptsHTML reports whether a request's Accept names HTML, as browsers' do. */* does
// not count: it is what clients of the API send.
func acceptsHTML(r *http.Request) bool {
	for _, list := range r.Header.Values("Accept") {
		for item := range strings.SplitSeq(list, ",") {
			kind, q, _ := strings.Cut(item, ";")
			if strings.EqualFold(strings.TrimSpace(kind), "text/html") && strings.TrimSpace(q) != "q=0" {
				return true
			}
		}
	}
	return false
}
