package server

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

type privateKey struct{}

// withPrivate marks connections that no web page can make: those of a Unix socket.
func withPrivate(ctx context.Context, c net.Conn) context.Context {
	if c.LocalAddr().Network() == "unix" {
		return context.WithValue(ctx, privateKey{}, true)
	}
	return ctx
}

// permitted refuses what a web page of somebody else may have sent: requests for a
// name that is not ours (DNS rebinding), and from another origin.
func (s *Server) permitted(r *http.Request) error {
	if r.Context().Value(privateKey{}) == nil && !s.ours(r.Host) {
		return newError(http.StatusForbidden, typePermission, "host_not_allowed", "the server is not called %s: see windrow serve --host", shortName(r.Host))
	}
	if err := s.origins.Check(r); err != nil {
		return newError(http.StatusForbidden, typePermission, "origin_not_allowed", "requests of web pages of other origins are refused")
	}
	return nil
}

// ours reports whether a Host header names this server. An address does: rebinding
// takes a name.
func (s *Server) ours(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return true
	}
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	for _, h := range s.o.Hosts {
		if strings.EqualFold(h, name) {
			return true
		}
	}
	return false
}
