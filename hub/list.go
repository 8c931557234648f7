package hub

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Model is a revision in the cache.
type Model struct {
	Repo   string `json:"repo"`
	Commit string `json:"commit"`
	// Refs are the branches and tags that lead to the commit.
	Refs []string `json:"refs"`
	Path string   `json:"path"`
	// Have of Want files are there; Bytes is their size together.
	Have  int   `json:"have"`
	Want  int   `json:"want"`
	Bytes int64 `json:"bytes"`
	// GGUF are the models in it that are .gguf files, by their first one.
	GGUF []string `json:"gguf,omitempty"`
	// Source is whence the model came, "" for what another tool put there; Verified says
	// that all files were hashed, and are as they were then. First is when they were first
	// seen, for a model for whose hashes nobody vouched.
	Source   string `json:"source,omitempty"`
	Verified bool   `json:"verified"`
	First    string `json:"first_seen,omitempty"`
	Gated    bool   `json:"gated,omitempty"`
	Pinned   bool   `json:"pinned,omitempty"`
	// Changed is when the newest of its files was written.
	Changed time.Time `json:"changed"`
}

// Complete reports whether all files are there.
func (m *Model) Complete() bool { return m.Want > 0 && m.Have == m.Want }

// Name is the model's, by which it is opened.
func (m *Model) Name() Name {
	n := Name{Repo: m.Repo, Revision: m.Commit}
	if len(m.Refs) > 0 {
		n.Revision = m.Refs[0]
		if slices.Contains(m.Refs, DefaultRevision) {
			n.Revision = DefaultRevision
		}
	}
	return n
}

// List lists the revisions in the cache, by name. What is no model is left out; a cache
// that is not there has none.
func (c *Cache) List() (list []Model, err error) {
	repos, err := c.repos()
	for _, repo := range repos {
		list = append(list, c.models(repo)...)
	}
	return list, err
}

// repos are the repositories in the cache.
func (c *Cache) repos() (list []string, err error) {
	entries, err := os.ReadDir(c.Root)
	if missing(err) {
		return nil, nil
	}
	for _, e := range entries {
		if repo, ok := repoOf(e.Name()); ok {
			list = append(list, repo)
		}
	}
	return list, err
}

// models are the revisions of a repository: those that have a folder, and those that are
// being fetched.
func (c *Cache) models(repo string) (list []Model) {
	refs := c.refs(repo)
	for _, commit := range c.commits(repo) {
		if m := c.model(repo, commit); m != nil {
			for ref, to := range refs {
				if to == commit {
					m.Refs = append(m.Refs, ref)
				}
			}
			slices.Sort(m.Refs)
			list = append(list, *m)
		}
	}
	slices.SortFunc(list, func(a, b Model) int {
		return cmp.Or(b.Changed.Compare(a.Changed), strings.Compare(a.Commit, b.Commit))
	})
	return list
}

// commits are the revisions of a repository of which there is a folder or a manifest.
func (c *Cache) commits(repo string) (commits []string) {
	for _, dir := range []string{filepath.Join(c.Repo(repo), "snapshots"), filepath.Dir(c.ManifestFile(repo, ""))} {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if commit := strings.TrimSuffix(e.Name(), ".json"); IsCommit(commit) {
				commits = append(commits, commit)
			}
		}
	}
	slices.Sort(commits)
	return slices.Compact(commits)
}

// model describes a revision; nil where there is nothing of it.
func (c *Cache) model(repo, commit string) *Model {
	m := &Model{Repo: repo, Commit: commit, Path: c.Snapshot(repo, commit)}
	manifest, err := c.ReadManifest(repo, commit)
	if err != nil {
		manifest = nil // as if another tool had made it
	}
	wanted := wantedFiles(m.Path, manifest)
	if len(wanted) == 0 {
		return nil
	}
	m.Verified = manifest != nil
	var paths []string
	for _, f := range wanted {
		m.Want++
		paths = append(paths, f.Path)
		info, err := os.Stat(filepath.Join(m.Path, filepath.FromSlash(f.Path)))
		if err != nil || !present(m.Path, f) {
			m.Verified = false
			continue
		}
		m.Have++
		m.Bytes += info.Size()
		m.Verified = m.Verified && f.Verified != "" && f.Time == info.ModTime().UnixNano()
		if info.ModTime().After(m.Changed) {
			m.Changed = info.ModTime()
		}
	}
	for _, g := range ggufGroups(paths) {
		m.GGUF = append(m.GGUF, g[0])
	}
	if manifest != nil {
		m.Source, m.Gated, m.Pinned = manifest.Source, manifest.Gated, manifest.Pinned
		if manifest.Unproven {
			m.Verified = false
			m.First = wanted[0].Verified
		}
	}
	return m
}

// refs are the branches and tags of a repository with their commits.
func (c *Cache) refs(repo string) map[string]string {
	dir, list := filepath.Join(c.Repo(repo), "refs"), map[string]string{}
	filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil
		}
		if rel, err := filepath.Rel(dir, p); err == nil {
			name := filepath.ToSlash(rel)
			if commit, err := c.Ref(repo, name); err == nil && !IsCommit(name) {
				list[name] = commit
			}
		}
		return nil
	})
	return list
}

// Models are the revisions in the cache that a name means: the one that its branch, tag
// or commit leads to, if it is there.
func (c *Cache) Models(n Name) ([]Model, error) {
	commit, err := c.resolve(n.Repo, n.Revision)
	if missing(err) {
		// A first download that did not end: no branch leads to it yet.
		var partial []Model
		for _, m := range c.models(n.Repo) {
			if n.Revision == DefaultRevision && len(m.Refs) == 0 && !m.Pinned {
				partial = append(partial, m)
			}
		}
		return partial, nil
	}
	if err != nil {
		return nil, err
	}
	if m := c.model(n.Repo, commit); m != nil {
		for ref, to := range c.refs(n.Repo) {
			if to == commit {
				m.Refs = append(m.Refs, ref)
			}
		}
		slices.Sort(m.Refs)
		return []Model{*m}, nil
	}
	return nil, nil
}
