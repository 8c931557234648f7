// Package hubtest is for tests: a hub of models on this machine, with the paths of the
// Hub's API, that lies where a test wants it to.
package hubtest

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Commit is a commit's number that begins with the digits given.
func Commit(digits string) string { return (digits + strings.Repeat("0", 40))[:40] }

// Hub is a hub that listens. Large files are redirected to a place of their own, with a
// signature, as the Hub does.
type Hub struct {
	*httptest.Server
	// Files is a server at another address that large files are redirected to.
	Files *httptest.Server

	mu    sync.Mutex
	repos map[string]*Repo
	// Lie, where set, answers a request in place of the hub, or calls next.
	lie      func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc)
	requests []Request
	sent     int64
}

// Repo is a repository.
type Repo struct {
	Refs    map[string]string            // commits by branch
	Commits map[string]map[string][]byte // files by commit and path
	Gated   any
	// Large is the size from which on a file's hash is its SHA-256, and it is redirected.
	Large int
	// Page is how many entries a page of the listing has; 0: all.
	Page int
	// Listing, where set, changes the listing of a commit.
	Listing func([]map[string]any) []map[string]any

	hashes sync.Map // of large contents, by their first byte's address and their length
}

// Request is one that was made.
type Request struct {
	Host, Path, Query, Range, Authorization string
}

// New starts a hub, that ends with the test; with TLS where tls is set.
func New(t testing.TB, tls bool) *Hub {
	h := &Hub{repos: map[string]*Repo{}}
	start := httptest.NewServer
	if tls {
		start = httptest.NewTLSServer
	}
	h.Server = start(http.HandlerFunc(h.serve))
	h.Files = start(http.HandlerFunc(h.serve))
	t.Cleanup(h.Server.Close)
	t.Cleanup(h.Files.Close)
	return h
}

// Add adds a repository of one commit, at main.
func (h *Hub) Add(repo, commit string, files map[string][]byte) *Repo {
	r := &Repo{Refs: map[string]string{"main": commit}, Commits: map[string]map[string][]byte{commit: files}, Large: 1000}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.repos[repo] = r
	return r
}

// Lie has f answer requests.
func (h *Hub) Lie(f func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lie = f
}

// Requests are those that were made.
func (h *Hub) Requests() []Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.requests)
}

// Sent is how many bytes of files were handed to connections.
func (h *Hub) Sent() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sent
}

// Forget begins the counts anew.
func (h *Hub) Forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests, h.sent = nil, 0
}

func (h *Hub) serve(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.requests = append(h.requests, Request{r.Host, r.URL.Path, r.URL.RawQuery, r.Header.Get("Range"), r.Header.Get("Authorization")})
	lie := h.lie
	h.mu.Unlock()
	if lie != nil {
		lie(w, r, h.answer)
		return
	}
	h.answer(w, r)
}

// answer is what an honest hub says.
func (h *Hub) answer(w http.ResponseWriter, r *http.Request) {
	path := r.URL.EscapedPath()
	if rest, ok := strings.CutPrefix(path, "/api/models/"); ok {
		if repo, rev, ok := strings.Cut(rest, "/revision/"); ok {
			h.revision(w, repo, rev)
			return
		}
		if repo, commit, ok := strings.Cut(rest, "/tree/"); ok {
			h.tree(w, r, repo, commit)
			return
		}
	}
	if repo, rest, ok := strings.Cut(strings.TrimPrefix(path, "/"), "/resolve/"); ok {
		commit, name, _ := strings.Cut(rest, "/")
		h.file(w, r, repo, commit, name)
		return
	}
	if rest, ok := strings.CutPrefix(path, "/signed/"); ok {
		h.signed(w, r, rest)
		return
	}
	http.NotFound(w, r)
}

func (h *Hub) repo(w http.ResponseWriter, name string) *Repo {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.repos[name]
	if r == nil {
		w.Header().Set("X-Error-Code", "RepoNotFound")
		http.Error(w, "{}", http.StatusUnauthorized)
	}
	return r
}

func (h *Hub) revision(w http.ResponseWriter, name, rev string) {
	r := h.repo(w, name)
	if r == nil {
		return
	}
	rev, _ = url.PathUnescape(rev)
	commit := rev
	if r.Commits[rev] == nil {
		commit = r.Refs[rev]
	}
	if commit == "" {
		w.Header().Set("X-Error-Code", "RevisionNotFound")
		http.Error(w, "{}", http.StatusNotFound)
		return
	}
	gated := r.Gated
	if gated == nil {
		gated = false
	}
	json.NewEncoder(w).Encode(map[string]any{"id": name, "sha": commit, "gated": gated, "private": false})
}

// Hash is the hash that a listing gives of a content.
func (r *Repo) Hash(content []byte) (digest string, large bool) {
	if len(content) >= r.Large {
		type key struct {
			first *byte
			n     int
		}
		if known, ok := r.hashes.Load(key{&content[0], len(content)}); ok {
			return known.(string), true
		}
		digest = fmt.Sprintf("%x", sha256.Sum256(content))
		r.hashes.Store(key{&content[0], len(content)}, digest)
		return digest, true
	}
	return fmt.Sprintf("%x", sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(content)), content...))), false
}

func (h *Hub) tree(w http.ResponseWriter, q *http.Request, name, commit string) {
	r := h.repo(w, name)
	if r == nil {
		return
	}
	files := r.Commits[commit]
	var list []map[string]any
	for path, content := range files {
		digest, large := r.Hash(content)
		e := map[string]any{"type": "file", "path": path, "size": len(content), "oid": digest}
		if large {
			e["oid"] = strings.Repeat("e", 40) // the pointer's
			e["lfs"] = map[string]any{"oid": digest, "size": len(content), "pointerSize": 130}
		}
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b map[string]any) int { return strings.Compare(a["path"].(string), b["path"].(string)) })
	if r.Listing != nil {
		list = r.Listing(list)
	}
	if r.Page > 0 {
		var at int
		fmt.Sscan(q.URL.Query().Get("cursor"), &at)
		rest := list[min(at, len(list)):]
		list = rest[:min(r.Page, len(rest))]
		if len(rest) > r.Page {
			w.Header().Set("Link", fmt.Sprintf("<%s%s?recursive=true&cursor=%d>; rel=\"next\"", h.URL, q.URL.Path, at+r.Page))
		}
	}
	json.NewEncoder(w).Encode(list)
}

func (h *Hub) file(w http.ResponseWriter, q *http.Request, name, commit, path string) {
	r := h.repo(w, name)
	if r == nil {
		return
	}
	unescaped, _ := url.PathUnescape(path)
	content, ok := r.Commits[commit][unescaped]
	if !ok {
		w.Header().Set("X-Error-Code", "EntryNotFound")
		http.Error(w, "", http.StatusNotFound)
		return
	}
	digest, large := r.Hash(content)
	w.Header().Set("X-Repo-Commit", commit)
	if large {
		w.Header().Set("X-Linked-Etag", `"`+digest+`"`)
		w.Header().Set("X-Linked-Size", fmt.Sprint(len(content)))
		w.Header().Set("Location", h.Files.URL+"/signed/"+name+"/"+commit+"/"+path+"?Signature=SECRETSIGNATURE&X-Amz-Expires=3600")
		w.WriteHeader(http.StatusFound)
		return
	}
	w.Header().Set("ETag", `"`+digest+`"`)
	h.content(w, q, content)
}

func (h *Hub) signed(w http.ResponseWriter, q *http.Request, rest string) {
	parts := strings.SplitN(rest, "/", 4)
	if len(parts) < 4 || q.URL.Query().Get("Signature") != "SECRETSIGNATURE" {
		http.Error(w, "", http.StatusForbidden)
		return
	}
	h.mu.Lock()
	r := h.repos[parts[0]+"/"+parts[1]]
	h.mu.Unlock()
	path, _ := url.PathUnescape(parts[3])
	content, ok := r.Commits[parts[2]][path]
	if !ok {
		http.NotFound(w, q)
		return
	}
	h.content(w, q, content)
}

// content sends a file, or a range of it.
func (h *Hub) content(w http.ResponseWriter, q *http.Request, content []byte) {
	http.ServeContent(&counting{w, h}, q, "", time.Time{}, bytes.NewReader(content))
}

// counting counts what is sent.
type counting struct {
	http.ResponseWriter
	h *Hub
}

// Write implements io.Writer.
func (c *counting) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.h.mu.Lock()
	c.h.sent += int64(n)
	c.h.mu.Unlock()
	return n, err
}
