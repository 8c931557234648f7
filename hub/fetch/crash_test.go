package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"windrow/hub"
	"windrow/internal/atomicfile"
)

// recording is what was done to a folder, in its order.
type recording struct {
	root    string
	changes []atomicfile.Change
	files   []int // by change: the file that it is of, numbered; -1: none
	count   int
}

// record notes what is done to a folder until stop is called.
func record(t *testing.T, root string) (r *recording, stop func()) {
	r = &recording{root: root}
	var mu sync.Mutex
	end := atomicfile.Observe(func(c atomicfile.Change) {
		rel, err := filepath.Rel(root, c.Path)
		if err != nil || !filepath.IsLocal(rel) {
			return
		}
		c.Path = rel
		if c.Kind == atomicfile.Renamed {
			c.To, _ = filepath.Rel(root, c.To)
		}
		mu.Lock()
		defer mu.Unlock()
		r.changes = append(r.changes, c)
	})
	return r, func() {
		end()
		names := map[string]int{}
		for _, c := range r.changes {
			n := -1
			switch c.Kind {
			case atomicfile.Created, atomicfile.Linked:
				n = r.count
				r.count++
				names[c.Path] = n
			case atomicfile.Written, atomicfile.Resized, atomicfile.Synced, atomicfile.Renamed, atomicfile.Removed:
				var ok bool
				if n, ok = names[c.Path]; !ok {
					t.Fatalf("%+v: of a file whose making was not recorded", c.Path)
				}
				if c.Kind == atomicfile.Renamed {
					names[c.To] = n
				}
				if c.Kind == atomicfile.Renamed || c.Kind == atomicfile.Removed {
					delete(names, c.Path)
				}
			}
			r.files = append(r.files, n)
		}
	}
}

// durable says which of the first n changes a loss of power after them cannot undo: those
// whose file, or folder, was synced later.
func (r *recording) durable(n int) []bool {
	is := make([]bool, n)
	synced, folders := map[int]bool{}, map[string]bool{}
	for i := n - 1; i >= 0; i-- {
		c := r.changes[i]
		switch c.Kind {
		case atomicfile.Synced:
			synced[r.files[i]] = true
		case atomicfile.SyncedFolder:
			folders[c.Path] = true
		case atomicfile.Written, atomicfile.Resized:
			is[i] = synced[r.files[i]]
		case atomicfile.Renamed:
			is[i] = folders[filepath.Dir(c.To)]
		default:
			is[i] = folders[filepath.Dir(c.Path)]
		}
	}
	return is
}

// What of a change that was not synced reaches the disk.
const (
	nothing = iota
	half    // of what was written
	all
)

// left writes into a folder what the first n changes have left on the disk, where keep
// says what of those that were not synced is on it.
func (r *recording) left(t *testing.T, n int, to string, keep func(atomicfile.Change) int) {
	names, folders := map[string]int{}, map[string]bool{".": true}
	contents, links := map[int][]byte{}, map[int]string{}
	durable := r.durable(n)
	for i, c := range r.changes[:n] {
		how := all
		if !durable[i] {
			how = keep(c)
		}
		file := r.files[i]
		if c.Kind == atomicfile.Linked {
			links[file] = c.To // whatever it is called
		}
		if how == nothing {
			continue
		}
		switch c.Kind {
		case atomicfile.Created, atomicfile.Linked:
			names[c.Path] = file
		case atomicfile.Made:
			folders[c.Path] = true
		case atomicfile.Removed:
			if names[c.Path] == file {
				delete(names, c.Path)
			}
		case atomicfile.Renamed:
			if was, ok := names[c.Path]; ok && was == file {
				delete(names, c.Path)
			}
			names[c.To] = file
		case atomicfile.Resized:
			now := make([]byte, c.At)
			copy(now, contents[file])
			contents[file] = now
		case atomicfile.Written:
			data := c.Data
			if how == half {
				data = data[:len(data)/2]
			}
			if end := int(c.At) + len(data); len(contents[file]) < end {
				contents[file] = append(contents[file], make([]byte, end-len(contents[file]))...)
			}
			copy(contents[file][c.At:], data)
		}
	}
	there := func(dir string) bool {
		for ; dir != "."; dir = filepath.Dir(dir) {
			if !folders[dir] {
				return false
			}
		}
		return true
	}
	for _, dir := range slices.Sorted(maps.Keys(folders)) {
		if there(dir) {
			if err := os.MkdirAll(filepath.Join(to, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, file := range names {
		if !there(filepath.Dir(name)) {
			continue
		}
		path, target := filepath.Join(to, name), links[file]
		var err error
		if target != "" {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, contents[file], 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// filesOf are the contents of a folder, links by where they lead; locks are left out.
func filesOf(t *testing.T, root string) map[string]string {
	list := map[string]string{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && e.Name() == ".locks":
			return fs.SkipDir
		}
		rel, _ := filepath.Rel(root, path)
		switch {
		case e.IsDir(), e.Name() == "lock":
		case e.Type()&fs.ModeSymlink != 0:
			list[rel], err = os.Readlink(path)
		default:
			var data []byte
			data, err = os.ReadFile(path)
			list[rel] = string(data)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// startedAnew makes journals those of before the system was started.
func startedAnew(t *testing.T, c *hub.Cache) {
	journals, _ := filepath.Glob(filepath.Join(c.Parts(), "*.journal"))
	for _, name := range journals {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readHeader(data); err != nil {
			continue
		}
		data[56] ^= 1 // boot
		crc := crc32.Checksum(data[:headerSize-4], castagnoli)
		data[headerSize-4], data[headerSize-3], data[headerSize-2], data[headerSize-1] = byte(crc), byte(crc>>8), byte(crc>>16), byte(crc>>24)
		if err := os.WriteFile(name, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEveryPowerLoss records what two pulls do to the disk, the second of a branch that has
// moved, and has the power fail after each of it: with nothing, all, or some of what was
// not synced on the disk, in any order, writes halved. No name ever leads to wrong or half
// a content; what was done before stays; and the next pull ends right.
func TestEveryPowerLoss(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("folders are not synced there")
	}
	s := newScene(t, false)
	first := tiny(random(1, 60_000))
	second := maps.Clone(first)
	second["model.safetensors"] = random(2, 50_000)
	repo := s.hub.Add("me/tiny", commitA, first)
	if err := os.MkdirAll(s.cache.Root, 0o755); err != nil {
		t.Fatal(err)
	}
	r, stop := record(t, s.cache.Root)
	s.mustPull("hf:me/tiny", first)
	afterFirst := len(r.changes)
	repo.Commits[commitB], repo.Refs["main"] = second, commitB
	s.mustPull("hf:me/tiny", second)
	stop()
	// The recording is of all that was done.
	again := filepath.Join(t.TempDir(), "hub")
	if err := os.MkdirAll(again, 0o755); err != nil {
		t.Fatal(err)
	}
	r.left(t, len(r.changes), again, func(atomicfile.Change) int { return all })
	if got, want := filesOf(t, again), filesOf(t, s.cache.Root); !maps.Equal(got, want) {
		t.Fatalf("the recording does not make what the pulls made: %q, want %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
	contents := map[string]map[string][]byte{commitA: first, commitB: second}
	data := func(c atomicfile.Change) bool {
		return c.Kind == atomicfile.Written || c.Kind == atomicfile.Resized
	}
	kept := map[string]func(seed uint64) func(atomicfile.Change) int{
		"nothing": func(uint64) func(atomicfile.Change) int { return func(atomicfile.Change) int { return nothing } },
		"all":     func(uint64) func(atomicfile.Change) int { return func(atomicfile.Change) int { return all } },
		"names alone": func(uint64) func(atomicfile.Change) int {
			return func(c atomicfile.Change) int {
				if data(c) {
					return nothing
				}
				return all
			}
		},
		"some": func(seed uint64) func(atomicfile.Change) int {
			random := rand.New(rand.NewPCG(seed, 1))
			return func(c atomicfile.Change) int { return random.IntN(3) }
		},
	}
	step := 1
	if testing.Short() || os.Getenv("CI") == "" {
		step = 15
		t.Log("left out: most moments: without CI set")
	}
	moments := []int{len(r.changes)}
	for n := rand.IntN(step); n < len(r.changes); n += step {
		moments = append(moments, n)
	}
	t.Logf("%d changes, %d states of the disk", len(r.changes), len(moments)*len(kept))
	check := func(t *testing.T, n int) {
		for _, how := range slices.Sorted(maps.Keys(kept)) {
			what := fmt.Sprintf("after %d of %d changes, of what was not synced %s on the disk", n, len(r.changes), how)
			cache := &hub.Cache{Root: filepath.Join(t.TempDir(), "hub")}
			if err := os.MkdirAll(cache.Root, 0o755); err != nil {
				t.Fatal(err)
			}
			r.left(t, n, cache.Root, kept[how](uint64(n)))
			is := &scene{t: t, hub: s.hub, cache: cache, o: s.o}
			is.o.Event = nil
			is.honest("me/tiny")
			if _, err := cache.List(); err != nil {
				t.Errorf("%s: list: %v", what, err)
			}
			main, err := cache.Ref("me/tiny", "main")
			if err != nil && (n >= afterFirst || !errors.Is(err, fs.ErrNotExist)) {
				t.Errorf("%s: main: %v", what, err)
			}
			for commit, files := range contents {
				if _, err := cache.ReadManifest("me/tiny", commit); err != nil {
					t.Errorf("%s: the manifest: %v", what, err)
				}
				found, err := cache.Find(hub.Name{Repo: "me/tiny", Revision: commit})
				must := commit == main || commit == commitA && n >= afterFirst || n == len(r.changes)
				if err != nil && must {
					t.Errorf("%s: %s is not found: %v (main is %s)", what, commit, err, main)
				}
				if err != nil {
					continue
				}
				for _, name := range []string{"config.json", "tokenizer.json", "model.safetensors", "README.md"} {
					if got, err := os.ReadFile(filepath.Join(found.Snapshot, name)); err != nil || !bytes.Equal(got, files[name]) {
						t.Errorf("%s: %s of %s has %d bytes of another content, %v", what, name, commit, len(got), err)
					}
				}
			}
			startedAnew(t, cache)
			result, err := Pull(context.Background(), cache, hub.Name{Repo: "me/tiny", Revision: "main"}, is.o)
			if err != nil {
				t.Fatalf("%s: the next pull: %v", what, err)
			}
			is.honest("me/tiny")
			for name, want := range second {
				got, err := os.ReadFile(filepath.Join(result.Path, name))
				if taken := !strings.HasSuffix(name, ".bin") && !strings.HasSuffix(name, ".py"); taken && (err != nil || !bytes.Equal(got, want)) {
					t.Errorf("%s: then %s has %d bytes, %v", what, name, len(got), err)
				}
			}
			os.RemoveAll(filepath.Dir(cache.Root))
		}
	}
	const atOnce = 4 // it is the disk that is waited for
	for i := range atOnce {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			for k := i; k < len(moments) && !t.Failed(); k += atOnce {
				check(t, moments[k])
			}
		})
	}
}
