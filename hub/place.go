package hub

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"windrow/internal/atomicfile"
)

// Place makes a file that was verified a blob of a repository, and links it into a
// revision. part is renamed, durably; its content must have been synced.
func (c *Cache) Place(repo, commit string, f File, part string) error {
	blob := c.Blob(repo, f.Hash)
	if err := atomicfile.MakeFolders(filepath.Dir(blob)); err != nil {
		return err
	}
	if err := move(part, blob); err != nil {
		return err
	}
	if err := atomicfile.SyncFolder(filepath.Dir(blob)); err != nil {
		return err
	}
	return c.Link(repo, commit, f)
}

// move renames a file; between file systems, it copies.
func move(from, to string) error {
	err := atomicfile.Rename(from, to)
	if !errors.Is(err, syscall.EXDEV) {
		return err
	}
	if err := Duplicate(from, to, false); err != nil {
		return err
	}
	return os.Remove(from)
}

// Link makes a blob of the repository a file of a revision. Where the file system has no
// links, the file is the blob itself.
func (c *Cache) Link(repo, commit string, f File) error {
	if err := CheckPath(f.Path); err != nil {
		return err
	}
	root, err := os.OpenRoot(c.Repo(repo))
	if err != nil {
		return err
	}
	defer root.Close()
	name := path.Join("snapshots", commit, f.Path)
	if err := makeFolders(root, c.Repo(repo), path.Dir(name)); err != nil {
		return err
	}
	target := strings.Repeat("../", strings.Count(name, "/")) + "blobs/" + string(f.Hash)
	if old, err := root.Readlink(name); err == nil && filepath.ToSlash(old) == target {
		return nil
	}
	temporary := fmt.Sprintf(".link.%08x.tmp", rand.Uint32())
	if err = fs.ErrInvalid; !c.NoLinks {
		if err = root.Symlink(filepath.FromSlash(target), temporary); err == nil {
			atomicfile.Note(atomicfile.Change{Kind: atomicfile.Linked, Path: filepath.Join(c.Repo(repo), temporary), To: filepath.FromSlash(target)})
		}
	}
	renamed := func(from string) {
		atomicfile.Note(atomicfile.Change{Kind: atomicfile.Renamed, Path: filepath.Join(c.Repo(repo), filepath.FromSlash(from)), To: filepath.Join(c.Repo(repo), filepath.FromSlash(name))})
	}
	switch {
	case err == nil:
		if err = root.Rename(temporary, name); err != nil {
			root.Remove(temporary)
		} else {
			renamed(temporary)
		}
	case c.NoLinks || noLinks(err):
		if err = root.Rename("blobs/"+string(f.Hash), name); err == nil {
			renamed("blobs/" + string(f.Hash))
		}
		if errors.Is(err, fs.ErrNotExist) {
			_, err = root.Stat(name) // it is there already
		}
	}
	if err != nil {
		return err
	}
	return atomicfile.SyncFolder(filepath.Join(c.Repo(repo), filepath.FromSlash(path.Dir(name))))
}

// makeFolders makes a folder in a root at dir, durably, with those above it.
func makeFolders(root *os.Root, dir, name string) error {
	if info, err := root.Stat(name); err == nil && info.IsDir() {
		return nil
	}
	above := path.Dir(name)
	if above != "." {
		if err := makeFolders(root, dir, above); err != nil {
			return err
		}
	}
	if err := root.Mkdir(name, 0o777); errors.Is(err, fs.ErrExist) {
		return nil // somebody else was quicker
	} else if err != nil {
		return err
	}
	atomicfile.Note(atomicfile.Change{Kind: atomicfile.Made, Path: filepath.Join(dir, filepath.FromSlash(name))})
	return atomicfile.SyncFolder(filepath.Join(dir, filepath.FromSlash(above)))
}

// noLinks reports whether an error says that there are no symbolic links.
func noLinks(err error) bool {
	for _, e := range []error{syscall.EPERM, syscall.ENOSYS, errors.ErrUnsupported} {
		if errors.Is(err, e) {
			return true
		}
	}
	const privilegeNotHeld = syscall.Errno(1314)
	return runtime.GOOS == "windows" && errors.Is(err, privilegeNotHeld)
}

// SetRef makes a branch or tag lead to a commit: the last thing that a download does.
func (c *Cache) SetRef(repo, revision, commit string) error {
	if IsCommit(revision) {
		return nil
	}
	if !goodRevision(revision) || !IsCommit(commit) {
		return fmt.Errorf("revision %s", shown(revision))
	}
	if old, err := c.Ref(repo, revision); err == nil && old == commit {
		return nil
	}
	name := filepath.Join(c.Repo(repo), "refs", filepath.FromSlash(revision))
	if err := atomicfile.MakeFolders(filepath.Dir(name)); err != nil {
		return err
	}
	return atomicfile.Options{Mode: fileMode, Durable: true}.Write(name, func(w io.Writer) error {
		_, err := io.WriteString(w, commit)
		return err
	})
}

// Duplicate gives the content of a file a second name: by a hard link where link allows it
// and there can be one, else a copy that shares its blocks, else a copy. to appears
// whole or not at all.
func Duplicate(from, to string, link bool) error {
	if link && os.Link(from, to) == nil {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	return atomicfile.Options{Mode: fileMode}.Write(to, func(w io.Writer) error {
		if out, ok := w.(*os.File); ok && clone(out, in) == nil {
			return nil
		}
		_, err := io.Copy(w, in)
		return err
	})
}

// Copies are the files of revisions that lie in their snapshots themselves, by the digest
// that their manifests give them: where there are no links no blob has that content.
func (c *Cache) Copies() map[Digest][]string {
	list := map[Digest][]string{}
	repos, _ := c.repos()
	for _, repo := range repos {
		entries, _ := os.ReadDir(filepath.Dir(c.ManifestFile(repo, "")))
		for _, e := range entries {
			m, err := c.ReadManifest(repo, strings.TrimSuffix(e.Name(), ".json"))
			if err != nil || m == nil {
				continue
			}
			for _, f := range m.Files {
				path := filepath.Join(c.Snapshot(repo, m.Commit), filepath.FromSlash(f.Path))
				if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Size() == f.Size {
					list[f.Hash] = append(list[f.Hash], path)
				}
			}
		}
	}
	return list
}

// Elsewhere lists where other repositories have the content of a file, in its size.
func (c *Cache) Elsewhere(repo string, f File) (list []string) {
	repos, _ := c.repos()
	for _, other := range repos {
		if other == repo {
			continue
		}
		info, err := os.Stat(c.Blob(other, f.Hash))
		if err == nil && info.Mode().IsRegular() && info.Size() == f.Size {
			list = append(list, c.Blob(other, f.Hash))
		}
	}
	return list
}
