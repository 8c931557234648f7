package hub

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"windrow/filelock"
)

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// TestRemove: a revision goes with the blobs that no other one has, a repository whole;
// a plan alone removes nothing.
func TestRemove(t *testing.T) {
	c := &Cache{Root: t.TempDir()}
	place(t, c, "a/b", commitA, "config.json", "{}")
	place(t, c, "a/b", commitA, "model.safetensors", "old weights")
	place(t, c, "a/b", commitB, "model.safetensors", "new weights")
	if err := os.Symlink(filepath.Join("..", "..", "blobs", string(digest("{}"))), filepath.Join(c.Snapshot("a/b", commitB), "config.json")); err != nil {
		t.Fatal(err)
	}
	setRef(t, c, "a/b", "main", commitB)
	setRef(t, c, "a/b", "v1", commitA)
	place(t, c, "a/other", commitA, "config.json", "{}")
	r, err := c.PlanRemoval(name(t, "hf:a/b@v1"), false)
	if err != nil || r.Bytes == 0 || !exists(c.Blob("a/b", digest("old weights"))) {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := r.Remove(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		c.Blob("a/b", digest("old weights")): false, c.Blob("a/b", digest("new weights")): true, c.Blob("a/b", digest("{}")): true,
		c.Snapshot("a/b", commitA): false, c.Snapshot("a/b", commitB): true, filepath.Join(c.Repo("a/b"), "refs", "v1"): false, c.Snapshot("a/other", commitA): true,
	} {
		if exists(path) != want {
			t.Errorf("%s is there: %t", path, !want)
		}
	}
	if _, err := c.Find(name(t, "hf:a/b")); err != nil {
		t.Error(err)
	}
	var gone *MissingError
	for _, s := range []string{"hf:a/b@v1", "hf:a/b@" + commitA, "hf:a/nobody"} {
		if _, err := c.PlanRemoval(name(t, s), false); !errors.As(err, &gone) {
			t.Errorf("%s: %v", s, err)
		}
	}
	// While it is being fetched it stays.
	lock := c.LockFile("a/b", digest("new weights"))
	os.MkdirAll(filepath.Dir(lock), 0o755)
	f, err := os.Create(lock)
	if err == nil {
		err = filelock.TryLock(f)
	}
	if err != nil {
		t.Fatal(err)
	}
	if r, err = c.PlanRemoval(name(t, "hf:a/b"), true); err != nil {
		t.Fatal(err)
	}
	if err := r.Remove(); !errors.Is(err, ErrInUse) || !exists(c.Repo("a/b")) {
		t.Errorf("while it is fetched: %v", err)
	}
	f.Close()
	if err := r.Remove(); err != nil || exists(c.Repo("a/b")) || !exists(c.Repo("a/other")) {
		t.Errorf("the repository: %v", err)
	}
}

// TestGC: what nothing leads to goes, when it is old enough; pinned revisions, those of
// other tools, and what is young stay.
func TestGC(t *testing.T) {
	c := &Cache{Root: t.TempDir()}
	const commitC = "cccccccccccccccccccccccccccccccccccccccc"
	for commit, content := range map[string]string{commitA: "left", commitB: "now", commitC: "pinned"} {
		place(t, c, "a/b", commit, "model.safetensors", content)
		err := c.UpdateManifest("a/b", commit, func(m *Manifest) error {
			m.Source, m.Pinned = "https://example.org", commit == commitC
			return m.Want([]File{{Path: "model.safetensors", Size: int64(len(content)), Hash: digest(content)}})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	setRef(t, c, "a/b", "main", commitB)
	place(t, c, "a/foreign", commitA, "model.safetensors", "foreign") // no branch, no manifest
	orphan, incomplete := c.Blob("a/b", digest("orphan")), c.Blob("a/b", digest("x"))+".incomplete"
	part := filepath.Join(c.Parts(), string(digest("part")))
	os.MkdirAll(c.Parts(), 0o755)
	// What a process has left that was killed while it wrote a link, a branch, a manifest.
	link, ref, manifest := filepath.Join(c.Repo("a/b"), ".link.0123abcd.tmp"), filepath.Join(c.Repo("a/b"), "refs", ".main.0123abcd.tmp"), filepath.Join(filepath.Dir(c.ManifestFile("a/b", "")), ".x.json.0123abcd.tmp")
	file := filepath.Join(c.Snapshot("a/b", commitB), ".a.tmp") // a file of the model's
	for _, p := range []string{orphan, incomplete, part, part + ".journal", link, ref, manifest, file} {
		if err := os.WriteFile(p, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	at := func(after time.Duration) *Removal {
		r, err := c.PlanGC(7*day, time.Now().Add(after))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := at(time.Hour); len(r.Items) != 0 {
		t.Errorf("after an hour: %+v", r.Items)
	}
	if r := at(-50 * 365 * day); len(r.Items) != 0 {
		t.Errorf("in 1970: %+v", r.Items)
	}
	f, err := os.Open(part)
	if err == nil {
		err = filelock.TryLock(f)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range at(8 * day).Items {
		if i.Path == part {
			t.Error("a part that is being written")
		}
	}
	f.Close()
	if err := at(8 * day).Remove(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		c.Snapshot("a/b", commitA): false, c.Blob("a/b", digest("left")): false, c.ManifestFile("a/b", commitA): false,
		c.Snapshot("a/b", commitB): true, c.Blob("a/b", digest("now")): true, c.Snapshot("a/b", commitC): true, c.Blob("a/b", digest("pinned")): true,
		c.Snapshot("a/foreign", commitA): true, c.Blob("a/foreign", digest("foreign")): true,
		link: false, ref: false, manifest: false, file: true, filepath.Join(c.Repo("a/b"), "refs", "main"): true,
		orphan: false, incomplete: false, part: false, part + ".journal": false,
	} {
		if exists(path) != want {
			t.Errorf("%s is there: %t", path, !want)
		}
	}
}
