package fetch

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"windrow/hub"
	"windrow/internal/atomicfile"
)

// PullURL fetches a .gguf file from an address. digest, where not "", is its SHA-256;
// without one nobody vouches for the file, and the cache says so. The model is called
// url/NAME afterwards, NAME being the file's.
func PullURL(ctx context.Context, cache *hub.Cache, address string, digest hub.Digest, o Options) (*Result, error) {
	o = o.withDefaults()
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil {
		// It may hold a password, or a signature.
		return nil, fmt.Errorf("the address is none: want https://HOST/NAME.gguf, without a user")
	}
	u.Fragment = ""
	file := path.Base(u.Path)
	if !strings.HasSuffix(strings.ToLower(file), ".gguf") || hub.CheckPath(file) != nil {
		return nil, fmt.Errorf("%s: want a file whose name ends in .gguf", where(u))
	}
	if digest != "" && (!digest.Valid() || len(digest) != 64) {
		return nil, fmt.Errorf("SHA-256 %.80q: want 64 hexadecimal digits in lower case", digest)
	}
	name := hub.Name{Repo: plainRepo("url", strings.TrimSuffix(file, path.Ext(file))), Revision: hub.DefaultRevision}
	c := newClient(&url.URL{Scheme: u.Scheme, Host: u.Host}, Token{}, o.Agent, o.Connections, o.roots)
	defer c.close()
	p := newPull(cache, name, o, c)
	p.source = &urlSource{u}
	before, _ := cache.Ref(name.Repo, name.Revision)
	if digest != "" {
		p.commit = string(digest[:40])
		if r, err := p.upToDate(before); r != nil || err != nil {
			return r, err
		}
	}
	if o.Offline {
		return p.offline()
	}
	var found *probe
	if err := p.try(ctx, where(u), func() (err error) { found, err = p.probe(ctx, u); return err }); err != nil {
		return nil, told(p.source, name.Repo, name.Revision, err)
	}
	f := &plainFile{hub.File{Path: file, Size: found.size, Hash: digest}, found}
	return p.fetchPlain(ctx, f, before)
}

// plainFile is a file of an address, with what its server said of it.
type plainFile struct {
	hub.File
	*probe
}

// probe is what a server says of a file at an address.
type probe struct {
	size int64
	// validator is a strong ETag or a Last-Modified: by it the rest of a file is asked for;
	// "": there is none.
	validator string
	ranges    bool
}

// probe asks for a file's first byte.
func (p *pull) probe(ctx context.Context, u *url.URL) (*probe, error) {
	resp, at, err := p.client.get(ctx, u, http.Header{"Range": {"bytes=0-0"}}, nil)
	if err != nil {
		return nil, err
	}
	if err := asked(resp, at); err != nil {
		return nil, err
	}
	resp.Body.Close()
	x := &probe{size: resp.ContentLength}
	if resp.StatusCode == http.StatusPartialContent {
		_, _, total, ok := contentRange(resp.Header.Get("Content-Range"))
		if !ok {
			return nil, permanent("%s: answers with range %.60q: want bytes 0-0/SIZE", where(at), resp.Header.Get("Content-Range"))
		}
		x.size, x.ranges = total, true
	}
	if x.size < 1 {
		return nil, permanent("%s: does not say how many bytes the file has", where(at))
	}
	if x.size/p.o.pieceSize >= maxPieces {
		return nil, permanent("%s: says that the file has %d bytes", where(at), x.size)
	}
	x.validator = resp.Header.Get("ETag")
	if x.validator == "" || strings.HasPrefix(x.validator, "W/") {
		x.validator = resp.Header.Get("Last-Modified")
	}
	return x, nil
}

// fetchPlain fetches a file of an address.
func (p *pull) fetchPlain(ctx context.Context, x *plainFile, before string) (*Result, error) {
	f := &file{File: x.File, whole: !x.ranges, newHash: func() hash.Hash { return sha256.New() }}
	f.key = fileKey(x.Hash)
	resumes := true
	if x.Hash == "" {
		// The part is of what the server had then: another validator is another part.
		resumes = x.validator != "" && x.ranges
		f.key = sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%d", p.source.(*urlSource).u, x.validator, x.size))
		if resumes {
			f.header = map[string]string{"If-Range": x.validator}
		}
	}
	p.wants = []hub.File{x.File}
	plan := &Plan{Files: []PlannedFile{{File: x.File, State: "missing"}}, Bytes: x.Size, Missing: x.Size, Free: -1}
	if free, ok := freeSpace(existing(p.cache.Root)); ok {
		plan.Free = free
	}
	if _, err := os.Stat(filepath.Join(p.cache.Parts(), hexKey(f.key)) + ".journal"); err != nil && p.o.CheckGGUF != nil && !p.o.DryRun {
		if err := p.checkAddress(ctx, x.File, p.source.(*urlSource).u); err != nil {
			return nil, err
		}
	}
	p.o.Event(Event{Event: "plan", Name: p.name.String(), Plan: plan})
	if p.o.DryRun {
		return &Result{Name: p.name.String(), Files: 1, Bytes: x.Size, Requests: p.requests.Load()}, nil
	}
	if err := p.room(plan); err != nil {
		return nil, err
	}
	if err := p.cache.Begin(); err != nil {
		return nil, writable(p.cache, err)
	}
	if part := filepath.Join(p.cache.Parts(), hexKey(f.key)); !resumes {
		if os.Remove(part+".journal") == nil {
			p.o.Event(Event{Event: "note", Text: where(p.source.(*urlSource).u) + ": begins anew: the server says nothing by which the rest could be asked for"})
		}
	}
	p.files = []*file{f}
	p.transfer.stillLacks = nil
	p.transfer.done = func(f *file) error {
		p.commit, p.wants = string(f.Hash[:40]), []hub.File{f.File}
		if err := p.announce(where(p.source.(*urlSource).u), x.Hash == ""); err != nil {
			return err
		}
		return p.place(f)
	}
	if err := p.run(ctx); err != nil {
		return nil, writable(p.cache, err)
	}
	return p.complete(before)
}

// announce writes the manifest of a model that no listing describes.
func (p *pull) announce(source string, unproven bool) error {
	if err := atomicfile.MakeFolders(p.cache.Snapshot(p.repo, p.commit)); err != nil {
		return err
	}
	return p.cache.UpdateManifest(p.repo, p.commit, func(m *hub.Manifest) error {
		if m.Source == "" {
			m.Unproven = unproven
		}
		m.Source, m.Unproven, m.Asked = source, m.Unproven && unproven, []string{""}
		return m.Want(p.wants)
	})
}

// urlSource is an address of one file.
type urlSource struct{ u *url.URL }

func (s *urlSource) revision(context.Context, string, string) (string, bool, error) {
	return "", false, permanent("an address has no revisions")
}

func (s *urlSource) listing(context.Context, string, string) ([]hub.File, error) {
	return nil, permanent("an address has no listing")
}

func (s *urlSource) address(string, string, hub.File) *url.URL { return s.u }

func (s *urlSource) agrees(http.Header, string, hub.File) error { return nil }

func (s *urlSource) refusal(_, _ string, e *statusError) error { return permanentError{e} }

func (s *urlSource) name() string { return where(s.u) }

var unfit = regexp.MustCompile(`[^A-Za-z0-9._]+|\.\.+`)

// plainRepo makes a repository's name of a file's or folder's.
func plainRepo(org, name string) string {
	name = strings.Trim(unfit.ReplaceAllString(name, "-"), "-.")
	name = strings.TrimSuffix(name, ".git")
	for strings.Contains(name, "--") {
		name = strings.ReplaceAll(name, "--", "-")
	}
	if len(name) > 80 {
		name = strings.TrimRight(name[:80], "-.")
	}
	if hub.CheckRepo(org+"/"+name) != nil {
		name = "model"
	}
	return org + "/" + name
}
