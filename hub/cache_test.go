package hub

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

const commitA, commitB = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

// digest is the SHA-256 of a text.
func digest(content string) Digest { return Digest(fmt.Sprintf("%x", sha256.Sum256([]byte(content)))) }

// place writes a file as Hugging Face's tools do: a blob, and a link to it.
func place(t *testing.T, c *Cache, repo, commit, path, content string) {
	t.Helper()
	blob, link := c.Blob(repo, digest(content)), filepath.Join(c.Snapshot(repo, commit), filepath.FromSlash(path))
	for _, dir := range []string{filepath.Dir(blob), filepath.Dir(link)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(blob, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	target, err := filepath.Rel(filepath.Dir(link), blob)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		if runtime.GOOS == "windows" {
			t.Skip("no links:", err)
		}
		t.Fatal(err)
	}
}

func setRef(t *testing.T, c *Cache, repo, ref, commit string) {
	t.Helper()
	name := filepath.Join(c.Repo(repo), "refs", filepath.FromSlash(ref))
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(commit), 0o644); err != nil {
		t.Fatal(err)
	}
}

func name(t *testing.T, s string) Name {
	t.Helper()
	n, err := ParseName(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestFind: what other tools put into the cache is found, and what lacks is said.
func TestFind(t *testing.T) {
	c := &Cache{Root: t.TempDir()}
	find := func(s string) (*Found, *MissingError, error) {
		f, err := c.Find(name(t, s))
		var gone *MissingError
		errors.As(err, &gone)
		return f, gone, err
	}
	if _, gone, err := find("hf:a/b"); gone == nil || gone.Want != 0 {
		t.Errorf("an empty cache: %v", err)
	}
	place(t, c, "a/b", commitA, "config.json", "{}")
	place(t, c, "a/b", commitA, "model.safetensors", "weights")
	place(t, c, "a/b", commitA, "m-Q4_K_M.gguf", "gguf 4")
	place(t, c, "a/b", commitA, "m-Q8_0.gguf", "gguf 8")
	if _, gone, err := find("hf:a/b"); gone == nil {
		t.Errorf("without a ref: %v", err)
	}
	setRef(t, c, "a/b", "main", commitA)
	setRef(t, c, "a/b", "refs/pr/1", commitA+"\n")
	for s, want := range map[string]string{"hf:a/b": "", "hf:a/b@refs/pr/1": "", "hf:a/b@" + commitA: "", "hf:a/b:Q8_0": "m-Q8_0.gguf", "hf:a/b:m-Q4_K_M.gguf": "m-Q4_K_M.gguf"} {
		f, _, err := find(s)
		if err != nil || f.Path != filepath.Join(c.Snapshot("a/b", commitA), want) {
			t.Errorf("%s: %+v, %v", s, f, err)
		}
	}
	// The beginning of a commit means it, as list shows it, unless two begin so.
	twin := commitA[:20] + "0123456789abcdef0123"
	place(t, c, "a/twins", commitA, "config.json", "{}")
	place(t, c, "a/twins", commitA, "model.safetensors", "weights")
	place(t, c, "a/twins", twin, "config.json", "{}")
	for s, want := range map[string]string{"hf:a/b@" + commitA[:12]: commitA, "hf:a/b@" + commitA[:7]: commitA, "hf:a/b@" + commitA[:6]: "", "hf:a/b@0123456": "", "hf:a/b@" + commitA + "a": "",
		"hf:a/twins@" + commitA[:22]: commitA, "hf:a/twins@" + commitA[:12]: "several"} {
		f, gone, err := find(s)
		if want == "several" && (err == nil || !strings.Contains(err.Error(), "several commits begin so")) || want == "" && gone == nil || len(want) == 40 && (err != nil || f.Commit != want) {
			t.Errorf("%s: %+v, %v", s, f, err)
		}
	}
	os.RemoveAll(c.Repo("a/twins"))
	if _, _, err := find("hf:a/b:Q5_K_M"); err == nil || !strings.Contains(err.Error(), "m-Q8_0.gguf") {
		t.Errorf("a tag that is not there: %v", err)
	}
	// An index says which shards there should be.
	place(t, c, "a/c", commitA, "config.json", "{}")
	place(t, c, "a/c", commitA, indexFile, `{"weight_map": {"x": "model-1.safetensors", "y": "model-2.safetensors", "z": "../z"}}`)
	place(t, c, "a/c", commitA, "model-1.safetensors", "one")
	setRef(t, c, "a/c", "main", commitA)
	if _, gone, err := find("hf:a/c"); gone == nil || gone.Have != 3 || gone.Want != 4 {
		t.Errorf("a shard lacks: %v", err)
	}
	// A link that leads nowhere is no file.
	os.Remove(c.Blob("a/b", digest("weights")))
	if _, gone, err := find("hf:a/b"); gone == nil || gone.Have != 1 || gone.Want != 2 {
		t.Errorf("a link that leads nowhere: %v", err)
	}
	setRef(t, c, "a/b", "main", "../../../etc/passwd")
	if _, _, err := find("hf:a/b"); err == nil {
		t.Error("a ref that is no commit")
	}
}

// TestManifest: it says what is wanted, is merged, and does not change its mind.
func TestManifest(t *testing.T) {
	c := &Cache{Root: t.TempDir()}
	place(t, c, "a/b", commitA, "config.json", "{}")
	setRef(t, c, "a/b", "main", commitA)
	want := func(files ...File) error {
		return c.UpdateManifest("a/b", commitA, func(m *Manifest) error {
			m.Source = "https://example.org"
			return m.Want(files)
		})
	}
	config, weights := File{Path: "config.json", Size: 2, Hash: digest("{}")}, File{Path: "model.safetensors", Size: 7, Hash: digest("weights")}
	if err := want(weights, config); err != nil {
		t.Fatal(err)
	}
	list, err := c.List()
	if err != nil || len(list) != 1 || list[0].Have != 1 || list[0].Want != 2 || list[0].Complete() {
		t.Fatalf("%+v, %v", list, err)
	}
	if err := want(File{Path: "model.safetensors", Size: 7, Hash: digest("other")}); err == nil || !strings.Contains(err.Error(), "example.org") {
		t.Errorf("another hash for the same commit: %v", err)
	}
	place(t, c, "a/b", commitA, "model.safetensors", "weights")
	if _, err := c.Find(name(t, "hf:a/b")); err != nil {
		t.Error(err)
	}
	check, err := c.Verify(context.Background(), "a/b", commitA, nil)
	if err != nil || len(check.Faults) != 0 || check.Files != 2 {
		t.Fatalf("%+v, %v", check, err)
	}
	if list, _ := c.List(); !list[0].Verified || !list[0].Complete() || list[0].Source != "https://example.org" {
		t.Errorf("%+v", list)
	}
	// Same size, other bytes: verify sees it, and so does list from the time of change.
	blob := c.Blob("a/b", digest("weights"))
	if err := os.WriteFile(blob, []byte("weighty"), 0o644); err != nil {
		t.Fatal(err)
	}
	os.Chtimes(blob, time.Time{}, time.Unix(0, 1))
	if list, _ := c.List(); list[0].Verified {
		t.Error("a file that was written since is called verified")
	}
	check, err = c.Verify(context.Background(), "a/b", commitA, nil)
	if err != nil || len(check.Faults) != 1 || check.Faults[0].Path != "model.safetensors" {
		t.Errorf("%+v, %v", check, err)
	}
	// A manifest that is damaged is an error where a model is opened; it hides no other.
	if err := os.WriteFile(c.ManifestFile("a/b", commitA), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Find(name(t, "hf:a/b")); err == nil || !strings.Contains(err.Error(), "manifest") {
		t.Errorf("a damaged manifest: %v", err)
	}
	if list, err := c.List(); err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestVerifyForeign: files of other tools are known by their blobs' names, of both kinds.
func TestVerifyForeign(t *testing.T) {
	c := &Cache{Root: t.TempDir()}
	place(t, c, "a/b", commitA, "model.safetensors", "weights")
	small := "hello\n"
	h := Digest(strings.Repeat("0", 40)).NewHash(int64(len(small)))
	h.Write([]byte(small))
	if DigestOf(h) != "ce013625030ba8dba906f756967f9e9ca394464a" { // git hash-object
		t.Errorf("git's hash of %q is %s", small, DigestOf(h))
	}
	blob := c.Blob("a/b", DigestOf(h))
	if err := os.WriteFile(blob, []byte(small), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join("..", "..", "blobs", string(DigestOf(h))), filepath.Join(c.Snapshot("a/b", commitA), "README.md")); err != nil {
		t.Fatal(err)
	}
	check, err := c.Verify(context.Background(), "a/b", commitA, nil)
	if err != nil || check.Files != 2 || len(check.Faults) != 0 {
		t.Errorf("%+v, %v", check, err)
	}
	os.WriteFile(blob, []byte("jello\n"), 0o644)
	if check, err = c.Verify(context.Background(), "a/b", commitA, nil); err != nil || len(check.Faults) != 1 {
		t.Errorf("%+v, %v", check, err)
	}
	if _, err := os.Stat(c.Own()); !errors.Is(err, fs.ErrNotExist) {
		t.Error("verify wrote into another tool's cache")
	}
}
