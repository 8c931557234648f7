package fetch

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"windrow/hub"
	"windrow/internal/testhelp"
)

// TestURL: a file of an address comes, resumes by If-Range where the server says what by,
// begins anew where it does not, and is called unverified where nobody gave its hash.
func TestURL(t *testing.T) {
	content := random(5, 80_000)
	for _, c := range []struct {
		name, etag string
		modified   time.Time
		ranges     bool
		sha        bool
		resumes    bool
	}{
		{"strong ETag", `"v1"`, time.Time{}, true, false, true},
		{"Last-Modified", "", time.Unix(1e9, 0), true, false, true},
		{"weak ETag", `W/"v1"`, time.Time{}, true, false, false},
		{"nothing", "", time.Time{}, true, false, false},
		{"no ranges", `"v1"`, time.Time{}, false, false, false},
		{"SHA-256", "", time.Time{}, true, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t, false)
			var sent, fail atomic.Int64
			fail.Store(1)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if fail.Load() > 0 && sent.Load() > 40_000 {
					w.WriteHeader(500)
					return
				}
				if !c.ranges {
					r.Header.Del("Range")
					w.Header().Set("Accept-Ranges", "none")
				}
				rec := httptest.NewRecorder()
				if c.etag != "" {
					rec.Header().Set("ETag", c.etag)
				}
				http.ServeContent(rec, r, "", c.modified, bytes.NewReader(content))
				sent.Add(int64(rec.Body.Len()))
				if fail.Load() > 0 && rec.Body.Len() > 40_000 {
					cut(w, rec, 20_000)
				}
				relay(w, rec, rec.Code, rec.Body.Bytes())
			}))
			defer server.Close()
			var digest hub.Digest
			if c.sha {
				digest = digestOf(content)
			}
			pull := func() (*Result, error) {
				return PullURL(context.Background(), s.cache, server.URL+"/a/Tiny-Q8_0.gguf?Signature=SECRETSIGNATURE", digest, s.o)
			}
			if _, err := pull(); err == nil {
				t.Fatal("it ended well")
			}
			fail.Store(0)
			r, err := pull()
			if err != nil {
				t.Fatal(err)
			}
			if data, err := os.ReadFile(r.Path); err != nil || !bytes.Equal(data, content) || !strings.HasSuffix(r.Path, ".gguf") {
				t.Errorf("%s: %v", r.Path, err)
			}
			if resumed := r.Fetched < 80_000; resumed != c.resumes {
				t.Errorf("fetched %d bytes: resumed %t, want %t", r.Fetched, resumed, c.resumes)
			}
			list, err := s.cache.List()
			if err != nil || len(list) != 1 || list[0].Repo != "url/Tiny-Q8_0" || list[0].Verified != c.sha || (list[0].First != "") == c.sha {
				t.Errorf("%+v, %v", list, err)
			}
			s.honest("url/Tiny-Q8_0")
			s.grep("SECRETSIGNATURE")
			if c.sha {
				before := sent.Load()
				if _, err := pull(); err != nil || sent.Load() != before {
					t.Errorf("again: %v", err)
				}
				digest = digestOf([]byte("other"))
				_, err := pull()
				testhelp.OneLine(t, "another hash", err, string(digest))
			}
		})
	}
}

// TestURLChanges: the file is another one when its download goes on: none of the old
// bytes are in it.
func TestURLChanges(t *testing.T) {
	s := newScene(t, false)
	content, etag, sent := random(5, 80_000), `"v1"`, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if sent++; sent == 6 {
			content, etag = random(6, 80_000), `"v2"`
		}
		w.Header().Set("ETag", etag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}))
	defer server.Close()
	s.o.Connections = 1
	r, err := PullURL(context.Background(), s.cache, server.URL+"/m.gguf", "", s.o)
	if err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(r.Path); err != nil || !bytes.Equal(data, random(6, 80_000)) {
		t.Errorf("%d bytes, %v: parts of two files", len(data), err)
	}
	for _, bad := range []string{"http://", "ftp://h/m.gguf", server.URL + "/m.bin", server.URL, "https://u:p@h/m.gguf", server.URL + "/a%2f..%2f..%5cm.gguf"} {
		_, err := PullURL(context.Background(), s.cache, bad, "", s.o)
		testhelp.OneLine(t, bad, err)
		if strings.Contains(err.Error(), "u:p") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestLocal: a folder and a file are copied; what their owner does afterwards changes
// nothing.
func TestLocal(t *testing.T) {
	s := newScene(t, false)
	files := tiny(random(1, 5000))
	dir := testhelp.Folder(t, files)
	model := filepath.Join(dir, "My  Model--v1..2.gguf")
	if err := os.WriteFile(model, []byte("GGUF"), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := PullLocal(context.Background(), s.cache, dir, s.o)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "model.safetensors"), []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		data, err := os.ReadFile(filepath.Join(r.Path, name))
		if taken := name != "run.py" && name != "pytorch_model.bin"; taken && !bytes.Equal(data, want) || taken != (err == nil) {
			t.Errorf("%s: %d bytes, %v", name, len(data), err)
		}
	}
	again, err := PullLocal(context.Background(), s.cache, dir, s.o)
	if err != nil || again.Commit == r.Commit || again.Before != r.Commit {
		t.Errorf("after a change: %+v, %v", again, err)
	}
	if list, err := s.cache.List(); err != nil || len(list) != 2 {
		t.Errorf("%+v, %v", list, err)
	} else {
		for _, m := range list {
			if manifest, err := s.cache.ReadManifest(m.Repo, m.Commit); err != nil || !slices.ContainsFunc(manifest.Files, func(f hub.File) bool {
				info, err := os.Stat(filepath.Join(m.Path, f.Path))
				return f.Path == "config.json" && err == nil && info.ModTime().UnixNano() == f.Time
			}) {
				t.Errorf("what both revisions have is no longer known to be verified in %s", m.Commit)
			}
		}
	}
	r, err = PullLocal(context.Background(), s.cache, model, s.o)
	if err != nil || r.Name != "hf:local/My-Model-v1-2" {
		t.Errorf("%+v, %v", r, err)
	}
	s.clean("local/My-Model-v1-2")
	for _, bad := range []string{filepath.Join(dir, "config.json"), filepath.Join(dir, "nowhere"), t.TempDir()} {
		_, err := PullLocal(context.Background(), s.cache, bad, s.o)
		testhelp.OneLine(t, bad, err)
	}
	s.o.Check = func([]byte) error { return errors.New("no") }
	_, err = PullLocal(context.Background(), s.cache, dir, s.o)
	testhelp.OneLine(t, "refused", err, "no")
}
