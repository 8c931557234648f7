package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"windrow/filelock"
	"windrow/internal/atomicfile"
)

// File is a file of a revision.
type File struct {
	// Path is relative, with slashes; CheckPath has accepted it.
	Path string `json:"path"`
	Size int64  `json:"size"`
	Hash Digest `json:"hash"`
	// Verified is when the content was hashed and found to be Hash, in RFC 3339; "": it
	// was not. Time is the file's time of change then, in nanoseconds: a file that was
	// written since is hashed again.
	Verified string `json:"verified,omitempty"`
	Time     int64  `json:"time,omitempty"`
}

// Manifest says what was asked for of a revision, and what of it was verified. It is
// written before the first byte is fetched, so that what lacks is known.
type Manifest struct {
	Format int    `json:"format"`
	Repo   string `json:"repo"`
	Commit string `json:"commit"`
	// Source is whence the hashes are: an endpoint's address, or what else the model came
	// from.
	Source string `json:"source"`
	// Gated says that the Hub gives the model to those alone who were granted it.
	Gated bool `json:"gated,omitempty"`
	// Pinned says that the commit was asked for by its number: no branch has to lead to it.
	Pinned bool `json:"pinned,omitempty"`
	// Unproven says that the first download gave the hashes: nobody vouched for them.
	Unproven bool `json:"unproven,omitempty"`
	// Asked are the files or tags of names by which the model was asked for; "" for none.
	Asked []string `json:"asked,omitempty"`
	Files []File   `json:"files"`
}

const (
	manifestFormat  = 1
	maxManifest     = 64 << 20
	maxManifestFile = 100000
)

// ManifestFile is where a revision's manifest lies.
func (c *Cache) ManifestFile(repo, commit string) string {
	return c.Own("manifests", Folder(repo), commit+".json")
}

// ReadManifest reads a revision's manifest; nil where there is none.
func (c *Cache) ReadManifest(repo, commit string) (*Manifest, error) {
	name := c.ManifestFile(repo, commit)
	data, err := readSmall(name, maxManifest)
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m, err := ParseManifest(data)
	if err == nil && (m.Repo != repo || m.Commit != commit) {
		err = fmt.Errorf("is of %s at %s", m.Repo, m.Commit)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

// ParseManifest reads a manifest, of this cache or as a peer sends it, and checks every
// name and digest in it.
func ParseManifest(data []byte) (*Manifest, error) {
	m := &Manifest{}
	if err := json.Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	switch {
	case m.Format != manifestFormat:
		return nil, fmt.Errorf("manifest: format %d: want %d", m.Format, manifestFormat)
	case CheckRepo(m.Repo) != nil:
		return nil, fmt.Errorf("manifest: %w", CheckRepo(m.Repo))
	case !IsCommit(m.Commit):
		return nil, fmt.Errorf("manifest: commit %s: want 40 hexadecimal digits", shown(m.Commit))
	}
	return m, CheckFiles(m.Files)
}

// CheckFiles checks a listing: paths, that no two differ by case alone or one is another's
// folder, sizes and digests.
func CheckFiles(files []File) error { return checkFiles(files, CheckPath, strings.ToLower) }

// CheckListing checks a listing of which some files are going to be taken, whose names are
// CheckFiles's: of the others it is enough that git could have them. A repository may hold
// a log whose name has a colon, and names that differ by case, beside a model.
func CheckListing(files []File) error {
	return checkFiles(files, checkInside, func(path string) string { return path })
}

// checkFiles checks a listing with a check of each path, and a form of paths in which no
// two may be the same.
func checkFiles(files []File, check func(string) error, fold func(string) string) error {
	if len(files) > maxManifestFile {
		return fmt.Errorf("%d files: want at most %d", len(files), maxManifestFile)
	}
	seen := make(map[string]string, len(files))
	for _, f := range files {
		switch err := check(f.Path); {
		case err != nil:
			return err
		case f.Size < 0:
			return fmt.Errorf("%s: %d bytes", shown(f.Path), f.Size)
		case !f.Hash.Valid():
			return fmt.Errorf("%s: hash %s: want 40 or 64 hexadecimal digits in lower case", shown(f.Path), shown(string(f.Hash)))
		}
		key := fold(f.Path)
		if other, twice := seen[key]; twice {
			return fmt.Errorf("files %s and %s: want names that differ not by case alone", shown(other), shown(f.Path))
		}
		seen[key] = f.Path
	}
	for _, f := range files {
		key := fold(f.Path)
		for i := strings.IndexByte(key, '/'); i >= 0; {
			if other, is := seen[key[:i]]; is {
				return fmt.Errorf("files %s and %s: one is the other's folder", shown(other), shown(f.Path))
			}
			next := strings.IndexByte(key[i+1:], '/')
			if next < 0 {
				break
			}
			i += 1 + next
		}
	}
	return nil
}

// File finds a file by its path.
func (m *Manifest) File(path string) (File, bool) {
	if m != nil {
		for _, f := range m.Files {
			if f.Path == path {
				return f, true
			}
		}
	}
	return File{}, false
}

// set adds a file, or replaces the one of its path.
func (m *Manifest) set(f File) {
	i, found := slices.BinarySearchFunc(m.Files, f.Path, func(a File, path string) int { return strings.Compare(a.Path, path) })
	if !found {
		m.Files = slices.Insert(m.Files, i, f)
		return
	}
	m.Files[i] = f
}

// UpdateManifest changes a revision's manifest, under a lock: change gets what is there,
// or a new one. What it returns an error for is not written.
func (c *Cache) UpdateManifest(repo, commit string, change func(*Manifest) error) error {
	name := c.ManifestFile(repo, commit)
	if err := atomicfile.MakeFolders(filepath.Dir(name)); err != nil {
		return err
	}
	unlock, err := waitForLock(filepath.Join(filepath.Dir(name), "lock"))
	if err != nil {
		return err
	}
	defer unlock()
	m, err := c.ReadManifest(repo, commit)
	if err != nil {
		return err
	}
	if m == nil {
		m = &Manifest{Format: manifestFormat, Repo: repo, Commit: commit}
	}
	slices.SortFunc(m.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	if err := change(m); err != nil {
		return err
	}
	if err := CheckFiles(m.Files); err != nil {
		return err
	}
	// Durably: without it half a revision would look like all of one, as of another tool.
	return atomicfile.Options{Mode: fileMode, Durable: true}.Write(name, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", " ")
		return e.Encode(m)
	})
}

// Want adds files that are to be there. A file of that path with another hash is an
// error: a commit has one content.
func (m *Manifest) Want(files []File) error {
	for _, f := range files {
		old, ok := m.File(f.Path)
		if ok && (old.Hash != f.Hash || old.Size != f.Size) {
			return fmt.Errorf("%s of commit %s: is said to be %s now, and was %s by %s: one of the two is wrong", f.Path, m.Commit, f.Hash, old.Hash, m.Source)
		}
		if !ok {
			m.set(File{Path: f.Path, Size: f.Size, Hash: f.Hash})
		}
	}
	return nil
}

// Note sets whether a file is verified, with the time of change that its content has.
func (m *Manifest) Note(f File, verified bool, changed, now time.Time) {
	f.Verified, f.Time = "", 0
	if verified {
		f.Verified, f.Time = now.UTC().Format(time.RFC3339), changed.UnixNano()
	}
	m.set(f)
}

// waitForLock takes a lock that is held for milliseconds.
func waitForLock(name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	for range 2000 {
		if err = filelock.TryLock(f); !errors.Is(err, filelock.ErrHeld) {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return func() { f.Close() }, nil
}

// notExist reports whether nothing is at a path, not even a link that leads nowhere.
func notExist(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}
