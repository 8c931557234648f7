package server

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"windrow/hub"
	"windrow/hub/fetch"
	"windrow/hub/hubtest"
	"windrow/internal/testhelp"
)

// TestShare: another Windrow fetches what the cache has verified, with a key; what is
// gated, not whole or changed since is not given away.
func TestShare(t *testing.T) {
	weights := bytes.Repeat([]byte("weights "), 5000)
	files := map[string][]byte{"config.json": []byte("{}"), "model.safetensors": weights}
	h, commit := hubtest.New(t, false), hubtest.Commit("abcd")
	h.Add("me/tiny", commit, files)
	h.Add("me/gated", commit, map[string][]byte{"config.json": []byte("{}"), "model.safetensors": bytes.Repeat([]byte("gated "), 5000)}).Gated = "auto"
	from, to := &hub.Cache{Root: filepath.Join(t.TempDir(), "hub")}, &hub.Cache{Root: filepath.Join(t.TempDir(), "hub")}
	name := func(s string) hub.Name {
		n, err := hub.ParseName(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, s := range []string{"hf:me/tiny", "hf:me/gated"} {
		if _, err := fetch.Pull(context.Background(), from, name(s), fetch.Options{Endpoint: h.URL}); err != nil {
			t.Fatal(err)
		}
	}
	keys := new(Keys)
	if err := keys.Add("peer", "secret-of-peer"); err != nil {
		t.Fatal(err)
	}
	peer := serving(t, &script{}, Options{Keys: keys, Share: hub.NewShare(from, false)})
	pull := func(s, key string) (*fetch.Result, error) {
		token, err := fetch.NewToken("key", key)
		if err != nil {
			t.Fatal(err)
		}
		return fetch.PullFrom(context.Background(), to, strings.TrimPrefix(peer.URL, "http://"), name(s), fetch.Options{Token: token})
	}
	_, err := pull("hf:me/tiny", "")
	testhelp.OneLine(t, "no key", err, "key")
	_, err = pull("hf:me/tiny", "another-key")
	testhelp.OneLine(t, "a wrong key", err, "key")
	_, err = pull("hf:me/gated", "secret-of-peer")
	testhelp.OneLine(t, "gated", err, "does not share me/gated")
	_, err = pull("hf:me/nobody@x/y", "secret-of-peer")
	testhelp.OneLine(t, "not there", err, "does not share me/nobody")
	// As a peer it gives what the hub is slow to give.
	h.Lie(func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		if strings.Contains(r.URL.Path, "/resolve/") || strings.HasPrefix(r.URL.Path, "/signed/") {
			time.Sleep(500 * time.Millisecond)
		}
		next(w, r)
	})
	beside := &hub.Cache{Root: filepath.Join(t.TempDir(), "hub")}
	token, err := fetch.NewToken("key", "secret-of-peer")
	if err != nil {
		t.Fatal(err)
	}
	got, err := fetch.Pull(context.Background(), beside, name("hf:me/tiny"), fetch.Options{Endpoint: h.URL, Peers: []string{peer.URL}, PeerToken: token, Connections: 1})
	if err != nil || got.FromPeers == 0 {
		t.Errorf("as a peer: %+v, %v", got, err)
	}
	h.Close() // no internet from now on
	r, err := pull("hf:me/tiny", "secret-of-peer")
	if err != nil || r.Commit != commit {
		t.Fatalf("%+v, %v", r, err)
	}
	if data, err := os.ReadFile(filepath.Join(r.Path, "model.safetensors")); err != nil || !bytes.Equal(data, weights) {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	if list, err := to.List(); err != nil || len(list) != 1 || list[0].Source != peer.URL || !list[0].Verified {
		t.Errorf("%+v, %v", list, err)
	}
	open := serving(t, &script{}, Options{Share: hub.NewShare(from, false)})
	w, data := ask(t, open, "GET", "/manifest/me/tiny/main", "")
	var m hub.Manifest
	if err := json.Unmarshal(data, &m); err != nil || w.StatusCode != 200 || len(m.Files) != 2 {
		t.Fatalf("%d %s", w.StatusCode, data)
	}
	for _, f := range m.Files {
		if w, data := ask(t, open, "GET", "/blob/"+string(f.Hash), ""); w.StatusCode != 200 || !bytes.Equal(data, files[f.Path]) {
			t.Errorf("%s: %d, %d bytes", f.Path, w.StatusCode, len(data))
		}
		if w, data := ask(t, open, "GET", "/blob/"+string(f.Hash), "", "Range", "bytes=1-1"); w.StatusCode != 206 || !bytes.Equal(data, files[f.Path][1:2]) {
			t.Errorf("a part of %s: %d, %q", f.Path, w.StatusCode, data)
		}
	}
	if r, err := pull("hf:me/tiny", "secret-of-peer"); err != nil || r.Fetched != 0 || r.Requests != 1 {
		t.Errorf("again: %+v, %v", r, err)
	}
	// What was changed since it was verified is not given away; other paths are not files.
	if err := os.WriteFile(filepath.Join(from.Snapshot("me/tiny", commit), "config.json"), []byte("[]"), 0o644); err != nil {
		t.Fatal(err)
	}
	other := serving(t, &script{}, Options{Share: hub.NewShare(from, false)})
	for _, path := range []string{"/manifest/me/tiny/main", "/manifest/me/tiny/" + commit, "/manifest/..%2f..%2fetc/passwd/main", "/manifest/x", "/manifest/", "/blob/", "/blob/..%2f..%2fx", "/blob/" + strings.Repeat("a", 64), "/blob/config.json"} {
		if w, data := ask(t, other, "GET", path, ""); w.StatusCode != 404 {
			t.Errorf("%s: %d %.80s", path, w.StatusCode, data)
		}
	}
	if w, _ := ask(t, serving(t, &script{}, Options{}), "GET", "/manifest/me/tiny/main", ""); w.StatusCode != 404 {
		t.Errorf("without --share: %d", w.StatusCode)
	}
}

// TestShareLies: a peer that gives other bytes than its manifest says makes no model.
func TestShareLies(t *testing.T) {
	h, commit := hubtest.New(t, false), hubtest.Commit("abcd")
	h.Add("me/tiny", commit, map[string][]byte{"config.json": []byte("{}"), "model.safetensors": bytes.Repeat([]byte("weights "), 5000)})
	from, to := &hub.Cache{Root: filepath.Join(t.TempDir(), "hub")}, &hub.Cache{Root: filepath.Join(t.TempDir(), "hub")}
	n := hub.Name{Repo: "me/tiny", Revision: "main"}
	if _, err := fetch.Pull(context.Background(), from, n, fetch.Options{Endpoint: h.URL}); err != nil {
		t.Fatal(err)
	}
	blob, err := filepath.EvalSymlinks(filepath.Join(from.Snapshot("me/tiny", commit), "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(blob)
	if err == nil {
		err = os.WriteFile(blob, bytes.Repeat([]byte("weighty "), 5000), 0o644)
	}
	if err == nil {
		err = os.Chtimes(blob, info.ModTime(), info.ModTime()) // as if nothing had been written
	}
	if err != nil {
		t.Fatal(err)
	}
	peer := serving(t, &script{}, Options{Share: hub.NewShare(from, false)})
	_, err = fetch.PullFrom(context.Background(), to, peer.URL, n, fetch.Options{})
	testhelp.OneLine(t, "other bytes", err, "model.safetensors", peer.URL)
	if _, err := to.Find(n); err == nil {
		t.Error("it became a model")
	}
}
