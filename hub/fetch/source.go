package fetch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"windrow/hub"
)

// source gives revisions and their files.
type source interface {
	// revision finds the commit that a branch or tag is at.
	revision(ctx context.Context, repo, revision string) (commit string, gated bool, err error)
	// listing lists the files of a commit, checked.
	listing(ctx context.Context, repo, commit string) ([]hub.File, error)
	// address is where a file's content is.
	address(repo, commit string, f hub.File) *url.URL
	// agrees compares what headers say of a file with what the listing said.
	agrees(h http.Header, commit string, f hub.File) error
	// refusal says what an answer without bytes means.
	refusal(repo, revision string, e *statusError) error
	// name is the source for people, and for manifests.
	name() string
}

// The bounds of what a hub may answer.
const (
	maxRevisionJSON = 32 << 20
	maxListingJSON  = 32 << 20
	maxListingPages = 1000
	maxListedFiles  = 50000
)

// hubSource is the Hub, or a mirror of it.
type hubSource struct {
	*client
	try func(ctx context.Context, what string, do func() error) error
}

func (h *hubSource) name() string { return h.base.String() }

// revision implements source.
func (h *hubSource) revision(ctx context.Context, repo, revision string) (string, bool, error) {
	u := join(h.base, "api", "models", repo, "revision", url.PathEscape(revision)) // a branch's slashes are part of its name
	var answer struct {
		SHA   string `json:"sha"`
		Gated any    `json:"gated"`
		// Private models are given away as gated ones are.
		Private bool `json:"private"`
	}
	_, err := h.json(ctx, u, maxRevisionJSON, &answer)
	if err != nil {
		return "", false, err
	}
	if !hub.IsCommit(answer.SHA) {
		return "", false, permanent("%s: says commit %.60q: want 40 hexadecimal digits", where(u), answer.SHA)
	}
	if hub.IsCommit(revision) && answer.SHA != revision {
		return "", false, permanent("%s: says commit %s", where(u), answer.SHA)
	}
	gated := answer.Private || answer.Gated != nil && answer.Gated != false
	return answer.SHA, gated, nil
}

// listing implements source.
func (h *hubSource) listing(ctx context.Context, repo, commit string) (files []hub.File, err error) {
	u := join(h.base, "api", "models", repo, "tree", commit)
	u.RawQuery = "recursive=true"
	first, seen := *u, map[string]bool{}
	for page := 0; ; page++ {
		if seen[u.String()] || page == maxListingPages {
			return nil, permanent("%s: the listing's pages do not end", where(u))
		}
		seen[u.String()] = true
		var entries []treeEntry
		header, err := h.json(ctx, u, maxListingJSON, &entries)
		if err != nil {
			return nil, err
		}
		some, err := listed(entries)
		if err != nil {
			return nil, permanent("%s: %w", where(u), err)
		}
		if files = append(files, some...); len(files) > maxListedFiles {
			return nil, permanent("%s: more than %d files", where(u), maxListedFiles)
		}
		next := nextPage(header)
		if next == "" {
			break
		}
		if u, err = u.Parse(next); err != nil || origin(u) != origin(&first) || u.Path != first.Path {
			return nil, permanent("%s: the listing's next page is elsewhere: %.80q", where(&first), next)
		}
	}
	if err := hub.CheckListing(files); err != nil {
		return nil, permanent("%s: %w", where(u), err)
	}
	return files, nil
}

// treeEntry is an entry of a listing, as the Hub's API has it.
type treeEntry struct {
	Type string `json:"type"`
	Path string `json:"path"`
	Size int64  `json:"size"`
	OID  string `json:"oid"`
	LFS  *struct {
		OID  string `json:"oid"`
		Size int64  `json:"size"`
	} `json:"lfs"`
}

// listed makes files of entries. Those that are none are left out; where a name leads out
// of the repository the whole listing is refused.
func listed(entries []treeEntry) (files []hub.File, err error) {
	for _, e := range entries {
		if e.Type != "file" {
			continue
		}
		f := hub.File{Path: e.Path, Size: e.Size, Hash: hub.Digest(e.OID)}
		if e.LFS != nil {
			f.Size, f.Hash = e.LFS.Size, hub.Digest(strings.TrimPrefix(e.LFS.OID, "sha256:"))
			if len(f.Hash) != 64 || e.Size != f.Size {
				return nil, fmt.Errorf("%.80q: size %d and large file of %d bytes with hash %.80q do not agree", e.Path, e.Size, f.Size, e.LFS.OID)
			}
		} else if len(f.Hash) != 40 {
			return nil, fmt.Errorf("%.80q: hash %.80q: want 40 hexadecimal digits", e.Path, e.OID)
		}
		files = append(files, f)
	}
	return files, hub.CheckListing(files)
}

// parseListing reads one page of a listing.
func parseListing(data []byte) ([]hub.File, error) {
	var entries []treeEntry
	if err := json.Unmarshal(data, &entries); err != nil {
		return nil, err
	}
	return listed(entries)
}

// nextPage is the address of a Link header's rel="next".
func nextPage(h http.Header) string {
	for _, header := range h.Values("Link") {
		for part := range strings.SplitSeq(header, ",") {
			target, params, ok := strings.Cut(strings.TrimSpace(part), ">")
			if ok && strings.HasPrefix(target, "<") && strings.Contains(strings.ReplaceAll(params, " ", ""), `rel="next"`) {
				return target[1:]
			}
		}
	}
	return ""
}

// json asks for an object, again and again where that can help.
func (h *hubSource) json(ctx context.Context, u *url.URL, most int64, into any) (header http.Header, err error) {
	err = h.try(ctx, where(u), func() error {
		data, head, err := h.small(ctx, u, most)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(data, into); err != nil {
			return permanent("%s: is no answer of a hub: %w", where(u), err)
		}
		header = head
		return nil
	})
	return header, err
}

// small reads an answer of at most so many bytes.
func (c *client) small(ctx context.Context, u *url.URL, most int64) ([]byte, http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*headerTime)
	defer cancel()
	resp, at, err := c.get(ctx, u, nil, nil)
	if err != nil {
		return nil, nil, err
	}
	if err := asked(resp, at); err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	if encoding := resp.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, nil, permanent("%s: the answer is packed as %.20q, which was not asked for", where(at), encoding)
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "text/html" {
		return nil, nil, permanent("%s: answers with a web page: is it a hub?", where(at))
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err != nil {
		return nil, nil, dialError(ctx, at, err)
	}
	if int64(len(data)) > most {
		return nil, nil, permanent("%s: an answer of more than %d bytes", where(at), most)
	}
	return data, resp.Header, nil
}

// address implements source.
func (h *hubSource) address(repo, commit string, f hub.File) *url.URL {
	return join(h.base, append([]string{repo, "resolve", commit}, pathParts(f.Path)...)...)
}

// join adds parts to an address; slashes in them are escaped where they are to stay.
func join(base *url.URL, parts ...string) *url.URL {
	root := *base
	root.Path = strings.TrimSuffix(root.Path, "/") + "/"
	return root.JoinPath(parts...)
}

// pathParts escapes the parts of a path for an address.
func pathParts(p string) (parts []string) {
	for part := range strings.SplitSeq(p, "/") {
		parts = append(parts, url.PathEscape(part))
	}
	return parts
}

// agrees implements source: X-Linked-Etag is of the file's own content; ETag is where it
// has the form of a hash.
func (h *hubSource) agrees(header http.Header, commit string, f hub.File) error {
	if c := header.Get("X-Repo-Commit"); c != "" && c != commit {
		return permanent("%s: is of commit %.60q: want %s", f.Path, c, commit)
	}
	for _, name := range []string{"X-Linked-Etag", "X-Linked-Size"} {
		got, want := strings.Trim(strings.TrimPrefix(header.Get(name), "W/"), `"`), string(f.Hash)
		if name == "X-Linked-Size" {
			want = fmt.Sprint(f.Size)
		}
		if got != "" && got != want {
			return permanent("%s: %s is %.80q: the listing has %s", f.Path, name, got, want)
		}
	}
	return nil
}

// refusal implements source.
func (h *hubSource) refusal(repo, revision string, e *statusError) error {
	set := "HF_TOKEN is not set"
	switch {
	case h.token.secret != "" && h.base.Scheme != "https":
		set = "the token is not sent without https"
	case h.token.secret != "":
		set = "with the token that is set"
	case h.token.withheld:
		set = "HF_HUB_DISABLE_IMPLICIT_TOKEN keeps the token back"
	}
	switch {
	case e.code == "GatedRepo" || e.status == http.StatusForbidden:
		return permanent("%s is gated, or the token may not read it: ask for access at %s, and set HF_TOKEN (status %d, %s)", repo, join(h.base, repo), e.status, set)
	case e.code == "RevisionNotFound":
		return permanent("%s has no revision %s at %s", repo, revision, h.base)
	case e.status == http.StatusUnauthorized:
		return permanent("%s does not exist at %s, or is not public: check the name, or set HF_TOKEN (status 401, %s)", repo, h.base, set)
	case e.code == "EntryNotFound":
		return permanent("%s: a file of the listing is not there (status %d)", e.where, e.status)
	case e.status == http.StatusNotFound:
		return permanent("%s at revision %s does not exist at %s, or is not public (status 404, %s)", repo, revision, h.base, set)
	case e.status == http.StatusUnavailableForLegalReasons, e.status == http.StatusGone:
		return permanent("%s is not given out by %s (status %d)", repo, h.base, e.status)
	}
	return e
}

// told puts what an answer means into its error.
func told(s source, repo, revision string, err error) error {
	var e *statusError
	if errors.As(err, &e) {
		return s.refusal(repo, revision, e)
	}
	return err
}
