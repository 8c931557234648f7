package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"windrow/filelock"
	"windrow/internal/atomicfile"
)

// Removal is what would be taken out of the cache, and why. Nothing is removed before
// Remove is called.
type Removal struct {
	Items []RemovedItem `json:"items"`
	// Bytes are what is freed: content that has another name stays on the disk.
	Bytes int64 `json:"bytes"`

	cache *Cache
	repos []string
}

// RemovedItem is a file or folder of a Removal.
type RemovedItem struct {
	Path  string `json:"path"`
	Why   string `json:"why"`
	Bytes int64  `json:"bytes"`
}

// day is how old what another program may still be writing has to be.
const day = 24 * time.Hour

// ErrInUse is the error of a repository that is being fetched.
var ErrInUse = errors.New("it is being fetched")

// PlanRemoval plans the removal of a repository or, where a revision was given with it, of
// that revision: what no other one of the repository links to.
func (c *Cache) PlanRemoval(n Name, whole bool) (*Removal, error) {
	r := &Removal{cache: c, repos: []string{n.Repo}, Items: []RemovedItem{}}
	models := c.models(n.Repo)
	gone := func(m Model) bool { return true }
	if !whole {
		commit, err := c.resolve(n.Repo, n.Revision)
		if missing(err) || err == nil && !slices.ContainsFunc(models, func(m Model) bool { return m.Commit == commit }) {
			return nil, &MissingError{Name: n, Cache: c.Root}
		}
		if err != nil {
			return nil, err
		}
		gone = func(m Model) bool { return m.Commit == commit }
	} else if notExist(c.Repo(n.Repo)) && len(models) == 0 {
		return nil, &MissingError{Name: n, Cache: c.Root}
	}
	if whole || !slices.ContainsFunc(models, func(m Model) bool { return !gone(m) }) {
		if !notExist(c.Repo(n.Repo)) {
			r.add(c.Repo(n.Repo), "the repository", tree(c.Repo(n.Repo)))
		}
		for _, dir := range []string{filepath.Dir(c.ManifestFile(n.Repo, "")), filepath.Dir(c.LockFile(n.Repo, ""))} {
			if !notExist(dir) {
				r.add(dir, "what is known of it", 0)
			}
		}
		return r, nil
	}
	r.revisions(n.Repo, models, gone, "the revision")
	return r, nil
}

// revisions plans the removal of some revisions of a repository, with the branches that
// lead to them and the blobs that nothing else links to.
func (r *Removal) revisions(repo string, models []Model, gone func(Model) bool, why string) {
	var kept []string
	for _, m := range models {
		if !gone(m) {
			kept = append(kept, m.Path)
			continue
		}
		for _, ref := range m.Refs {
			r.add(filepath.Join(r.cache.Repo(repo), "refs", filepath.FromSlash(ref)), "leads to "+m.Commit, 0)
		}
		if !notExist(r.cache.ManifestFile(repo, m.Commit)) {
			r.add(r.cache.ManifestFile(repo, m.Commit), "what is known of it", 0)
		}
		if !notExist(m.Path) {
			r.add(m.Path, why, tree(m.Path))
		}
	}
	r.blobs(repo, kept, "", 0, time.Time{})
}

// blobs plans the removal of the blobs that no kept snapshot links to and, where age is
// given, that were written before that.
func (r *Removal) blobs(repo string, kept []string, why string, age time.Duration, now time.Time) {
	linked := map[string]bool{}
	for _, snapshot := range kept {
		filepath.WalkDir(snapshot, func(p string, e fs.DirEntry, err error) error {
			if err == nil && e.Type()&fs.ModeSymlink != 0 {
				if d := linkedDigest(p); d != "" {
					linked[string(d)] = true
				} else if target, err := os.Readlink(p); err == nil {
					linked[filepath.Base(target)] = true // of a tool with other names
				}
			}
			return nil
		})
	}
	dir := filepath.Join(r.cache.Repo(repo), "blobs")
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || linked[e.Name()] || !info.Mode().IsRegular() || strings.HasSuffix(e.Name(), ".incomplete") || age > 0 && now.Sub(info.ModTime()) < age {
			continue
		}
		what := why
		if what == "" {
			what = "no other revision has it"
		}
		r.add(filepath.Join(dir, e.Name()), what, freed(info))
	}
}

func (r *Removal) add(path, why string, bytes int64) {
	for _, i := range r.Items {
		if i.Path == path {
			return
		}
	}
	r.Items = append(r.Items, RemovedItem{path, why, bytes})
	r.Bytes += bytes
}

// tree is what a folder's files take that have no other name.
func tree(dir string) (n int64) {
	filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				n += freed(info)
			}
		}
		return nil
	})
	return n
}

// PlanGC plans the removal of what nothing leads to: revisions that a branch has left,
// blobs without a revision, and parts of downloads that nobody went on with for as long as
// partials. Revisions that were asked for by their commit stay, as do those of other
// tools, and what is younger than a day.
func (c *Cache) PlanGC(partials time.Duration, now time.Time) (*Removal, error) {
	r := &Removal{cache: c, Items: []RemovedItem{}}
	repos, err := c.repos()
	if err != nil {
		return nil, err
	}
	for _, repo := range repos {
		r.repos = append(r.repos, repo)
		models := c.models(repo)
		left := func(m Model) bool {
			// A manifest that nothing leads to is also one of a download that goes on.
			info, err := os.Stat(c.ManifestFile(repo, m.Commit))
			return len(m.Refs) == 0 && !m.Pinned && m.Source != "" && err == nil && now.Sub(info.ModTime()) > day
		}
		if slices.ContainsFunc(models, left) {
			r.revisions(repo, models, left, "no branch leads to it any more")
		}
		var kept []string
		for _, m := range models {
			if !left(m) {
				kept = append(kept, m.Path)
			}
		}
		r.blobs(repo, kept, "no revision has it", day, now)
		r.temporary(repo, now)
		r.foreign(filepath.Join(c.Repo(repo), "blobs"), max(partials, day), now)
	}
	entries, _ := os.ReadDir(c.Parts())
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || now.Sub(info.ModTime()) < partials || held(filepath.Join(c.Parts(), strings.TrimSuffix(e.Name(), ".journal"))) {
			continue
		}
		r.add(filepath.Join(c.Parts(), e.Name()), "nobody went on with it", freed(info))
	}
	return r, nil
}

// temporary plans the removal of what processes have left that ended in the midst of
// writing a name: links, branches and manifests.
func (r *Removal) temporary(repo string, now time.Time) {
	for _, dir := range []string{r.cache.Repo(repo), filepath.Join(r.cache.Repo(repo), "refs"), filepath.Dir(r.cache.ManifestFile(repo, ""))} {
		filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
			if err != nil {
				return nil
			}
			if e.IsDir() {
				if p != dir && dir == r.cache.Repo(repo) {
					return fs.SkipDir // snapshots have files of any name
				}
				return nil
			}
			if info, err := e.Info(); err == nil && atomicfile.IsTemporary(e.Name()) && now.Sub(info.ModTime()) > day {
				r.add(p, "what was to become something else", freed(info))
			}
			return nil
		})
	}
}

// foreign plans the removal of other tools' files that were not whole for so long.
func (r *Removal) foreign(dir string, age time.Duration, now time.Time) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && strings.HasSuffix(e.Name(), ".incomplete") && now.Sub(info.ModTime()) >= age {
			r.add(filepath.Join(dir, e.Name()), "another tool left it", freed(info))
		}
	}
}

// held reports whether a process has a file's lock.
func held(path string) bool {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(filelock.TryLock(f), filelock.ErrHeld)
}

// Remove removes what was planned: what leads to something first. It fails where a
// repository is being fetched; what was removed until an error stays so.
func (r *Removal) Remove() error {
	for _, repo := range r.repos {
		locks, _ := filepath.Glob(filepath.Join(filepath.Dir(r.cache.LockFile(repo, "")), "*.lock"))
		for _, l := range locks {
			if held(l) {
				return fmt.Errorf("%s: %w", repo, ErrInUse)
			}
		}
	}
	for _, i := range r.Items {
		rel, err := filepath.Rel(r.cache.Root, i.Path)
		if err != nil || !filepath.IsLocal(rel) || rel == "." {
			return fmt.Errorf("%s is not in the cache", i.Path)
		}
		if err := os.RemoveAll(i.Path); err != nil {
			return err
		}
	}
	return nil
}
