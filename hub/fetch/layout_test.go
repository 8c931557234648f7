package fetch

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"windrow/hub"
)

// lay makes a cache of a model's files by the rules of Hugging Face's documentation: blobs by
// hash, relative links, branches without a line's end, a lock a blob.
func lay(t *testing.T, root, repo, commit string, files map[string][]byte, digest func([]byte) string) {
	t.Helper()
	write := func(path string, data []byte) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	folder := filepath.Join(root, "models--"+strings.ReplaceAll(repo, "/", "--"))
	write(filepath.Join(folder, "refs", "main"), []byte(commit))
	write(filepath.Join(root, "CACHEDIR.TAG"), nil)
	for path, data := range files {
		d := digest(data)
		write(filepath.Join(folder, "blobs", d), data)
		write(filepath.Join(root, ".locks", filepath.Base(folder), d+".lock"), nil)
		link := filepath.Join(folder, "snapshots", commit, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			t.Fatal(err)
		}
		up := strings.Repeat("../", 2+strings.Count(path, "/"))
		if err := os.Symlink(filepath.FromSlash(up+"blobs/"+d), link); err != nil {
			t.Fatal(err)
		}
	}
}

// shape is a folder's tree: kinds, modes and names; where links lead, and what blobs and
// branches hold. What each tool has for itself is left out: Windrow's folder, the listings of
// huggingface_hub, and what locks and the tag say.
func shape(t *testing.T, root string) (lines []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if e.IsDir() && (rel == ".windrow" || e.Name() == "trees") {
			return filepath.SkipDir
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		line := info.Mode().String() + " " + rel
		switch {
		case info.Mode()&os.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line = "link " + rel + " -> " + to
		case strings.HasSuffix(rel, ".lock"):
			line = "lock " + rel
		case info.Mode().IsRegular() && rel != "CACHEDIR.TAG":
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += " " + string(digestOf(data))
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	return lines
}

// same compares two trees.
func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("%s: there is %s", what, line)
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("%s: there is no %s", what, line)
		}
	}
}

// TestLayout: what pull makes is the documented layout, and nothing else but a folder of its
// own.
func TestLayout(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a privilege there")
	}
	s := newScene(t, false)
	files := map[string][]byte{"config.json": []byte("{}"), "tokenizer.json": random(1, 400), "a/b/m.gguf": random(2, 50_000)}
	repo := s.hub.Add("me/tiny", commitA, files)
	s.mustPull("hf:me/tiny", files)
	want := t.TempDir()
	os.Chmod(want, 0o755)
	lay(t, want, "me/tiny", commitA, files, func(data []byte) string { d, _ := repo.Hash(data); return d })
	os.Chmod(s.cache.Root, 0o755)
	same(t, "pull", shape(t, s.cache.Root), shape(t, want))
	entries, err := os.ReadDir(s.cache.Root)
	if err != nil || len(entries) != 4 { // .locks, .windrow, CACHEDIR.TAG, the model
		t.Errorf("%v, %v", entries, err)
	}
	if tag, err := os.ReadFile(filepath.Join(s.cache.Root, "CACHEDIR.TAG")); err != nil || !bytes.HasPrefix(tag, []byte("Signature: 8a477f597d28d172789f06886806bc55\n")) {
		t.Errorf("CACHEDIR.TAG: %q, %v", tag, err)
	}
	locks, _ := filepath.Glob(filepath.Join(s.cache.Root, ".locks", "*", "*.lock"))
	for _, path := range locks {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o664 {
			t.Errorf("%s: %v, %v: want the mode that others of a group can lock", path, info.Mode(), err)
		}
	}
	// A tag that is there stays.
	if err := os.WriteFile(filepath.Join(s.cache.Root, "CACHEDIR.TAG"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.hub.Add("me/other", commitA, files)
	s.mustPull("hf:me/other", files)
	if tag, _ := os.ReadFile(filepath.Join(s.cache.Root, "CACHEDIR.TAG")); string(tag) != "mine" {
		t.Errorf("the tag is now %q", tag)
	}
}

// TestGroup: under a umask of 002 the cache is one that a group can write to.
func TestGroup(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no umask there")
	}
	s := newScene(t, false)
	files := tiny(random(1, 50_000))
	s.hub.Add("me/tiny", commitA, files)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sh", "-c", "umask 002; exec \"$0\" -test.run='^$'", self)
	child.Env = append(os.Environ(), childEndpoint+"="+s.hub.URL, childCache+"="+s.cache.Root)
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	err = filepath.WalkDir(s.cache.Root, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.Type()&os.ModeSymlink != 0 {
			return err
		}
		info, err := e.Info()
		want := os.FileMode(0o664)
		if e.IsDir() {
			want = 0o775
		}
		if err == nil && info.Mode().Perm() != want {
			t.Errorf("%s has %s: want %s", path, info.Mode().Perm(), want)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestPythonPackage: a cache that huggingface_hub wrote is read by Windrow, one that Windrow
// wrote is read by that package and its scan, and both are the same; its lock is waited for.
// It runs where python3 has the package; WINDROW_PYTHON is another python.
func TestPythonPackage(t *testing.T) {
	python := os.Getenv("WINDROW_PYTHON")
	if python == "" {
		python = "python3"
	}
	py := func(script string, args ...string) (string, error) {
		c := exec.Command(python, append([]string{"-c", script}, args...)...)
		c.Env = append(os.Environ(), "HF_HUB_DISABLE_XET=1", "HF_HUB_DISABLE_TELEMETRY=1", "HF_HUB_DISABLE_PROGRESS_BARS=1", "HF_TOKEN=", "HF_HUB_OFFLINE=")
		out, err := c.Output()
		if exit, ok := err.(*exec.ExitError); ok {
			t.Logf("%s", exit.Stderr)
		}
		return strings.TrimSpace(string(out)), err
	}
	version, err := py("import huggingface_hub; print(huggingface_hub.__version__)")
	if err != nil {
		t.Skipf("%s has no huggingface_hub: %v", python, err)
	}
	t.Log("huggingface_hub ", version)
	s := newScene(t, false)
	files := map[string][]byte{"config.json": []byte("{}"), "tokenizer.json": random(1, 400), "model.safetensors": random(2, 50_000), "README.md": []byte("read")}
	repo := s.hub.Add("me/tiny", commitA, files)
	theirs := filepath.Join(t.TempDir(), "theirs")
	const get = `
import sys
from huggingface_hub import snapshot_download
print(snapshot_download("me/tiny", revision=sys.argv[3], cache_dir=sys.argv[1], endpoint=sys.argv[2], local_files_only=sys.argv[4] == "local"))`
	path, err := py(get, theirs, s.hub.URL, "main", "")
	if err != nil || path != filepath.Join(theirs, "models--me--tiny", "snapshots", commitA) {
		t.Fatalf("%s, %v", path, err)
	}
	s.mustPull("hf:me/tiny", files)
	os.Chmod(s.cache.Root, 0o755)
	os.Chmod(theirs, 0o755)
	same(t, "beside the package's", shape(t, s.cache.Root), shape(t, theirs))
	// Theirs, read here.
	cache := &hub.Cache{Root: theirs}
	found, err := cache.Find(hub.Name{Repo: "me/tiny", Revision: "main"})
	if err != nil || found.Path != path {
		t.Errorf("%+v, %v", found, err)
	}
	if check, err := cache.Verify(t.Context(), "me/tiny", commitA, nil); err != nil || len(check.Faults) > 0 || check.Files != len(files) {
		t.Errorf("%+v, %v", check, err)
	}
	s.hub.Forget()
	ours := s.cache
	s.cache = cache
	if r := s.mustPull("hf:me/tiny", files); r.Fetched != 0 {
		t.Errorf("%d bytes of what the package had fetched were fetched", r.Fetched)
	}
	s.cache = ours
	// Ours, read there: without a connection; by its scan, whose one warning is of Windrow's own folder.
	if got, err := py(get, ours.Root, "http://127.0.0.1:1", "main", "local"); err != nil || got != ours.Snapshot("me/tiny", commitA) {
		t.Errorf("%s, %v", got, err)
	}
	const scan = `
import sys
from huggingface_hub import scan_cache_dir
i = scan_cache_dir(sys.argv[1])
print([str(w).rsplit("/", 1)[-1] for w in i.warnings], [(r.repo_id, [(v.commit_hash, sorted(v.refs), len(v.files)) for v in r.revisions]) for r in i.repos])`
	want := "['.windrow'] [('me/tiny', [('" + commitA + "', ['main'], 4)])]"
	if got, err := py(scan, ours.Root); err != nil || got != want {
		t.Errorf("its scan: %s, %v; want %s", got, err, want)
	}
	// A new commit, by the one and then by the other.
	now := map[string][]byte{"config.json": []byte("{}"), "tokenizer.json": random(3, 400), "model.safetensors": files["model.safetensors"], "README.md": []byte("read")}
	repo.Commits[commitB], repo.Refs["main"] = now, commitB
	if got, err := py(get, ours.Root, s.hub.URL, "main", ""); err != nil || got != ours.Snapshot("me/tiny", commitB) {
		t.Errorf("%s, %v", got, err)
	}
	if r := s.mustPull("hf:me/tiny", now); r.Fetched != 0 || r.Commit != commitB {
		t.Errorf("%+v", r)
	}
	// What the package's own deletion leaves is no model here.
	const remove = `
import sys
from huggingface_hub import scan_cache_dir
scan_cache_dir(sys.argv[1]).delete_revisions(sys.argv[2]).execute()`
	if _, err := py(remove, ours.Root, commitB); err != nil {
		t.Error(err)
	}
	if _, err := ours.Find(hub.Name{Repo: "me/tiny", Revision: "main"}); err == nil {
		t.Error("a revision that the package has deleted is found")
	}
	if _, err := ours.Find(hub.Name{Repo: "me/tiny", Revision: commitA}); err != nil {
		t.Errorf("the other revision: %v", err)
	}
	s.mustPull("hf:me/tiny", now)
	// The package's lock.
	s.o.Wait = 0
	s.hub.Add("me/second", commitA, map[string][]byte{"m.gguf": random(5, 50_000)})
	lock := ours.LockFile("me/second", digestOf(random(5, 50_000)))
	const hold = `
import sys, os, time
from huggingface_hub.utils import WeakFileLock
os.makedirs(os.path.dirname(sys.argv[1]), exist_ok=True)
with WeakFileLock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()`
	holder := exec.Command(python, "-c", hold, lock)
	in, _ := holder.StdinPipe()
	out, _ := holder.StdoutPipe()
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if n, err := out.Read(make([]byte, 5)); n == 0 {
		t.Fatalf("the package's lock: %v", err)
	}
	if _, err := s.pull("hf:me/second"); err == nil || !strings.Contains(err.Error(), "fetches it") {
		t.Errorf("while the package has the lock: %v", err)
	}
	in.Close()
	holder.Wait()
	s.mustPull("hf:me/second", nil)
}
