package fetch

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"windrow/filelock"
	"windrow/hub"
	"windrow/internal/testhelp"
)

// walk reads all files of a folder.
func walk(root string, see func(path string, data []byte)) error {
	return filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		see(path, data)
		return err
	})
}

// broken pulls from a server that breaks off in the midst of the weights, and returns how
// many bytes are kept.
func (s *scene) broken(name string) int64 {
	s.t.Helper()
	s.hub.Lie(ofWeights(func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		if s.hub.Sent() > 40_000 {
			w.WriteHeader(500)
			return
		}
		next(w, r)
	}))
	if _, err := s.pull(name); err == nil {
		s.t.Fatal("it ended well")
	}
	s.hub.Lie(nil)
	s.hub.Forget()
	var kept int64
	parts, _ := filepath.Glob(filepath.Join(s.cache.Parts(), "*.journal"))
	for _, p := range parts {
		if j := readJournalFile(p); j != nil {
			kept += j.have()
		}
	}
	return kept
}

// TestResume: what an interrupted pull has left is not fetched again; the hash goes on.
func TestResume(t *testing.T) {
	s := newScene(t, false)
	files := tiny(random(1, 100_000))
	s.hub.Add("me/tiny", commitA, files)
	kept := s.broken("hf:me/tiny")
	if kept < 10_000 {
		t.Fatalf("%d bytes are kept", kept)
	}
	if _, err := s.cache.Find(hub.Name{Repo: "me/tiny", Revision: commitA}); err == nil {
		t.Error("half a model is found")
	}
	r := s.mustPull("hf:me/tiny", files)
	if r.Fetched > 105_030-kept {
		t.Errorf("%d bytes were fetched, and %d had been there", r.Fetched, kept)
	}
}

// TestPowerLoss: after the system was started anew only what the checksums confirm is
// taken: bytes that did not reach the disk are fetched again.
func TestPowerLoss(t *testing.T) {
	for _, lost := range []string{"nothing", "half of the bytes", "all bytes", "the end of the journal", "the journal", "the part"} {
		s := newScene(t, false)
		files := tiny(random(1, 100_000))
		s.hub.Add("me/tiny", commitA, files)
		kept := s.broken("hf:me/tiny")
		part := filepath.Join(s.cache.Parts(), string(digestOf(files["model.safetensors"])))
		j := readJournalFile(part + ".journal")
		if j == nil {
			t.Fatal("no journal")
		}
		j.boot[3] ^= 1
		b := j.bytes()
		for i, n := range j.noted {
			b = pieceRecord(b, i, n)
		}
		b = frontRecord(b, j.front, j.state)
		data, err := os.ReadFile(part)
		if err != nil {
			t.Fatal(err)
		}
		switch lost {
		case "half of the bytes":
			clear(data[:len(data)/2])
		case "all bytes":
			clear(data)
		case "the end of the journal":
			b = b[:len(b)-recordSize*3/2]
		case "the journal":
			b = nil
		case "the part":
			data = data[:100]
		}
		if err := errors.Join(os.WriteFile(part, data, 0o644), os.WriteFile(part+".journal", b, 0o644)); err != nil {
			t.Fatal(err)
		}
		r := s.mustPull("hf:me/tiny", files)
		if lost == "nothing" && r.Fetched > 105_030-kept || lost == "half of the bytes" && r.Fetched > 105_030 {
			t.Errorf("%s was lost: %d bytes were fetched, and %d had been there", lost, r.Fetched, kept)
		}
	}
}

// TestSpoiltPart: bytes of a part that changed on the disk are fetched again, though the
// journal, of this start of the system, has their checksums.
func TestSpoiltPart(t *testing.T) {
	s := newScene(t, false)
	files := tiny(random(1, 100_000))
	s.hub.Add("me/tiny", commitA, files)
	s.broken("hf:me/tiny")
	part := filepath.Join(s.cache.Parts(), string(digestOf(files["model.safetensors"])))
	j := readJournalFile(part + ".journal")
	if j == nil {
		t.Fatal("no journal")
	}
	// Several connections fetched, and the first piece may have been refused.
	some := slices.IndexFunc(j.noted, func(n noted) bool { return n.have > 100 })
	if some < 0 {
		t.Fatal("no piece was begun")
	}
	b := j.bytes() // without the hash's state: it would not look at them again
	for i, n := range j.noted {
		b = pieceRecord(b, i, n)
	}
	data, err := os.ReadFile(part)
	if err != nil {
		t.Fatal(err)
	}
	data[int64(some)*j.pieceSize+100] ^= 1
	if err := errors.Join(os.WriteFile(part, data, 0o644), os.WriteFile(part+".journal", b, 0o644)); err != nil {
		t.Fatal(err)
	}
	s.mustPull("hf:me/tiny", files)
}

// TestTwoAtOnce: of two pulls one fetches, and the other waits and finds it; a lock of
// another tool is waited for, or is an error.
func TestTwoAtOnce(t *testing.T) {
	s := newScene(t, false)
	files := tiny(random(1, 200_000))
	s.hub.Add("me/tiny", commitA, files)
	s.hub.Lie(ofWeights(func(w http.ResponseWriter, r *http.Request, next http.HandlerFunc) {
		time.Sleep(2 * time.Millisecond)
		next(w, r)
	}))
	results := make(chan error, 2)
	for range 2 {
		go func() {
			o := s.o
			o.Event = nil
			_, err := Pull(context.Background(), s.cache, hub.Name{Repo: "me/tiny", Revision: "main"}, o)
			results <- err
		}()
	}
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	s.clean("me/tiny")
	if n := s.hub.Sent(); n > 205_100+8000 {
		t.Errorf("%d bytes were sent: two downloads", n)
	}
	// The lock as Hugging Face's tools take it.
	weights := tiny(random(7, 50_000))
	s.hub.Add("me/second", commitA, weights)
	path := s.cache.LockFile("me/second", digestOf(weights["model.safetensors"]))
	os.MkdirAll(filepath.Dir(path), 0o755)
	lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err == nil {
		err = filelock.TryLock(lock)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.o.Wait = 0
	_, err = s.pull("hf:me/second")
	testhelp.OneLine(t, "locked", err, "model.safetensors", "fetches it")
	s.o.Wait = 10 * time.Millisecond
	_, err = s.pull("hf:me/second")
	testhelp.OneLine(t, "locked for longer", err, "fetches it")
	s.o.Wait = -1
	time.AfterFunc(50*time.Millisecond, func() { lock.Close() })
	s.mustPull("hf:me/second", weights)
}

// TestSharedDisk: where locks need not work, parts are the process's own.
func TestSharedDisk(t *testing.T) {
	s := newScene(t, false)
	s.o.shared = true
	files := tiny(random(1, 50_000))
	s.hub.Add("me/tiny", commitA, files)
	s.mustPull("hf:me/tiny", files)
	s.hub.Add("you/tiny", commitA, files)
	os.RemoveAll(s.cache.Repo("me/tiny"))
	s.broken("hf:you/tiny")
	parts, _ := os.ReadDir(s.cache.Parts())
	for _, p := range parts {
		if !strings.Contains(p.Name(), "-") {
			t.Errorf("%s is a part that another machine could write", p.Name())
		}
	}
	if len(parts) == 0 {
		t.Error("no parts")
	}
}

// TestNoLinks: where there are no links files lie in the snapshot themselves.
func TestNoLinks(t *testing.T) {
	s := newScene(t, false)
	s.cache.NoLinks = true
	files := tiny(random(1, 50_000))
	repo := s.hub.Add("me/tiny", commitA, files)
	s.mustPull("hf:me/tiny", files)
	if info, err := os.Lstat(filepath.Join(s.cache.Snapshot("me/tiny", commitA), "config.json")); err != nil || !info.Mode().IsRegular() {
		t.Errorf("%v, %v", info, err)
	}
	s.hub.Forget()
	s.mustPull("hf:me/tiny", files)
	if n := len(s.hub.Requests()); n != 1 {
		t.Errorf("a second pull: %d requests", n)
	}
	// The other revision's files are where its content is.
	now := tiny(files["model.safetensors"])
	now["tokenizer.json"] = random(77, 6000)
	repo.Commits[commitB], repo.Refs["main"] = now, commitB
	if r := s.mustPull("hf:me/tiny", now); r.Fetched != 6000 || r.Changed != 1 {
		t.Errorf("%+v", r)
	}
	s.hub.Add("you/tiny", commitA, now)
	if r := s.mustPull("hf:you/tiny", now); r.Fetched != 0 {
		t.Errorf("%+v", r)
	}
	for path, want := range files {
		got, err := os.ReadFile(filepath.Join(s.cache.Snapshot("me/tiny", commitA), path))
		if err == nil && !bytes.Equal(got, want) {
			t.Errorf("%s of the old revision has another content", path)
		}
	}
	if list, err := s.cache.List(); err != nil || len(list) != 3 || !list[0].Verified || !list[1].Verified || !list[2].Verified {
		t.Errorf("%+v, %v", list, err)
	}
	if blobs, err := os.ReadDir(filepath.Join(s.cache.Repo("me/tiny"), "blobs")); err != nil || len(blobs) > 0 {
		t.Errorf("%v, %v", blobs, err)
	}
	// What was spoilt there is not taken.
	spoilt := filepath.Join(s.cache.Snapshot("you/tiny", commitA), "tokenizer.json")
	os.Remove(spoilt)
	if err := os.WriteFile(spoilt, random(3, 6000), 0o644); err != nil {
		t.Fatal(err)
	}
	os.Remove(filepath.Join(s.cache.Snapshot("me/tiny", commitB), "tokenizer.json"))
	if r := s.mustPull("hf:me/tiny", now); r.Fetched != 6000 {
		t.Errorf("%+v", r)
	}
}

// TestReadOnly: a cache that cannot be written is one line; what is in it is found.
func TestReadOnly(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("folders are never read-only")
	}
	s := newScene(t, false)
	files := tiny(random(1, 50_000))
	s.hub.Add("me/tiny", commitA, files)
	s.mustPull("hf:me/tiny", files)
	if err := os.Chmod(s.cache.Root, 0o555); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(s.cache.Root, 0o755)
	s.hub.Add("me/other", commitA, files)
	if _, err := s.pull("hf:me/tiny"); err != nil {
		t.Errorf("what is there: %v", err)
	}
	probe := filepath.Join(s.cache.Root, "probe")
	if os.Mkdir(probe, 0o755) == nil {
		os.Remove(probe)
		// For root nothing is read-only: a file stands where a folder is to be.
		os.Chmod(s.cache.Root, 0o755)
		s.cache.Root = filepath.Join(s.cache.Root, "file")
		os.WriteFile(s.cache.Root, nil, 0o644)
		_, err := s.pull("hf:me/other")
		testhelp.OneLine(t, "a file", err)
		t.Log("left out: a read-only folder: this user writes everywhere")
		return
	}
	_, err := s.pull("hf:me/other")
	testhelp.OneLine(t, "read-only", err, "cannot be written")
}

// TestDiskFull: on a file system of 3 MB a model of 4 MB is refused before it is begun,
// and one that the check let through is one line; parts stay.
func TestDiskFull(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs a small tmpfs")
	}
	s := newScene(t, false)
	s.o.pieceSize = 64 << 10
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("no tmpfs can be mounted: %s", strings.TrimSpace(string(out)))
	}
	defer exec.Command("umount", "-l", dir).Run()
	s.cache.Root = filepath.Join(dir, "hub")
	files := tiny(random(1, 4<<20))
	s.hub.Add("me/tiny", commitA, files)
	_, err := s.pull("hf:me/tiny")
	testhelp.OneLine(t, "too little space", err, "free: want")
	if _, err := os.Stat(s.cache.Root); err == nil {
		t.Error("the cache was made")
	}
	s.o.noRoom = true
	_, err = s.pull("hf:me/tiny")
	testhelp.OneLine(t, "full", err, "is full", "wanted")
	s.honest("me/tiny")
	s.noModel("me/tiny")
}

// TestDiskFullKeeps: what came before the disk was full stays, and with more room the same
// pull goes on from there.
func TestDiskFullKeeps(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs a small tmpfs")
	}
	s := newScene(t, false)
	s.o.pieceSize, s.o.noRoom = 64<<10, true
	files := tiny(random(1, 12<<20))
	s.hub.Add("me/tiny", commitA, files)
	before := s.broken("hf:me/tiny")
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=9m", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("no tmpfs can be mounted: %s", strings.TrimSpace(string(out)))
	}
	defer exec.Command("umount", "-l", dir).Run()
	if out, err := exec.Command("cp", "-r", "--sparse=always", s.cache.Root, filepath.Join(dir, "hub")).CombinedOutput(); err != nil {
		t.Skipf("%v: %s", err, out)
	}
	s.cache.Root = filepath.Join(dir, "hub")
	_, err := s.pull("hf:me/tiny")
	testhelp.OneLine(t, "full", err, "is full", "wanted")
	kept := func() (n int64) {
		parts, err := Partials(s.cache)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parts {
			n += p.Kept
		}
		return n
	}
	now := kept()
	if before < 40_000 || now < before {
		t.Fatalf("%d bytes were kept before the disk was full, and %d after it", before, now)
	}
	if out, err := exec.Command("mount", "-o", "remount,size=32m", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if r := s.mustPull("hf:me/tiny", files); r.Fetched > 12<<20+5030-now {
		t.Errorf("%d bytes were fetched, and %d had been there", r.Fetched, now)
	}
}

// TestReadOnlyDisk: on a file system that is mounted to be read, which holds for root, too,
// what is there is found, listed, verified and pulled again; another model is one line.
func TestReadOnlyDisk(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs a small tmpfs")
	}
	s := newScene(t, false)
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("no tmpfs can be mounted: %s", strings.TrimSpace(string(out)))
	}
	defer exec.Command("umount", "-l", dir).Run()
	s.cache.Root, s.o.noRoom = filepath.Join(dir, "hub"), true
	files := tiny(random(1, 50_000))
	s.hub.Add("me/tiny", commitA, files)
	s.hub.Add("me/other", commitA, files)
	s.mustPull("hf:me/tiny", files)
	if out, err := exec.Command("mount", "-o", "remount,ro", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if r := s.mustPull("hf:me/tiny", files); r.Fetched != 0 {
		t.Errorf("%+v", r)
	}
	if check, err := s.cache.Verify(t.Context(), "me/tiny", commitA, nil); err != nil || len(check.Faults) != 0 {
		t.Errorf("%+v, %v", check, err)
	}
	_, err := s.pull("hf:me/other")
	testhelp.OneLine(t, "another model", err, "the cache "+s.cache.Root+" cannot be written", "read-only file system")
	plan, err := s.cache.PlanRemoval(hub.Name{Repo: "me/tiny", Revision: "main"}, true)
	if err != nil {
		t.Fatal(err)
	}
	testhelp.OneLine(t, "rm", plan.Remove(), "read-only file system")
	s.mustPull("hf:me/tiny", files)
}

// TestClock: times in 1970 and in the future change nothing.
func TestClock(t *testing.T) {
	s := newScene(t, false)
	files := tiny(random(1, 50_000))
	s.hub.Add("me/tiny", commitA, files)
	s.broken("hf:me/tiny")
	parts, _ := filepath.Glob(filepath.Join(s.cache.Parts(), "*"))
	for i, p := range parts {
		os.Chtimes(p, time.Time{}, time.Unix(int64(i%2)*1e10, 0))
	}
	s.mustPull("hf:me/tiny", files)
	blob := s.cache.Blob("me/tiny", digestOf(files["model.safetensors"]))
	os.Chtimes(blob, time.Time{}, time.Unix(0, 0))
	s.hub.Forget()
	if r := s.mustPull("hf:me/tiny", files); r.Fetched != 0 {
		t.Errorf("fetched %d bytes: it could have been hashed", r.Fetched)
	}
	if list, err := s.cache.List(); err != nil || !list[0].Verified {
		t.Errorf("%+v, %v", list, err)
	}
}
