package fetch

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"windrow/hub"
)

// PullFrom fetches a model from another Windrow that shares its cache. The hashes are that
// server's, unless the cache has a manifest of the same commit; o.Token is a key of it.
func PullFrom(ctx context.Context, cache *hub.Cache, address string, name hub.Name, o Options) (*Result, error) {
	o = o.withDefaults()
	base, err := ParsePeer(address)
	if err != nil {
		return nil, err
	}
	c := newClient(base, o.Token, o.Agent, o.Connections, o.roots)
	defer c.close()
	c.noFollow, c.plainToken = true, true
	p := newPull(cache, name, o, c)
	p.source = &peerSource{client: c, try: p.try}
	return p.do(ctx)
}

// ParsePeer reads a peer's address: HOST:PORT, which means https unless it is this
// machine, or a URL.
func ParsePeer(address string) (*url.URL, error) {
	if !strings.Contains(address, "://") {
		host, port, err := net.SplitHostPort(address)
		if err != nil || host == "" || port == "" {
			return nil, fmt.Errorf("%.100q: want HOST:PORT, http://HOST:PORT or https://HOST:PORT", address)
		}
		scheme := "https"
		if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
			scheme = "http"
		}
		address = scheme + "://" + address
	}
	return parseEndpoint(address)
}

// peerSource is another Windrow.
type peerSource struct {
	*client
	try      func(ctx context.Context, what string, do func() error) error
	manifest *hub.Manifest
}

func (s *peerSource) name() string { return s.base.String() }

// revision implements source.
func (s *peerSource) revision(ctx context.Context, repo, revision string) (string, bool, error) {
	u := join(s.base, "manifest", repo, url.PathEscape(revision))
	err := s.try(ctx, where(u), func() error {
		data, _, err := s.small(ctx, u, maxListingJSON)
		if err != nil {
			return err
		}
		m, err := hub.ParseManifest(data)
		if err != nil {
			return permanent("%s: %w", where(u), err)
		}
		if m.Repo != repo || hub.IsCommit(revision) && m.Commit != revision || len(m.Files) == 0 {
			return permanent("%s: answers with %s at %s", where(u), m.Repo, m.Commit)
		}
		s.manifest = m
		return nil
	})
	if err != nil {
		return "", false, err
	}
	return s.manifest.Commit, s.manifest.Gated, nil
}

// listing implements source.
func (s *peerSource) listing(ctx context.Context, repo, commit string) ([]hub.File, error) {
	if s.manifest == nil || s.manifest.Commit != commit {
		if _, _, err := s.revision(ctx, repo, commit); err != nil {
			return nil, err
		}
	}
	return s.manifest.Files, nil
}

// address implements source.
func (s *peerSource) address(_, _ string, f hub.File) *url.URL {
	return join(s.base, "blob", string(f.Hash))
}

// agrees implements source.
func (s *peerSource) agrees(http.Header, string, hub.File) error { return nil }

// refusal implements source.
func (s *peerSource) refusal(repo, revision string, e *statusError) error {
	switch e.status {
	case http.StatusUnauthorized:
		return permanent("%s wants a key: give it one of its own (status 401)", s.base)
	case http.StatusNotFound:
		return permanent("%s does not share %s at %s: windrow serve --share shares what its pull has verified and is not gated", s.base, repo, revision)
	}
	return e
}
