package fetch

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"windrow/hub"
	"windrow/hub/hubtest"
	"windrow/internal/testhelp"
)

// quick are times for tests. Those after which a run is cut are not short: a busy machine stands
// still for tenths of a second, and what is cut for that is asked for again, which tests count.
// Where a server is to be slow they are impatient's.
var quick = times{backoff: time.Millisecond, maxBackoff: 4 * time.Millisecond, stall: 20 * time.Second, slow: 20 * time.Second,
	record: 20 * time.Millisecond, tick: 5 * time.Millisecond, lock: 5 * time.Millisecond}

// impatient has runs cut soon that stall or are slow.
func (o *Options) impatient() {
	o.times.stall, o.times.slow = 300*time.Millisecond, 200*time.Millisecond
}

// random is a content, the same for the same seed.
func random(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	r.Read(b)
	return b
}

var commitA, commitB = hubtest.Commit("aaaa"), hubtest.Commit("bbbb")

// tiny are the files of a model.
func tiny(weights []byte) map[string][]byte {
	return map[string][]byte{"config.json": []byte(`{"model_type": "qwen3"}`), "tokenizer.json": random(9, 5000), "model.safetensors": weights,
		"README.md": []byte("a model"), "pytorch_model.bin": random(8, 5000), "run.py": []byte("import os")}
}

// scene is a hub, a cache and options for tests.
type scene struct {
	t     *testing.T
	hub   *hubtest.Hub
	cache *hub.Cache
	o     Options

	mu     sync.Mutex
	events []Event
}

func newScene(t *testing.T, tls bool) *scene {
	s := &scene{t: t, hub: hubtest.New(t, tls), cache: &hub.Cache{Root: filepath.Join(t.TempDir(), "hub")}}
	s.o = Options{Endpoint: s.hub.URL, times: quick, pieceSize: 4096, Wait: -1}
	s.o.Event = func(e Event) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.events = append(s.events, e)
	}
	if tls {
		s.o.roots = x509.NewCertPool()
		s.o.roots.AddCert(s.hub.Certificate())
		s.o.roots.AddCert(s.hub.Files.Certificate())
	}
	return s
}

func (s *scene) pull(name string) (*Result, error) {
	s.t.Helper()
	n, err := hub.ParseName(name)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	return Pull(ctx, s.cache, n, s.o)
}

// mustPull pulls and compares with what the hub has.
func (s *scene) mustPull(name string, want map[string][]byte) *Result {
	s.t.Helper()
	r, err := s.pull(name)
	if err != nil {
		s.t.Fatal(err)
	}
	n, _ := hub.ParseName(name)
	for path, content := range want {
		got, err := os.ReadFile(filepath.Join(s.cache.Snapshot(n.Repo, r.Commit), path))
		taken := !strings.HasSuffix(path, ".bin") && !strings.HasSuffix(path, ".py")
		if taken != (err == nil) || taken && !bytes.Equal(got, content) {
			s.t.Errorf("%s: %d bytes, %v; want %d, taken %t", path, len(got), err, len(content), taken)
		}
	}
	s.clean(n.Repo)
	return r
}

// clean fails where a blob has another content than its name says, or something was left.
func (s *scene) clean(repo string) {
	s.t.Helper()
	s.honest(repo)
	left, _ := os.ReadDir(s.cache.Parts())
	for _, e := range left {
		s.t.Errorf("left: %s", e.Name())
	}
}

// honest fails where a blob has another content than its name says.
func (s *scene) honest(repo string) {
	s.t.Helper()
	blobs, _ := os.ReadDir(filepath.Join(s.cache.Repo(repo), "blobs"))
	for _, e := range blobs {
		data, err := os.ReadFile(filepath.Join(s.cache.Repo(repo), "blobs", e.Name()))
		d := hub.Digest(e.Name())
		if err != nil || !d.Valid() || !rightBytes(hub.File{Hash: d, Size: int64(len(data))}, data) {
			s.t.Errorf("blob %s: %d bytes of another content, %v", e.Name(), len(data), err)
		}
	}
}

// noModel fails where the branch leads anywhere.
func (s *scene) noModel(repo string) {
	s.t.Helper()
	if commit, err := s.cache.Ref(repo, "main"); err == nil {
		s.t.Errorf("main leads to %s", commit)
	}
}

// TestPull: a model comes whole, in the layout of Hugging Face's tools, and a second pull
// is one request.
func TestPull(t *testing.T) {
	s := newScene(t, false)
	files := tiny(random(1, 100_000))
	s.hub.Add("me/tiny", commitA, files)
	r := s.mustPull("hf:me/tiny", files)
	if r.Commit != commitA || r.Files != 4 || r.Path != s.cache.Snapshot("me/tiny", commitA) {
		t.Errorf("%+v", r)
	}
	if commit, err := s.cache.Ref("me/tiny", "main"); err != nil || commit != commitA {
		t.Errorf("main leads to %s, %v", commit, err)
	}
	link, err := os.Readlink(filepath.Join(r.Path, "model.safetensors"))
	if want := filepath.Join("..", "..", "blobs", fmt.Sprint(digestOf(files["model.safetensors"]))); err != nil || link != want {
		t.Errorf("the snapshot links to %s, %v; want %s", link, err, want)
	}
	list, err := s.cache.List()
	if err != nil || len(list) != 1 || !list[0].Verified || !list[0].Complete() || list[0].Source != s.hub.URL {
		t.Errorf("%+v, %v", list, err)
	}
	best := time.Hour
	for range 20 { // what others do on the machine only makes one longer
		s.hub.Forget()
		began := time.Now()
		r = s.mustPull("hf:me/tiny", files)
		best = min(best, time.Since(began))
		if n := len(s.hub.Requests()); n != 1 || r.Fetched != 0 {
			t.Errorf("a second pull: %d requests: %+v", n, s.hub.Requests())
		}
		if best <= 300*time.Millisecond {
			break
		}
	}
	if best > 300*time.Millisecond {
		t.Errorf("a second pull takes %s", best)
	}
	s.hub.Forget()
	s.mustPull("hf:me/tiny@"+commitA, files)
	if n := len(s.hub.Requests()); n != 0 {
		t.Errorf("a second pull of a commit: %d requests", n)
	}
	s.o.Offline = true
	if r, err := s.pull("hf:me/tiny"); err != nil || r.Path == "" {
		t.Errorf("offline: %v", err)
	}
	_, err = s.pull("hf:me/other")
	var gone *hub.MissingError
	if !errors.As(err, &gone) || len(s.hub.Requests()) != 0 {
		t.Errorf("offline: %v, %d requests", err, len(s.hub.Requests()))
	}
}

func digestOf(content []byte) hub.Digest {
	h := hub.Digest(strings.Repeat("0", 64)).NewHash(0)
	h.Write(content)
	return hub.DigestOf(h)
}

// TestRevisions: of a branch that has moved only what differs is fetched, the old revision
// stays, and what changed is said.
func TestRevisions(t *testing.T) {
	s := newScene(t, false)
	old := tiny(random(1, 50_000))
	repo := s.hub.Add("me/tiny", commitA, old)
	s.mustPull("hf:me/tiny", old)
	now := tiny(random(1, 50_000))
	now["tokenizer.json"] = random(77, 6000)
	repo.Commits[commitB], repo.Refs["main"] = now, commitB
	s.hub.Forget()
	r := s.mustPull("hf:me/tiny", now)
	if r.Before != commitA || r.Changed != 1 || r.ChangedBytes != 6000 || r.Fetched != 6000 {
		t.Errorf("%+v", r)
	}
	for rev, want := range map[string]map[string][]byte{commitA: old, commitB: now} {
		data, err := os.ReadFile(filepath.Join(s.cache.Snapshot("me/tiny", rev), "tokenizer.json"))
		if err != nil || !bytes.Equal(data, want["tokenizer.json"]) {
			t.Errorf("%s: %v", rev, err)
		}
	}
	repo.Refs["refs/pr/1"] = commitA
	s.mustPull("hf:me/tiny@refs/pr/1", old)
	if commit, _ := s.cache.Ref("me/tiny", "refs/pr/1"); commit != commitA {
		t.Errorf("refs/pr/1 leads to %s", commit)
	}
}

// TestSameContent: what another repository has is linked, after it was hashed, and not
// fetched; a blob that is not what its name says is fetched.
func TestSameContent(t *testing.T) {
	s := newScene(t, false)
	files := tiny(random(1, 50_000))
	s.hub.Add("me/tiny", commitA, files)
	s.hub.Add("you/tiny", commitA, files)
	s.mustPull("hf:me/tiny", files)
	if r := s.mustPull("hf:you/tiny", files); r.Fetched != 0 {
		t.Errorf("fetched %d bytes", r.Fetched)
	}
	blob := s.cache.Blob("me/tiny", digestOf(files["model.safetensors"]))
	a, _ := os.Stat(blob)
	b, err := os.Stat(s.cache.Blob("you/tiny", digestOf(files["model.safetensors"])))
	if err != nil || !os.SameFile(a, b) {
		t.Errorf("the blob was not linked: %v", err)
	}
	// A blob that another tool has spoilt.
	os.Remove(blob)
	if err := os.WriteFile(blob, random(2, 50_000), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := s.mustPull("hf:me/tiny", files); r.Fetched != 0 {
		t.Errorf("the right one is in the other repository, and %d bytes were fetched", r.Fetched)
	}
	s.hub.Add("us/tiny", commitA, files)
	os.RemoveAll(s.cache.Repo("you/tiny"))
	os.WriteFile(s.cache.Blob("me/tiny", digestOf(files["model.safetensors"])), random(2, 50_000), 0o644)
	if r := s.mustPull("hf:us/tiny", files); r.Fetched != 50_000 {
		t.Errorf("a spoilt blob elsewhere: fetched %d bytes", r.Fetched)
	}
}

// TestGGUF: of several models one is taken, split or not, and another one later.
func TestGGUF(t *testing.T) {
	s := newScene(t, false)
	files := map[string][]byte{"config.json": []byte("{}"), "m-Q4_K_M.gguf": random(1, 9000), "m-Q8_0.gguf": random(2, 9000),
		"bf16/m-BF16-00001-of-00002.gguf": random(3, 9000), "bf16/m-BF16-00002-of-00002.gguf": random(4, 9000)}
	s.hub.Add("me/gguf", commitA, files)
	if _, err := s.pull("hf:me/gguf"); err == nil || !strings.Contains(err.Error(), "m-Q8_0.gguf") {
		t.Errorf("which one: %v", err)
	}
	for tag, first := range map[string]string{"Q4_K_M": "m-Q4_K_M.gguf", "BF16": "bf16/m-BF16-00001-of-00002.gguf"} {
		r, err := s.pull("hf:me/gguf:" + tag)
		if err != nil || r.Path != filepath.Join(s.cache.Snapshot("me/gguf", commitA), filepath.FromSlash(first)) {
			t.Fatalf("%s: %+v, %v", tag, r, err)
		}
		if data, err := os.ReadFile(r.Path); err != nil || !bytes.Equal(data, files[first]) {
			t.Errorf("%s: %v", tag, err)
		}
	}
	if _, err := os.Stat(filepath.Join(s.cache.Snapshot("me/gguf", commitA), "m-Q8_0.gguf")); err == nil {
		t.Error("a model was fetched that was not asked for")
	}
	s.clean("me/gguf")
}

// TestConfigFirst: a model that is not run is refused before its weights are asked for.
func TestConfigFirst(t *testing.T) {
	s := newScene(t, false)
	s.hub.Add("me/gemma", commitA, tiny(random(1, 50_000)))
	s.o.Check = func(config []byte) error { return fmt.Errorf("no, for %d bytes", len(config)) }
	_, err := s.pull("hf:me/gemma")
	testhelp.OneLine(t, "refused", err, "hf:me/gemma: no, for 23 bytes")
	for _, r := range s.hub.Requests() {
		if strings.Contains(r.Path, "safetensors") {
			t.Error("the weights were asked for")
		}
	}
	if list, _ := s.cache.List(); len(list) != 0 {
		t.Errorf("it is listed: %+v", list)
	}
}

// TestGGUFHead: a .gguf model that is not run is refused by its first bytes: from the Hub, a
// URL, a peer, a folder; what is asked for once more counts little.
func TestGGUFHead(t *testing.T) {
	s := newScene(t, false)
	content := random(1, 300_000)
	files := map[string][]byte{"m-Q8_0.gguf": content, "README.md": []byte("read")}
	s.hub.Add("me/llama", commitA, files)
	var seen []byte
	s.o.CheckGGUF = func(head []byte) error { seen = head; return errors.New("no") }
	_, err := s.pull("hf:me/llama")
	testhelp.OneLine(t, "refused", err, "hf:me/llama: m-Q8_0.gguf: no")
	if !bytes.Equal(seen, content[:GGUFHead]) || s.hub.Sent() > GGUFHead {
		t.Errorf("%d bytes were seen, %d sent", len(seen), s.hub.Sent())
	}
	_, err = PullURL(t.Context(), s.cache, s.hub.URL+"/me/llama/resolve/"+commitA+"/m-Q8_0.gguf", "", s.o)
	testhelp.OneLine(t, "a URL", err, "m-Q8_0.gguf: no")
	if list, _ := s.cache.List(); len(list) != 0 {
		t.Errorf("it is listed: %+v", list)
	}
	if _, err := os.Stat(s.cache.Root); err == nil {
		t.Error("the cache was made")
	}
	own := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(own, content[:100], 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = PullLocal(t.Context(), s.cache, own, s.o)
	testhelp.OneLine(t, "a file", err, "m.gguf: no")
	if len(seen) != 100 {
		t.Errorf("%d bytes were seen", len(seen))
	}
	// A server without ranges, and one that fails at first: its beginning is all that is read.
	s.hub.Lie(func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		r.Header.Del("Range")
		next(w, r)
	})
	_, err = s.pull("hf:me/llama")
	testhelp.OneLine(t, "no ranges", err, "hf:me/llama: m-Q8_0.gguf: no")
	s.o.CheckGGUF = func(head []byte) error {
		if !bytes.Equal(head, content[:GGUFHead]) {
			return errors.New("other bytes")
		}
		return nil
	}
	s.mustPull("hf:me/llama", files)
	s.hub.Lie(nil)
	if err := os.RemoveAll(s.cache.Root); err != nil {
		t.Fatal(err)
	}
	s.hub.Lie(func() answer {
		fail := nTimes(2, status(500))
		return func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
			if strings.Contains(r.URL.Path, "gguf") {
				fail(w, r, next)
				return
			}
			next(w, r)
		}
	}())
	s.mustPull("hf:me/llama", files)
	// What is there, or begun, is not asked for again.
	s.hub.Lie(nil)
	s.hub.Forget()
	s.mustPull("hf:me/llama", files)
	if n := len(s.hub.Requests()); n != 1 {
		t.Errorf("a second pull: %d requests", n)
	}
	// Who may not have it is told so at this point.
	s.hub.Add("me/gated", commitA, map[string][]byte{"m.gguf": random(7, 5000)})
	s.hub.Lie(func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		if strings.Contains(r.URL.Path, "/resolve/") {
			status(401, "X-Error-Code", "GatedRepo")(w, r, next)
			return
		}
		next(w, r)
	})
	_, err = s.pull("hf:me/gated")
	testhelp.OneLine(t, "gated", err, "me/gated is gated", "HF_TOKEN")
}

// TestDryRun: nothing is written.
func TestDryRun(t *testing.T) {
	s := newScene(t, false)
	files := tiny(random(1, 50_000))
	s.hub.Add("me/tiny", commitA, files)
	s.o.DryRun = true
	r, err := s.pull("hf:me/tiny")
	if err != nil || r.Files != 4 {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := os.Stat(s.cache.Root); err == nil {
		t.Error("the cache was made")
	}
	for _, e := range s.events {
		if e.Event == "plan" && (len(e.Plan.Files) != 4 || e.Plan.Missing != e.Plan.Bytes || e.Plan.Bytes < 55_000) {
			t.Errorf("%+v", e.Plan)
		}
	}
	if len(s.events) == 0 {
		t.Error("no plan")
	}
}

// TestLimit: no more bytes a second than were asked for.
func TestLimit(t *testing.T) {
	s := newScene(t, false)
	s.o.Limit = 400_000
	files := tiny(random(1, 150_000))
	s.hub.Add("me/tiny", commitA, files)
	began := time.Now()
	s.mustPull("hf:me/tiny", files)
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("155,000 bytes at 400,000 a second took %s", took)
	}
}

// TestRefusals: each is one line that says what to do.
func TestRefusals(t *testing.T) {
	s := newScene(t, false)
	repo := s.hub.Add("me/tiny", commitA, tiny(random(1, 5000)))
	for _, c := range []struct {
		name   string
		status int
		words  []string
	}{
		{"hf:me/nobody", 0, []string{"me/nobody", "does not exist", "HF_TOKEN"}},
		{"hf:me/tiny@nowhere", 0, []string{"no revision nowhere"}},
		{"hf:me/tiny", 403, []string{"gated", "HF_TOKEN"}},
		{"hf:me/tiny", 404, []string{"does not exist"}},
		{"hf:me/tiny", 451, []string{"not given out"}},
		{"hf:me/tiny", 418, []string{"status 418"}},
	} {
		s.hub.Lie(func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
			if c.status != 0 && strings.Contains(r.URL.Path, "/resolve/") {
				w.WriteHeader(c.status)
				return
			}
			next(w, r)
		})
		s.o.Check = func([]byte) error { return nil }
		_, err := s.pull(c.name)
		testhelp.OneLine(t, c.name, err, c.words...)
	}
	repo.Gated = "manual"
	s.hub.Lie(nil)
	s.mustPull("hf:me/tiny", nil)
	if list, _ := s.cache.List(); len(list) != 1 || !list[0].Gated {
		t.Errorf("%+v", list)
	}
	for _, endpoint := range []string{"", "ftp://x", "https://", "https://u:p@h", "https://h?x", "h"} {
		s.o.Endpoint = endpoint
		if endpoint == "" {
			s.o.Endpoint = "http://127.0.0.1:1"
		}
		_, err := s.pull("hf:me/tiny@other")
		testhelp.OneLine(t, endpoint, err)
	}
}

// FuzzListing: what is read of a listing can be written.
func FuzzListing(f *testing.F) {
	f.Add([]byte(`[{"type":"file","path":"a/b.json","size":3,"oid":"0123456789012345678901234567890123456789"},{"type":"directory","path":"a"}]`))
	f.Add([]byte(`[{"type":"file","path":"m","size":3,"oid":"x","lfs":{"oid":"0123456789012345678901234567890123456789012345678901234567890123","size":3}}]`))
	f.Add([]byte(`[{"type":"file","path":"../m"}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		files, err := parseListing(data)
		if err != nil {
			return
		}
		for _, x := range files {
			if !filepath.IsLocal(filepath.FromSlash(x.Path)) && runtime.GOOS != "windows" || strings.ContainsAny(x.Path, "\\\x00\n\x1b") || !x.Hash.Valid() || x.Size < 0 {
				t.Errorf("%+v", x)
			}
		}
		if taken, err := hub.Take(files, ""); err == nil && len(taken) > len(files) {
			t.Errorf("%d of %d files are taken", len(taken), len(files))
		}
	})
}

// FuzzJournal: what is read is of the file that the header names, and is written so that
// it is read again.
func FuzzJournal(f *testing.F) {
	h := journalHeader{size: 100, pieceSize: 30, boot: [16]byte{1}}
	b := frontRecord(pieceRecord(pieceRecord(h.bytes(), 0, noted{have: 30, crc: 7}), 3, noted{10, 9, true}), 30, make([]byte, stateSize))
	f.Add(b)
	f.Add(b[:len(b)-5])
	f.Add(h.bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		j, err := readJournal(data)
		if err != nil {
			return
		}
		if j.have() > j.size || j.front > j.size || len(j.noted) != j.pieces() {
			t.Fatalf("%+v", j)
		}
		again := j.bytes()
		for i, n := range j.noted {
			if n.have < 0 || n.have > j.length(i) {
				t.Fatalf("piece %d: %+v", i, n)
			}
			again = pieceRecord(again, i, n)
		}
		k, err := readJournal(again)
		if err != nil || k.journalHeader != j.journalHeader || k.have() != j.have() {
			t.Errorf("%+v, %v; want %+v", k, err, j)
		}
	})
}
