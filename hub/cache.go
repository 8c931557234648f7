package hub

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"windrow/internal/atomicfile"
)

// Cache is a folder of models in the layout of Hugging Face's tools.
type Cache struct {
	// Root is the folder that holds models--ORG--NAME.
	Root string
	// NoLinks puts files into snapshots themselves, as is done where the file system has
	// no links, or HF_HUB_DISABLE_SYMLINKS forbids them.
	NoLinks bool
}

// Repo is the folder of a repository.
func (c *Cache) Repo(repo string) string { return filepath.Join(c.Root, Folder(repo)) }

// Snapshot is the folder of a revision's files.
func (c *Cache) Snapshot(repo, commit string) string {
	return filepath.Join(c.Repo(repo), "snapshots", commit)
}

// Blob is where a repository has the content of a digest. It is the one place in which a
// digest becomes a path; d must be Valid.
func (c *Cache) Blob(repo string, d Digest) string {
	if !d.Valid() {
		panic("hub: a digest of another form")
	}
	return filepath.Join(c.Repo(repo), "blobs", string(d))
}

// LockFile is the file that is locked while a blob is written: the one that Hugging
// Face's tools lock for it.
func (c *Cache) LockFile(repo string, d Digest) string {
	return filepath.Join(c.Root, ".locks", Folder(repo), string(d)+".lock")
}

// Own is a folder below the one in which Windrow keeps what the layout has no place for.
func (c *Cache) Own(parts ...string) string {
	return filepath.Join(append([]string{c.Root, ".windrow"}, parts...)...)
}

// Parts is the folder of files that are not whole yet.
func (c *Cache) Parts() string { return c.Own("parts") }

// fileMode is the mode of the cache's files less the umask, which says who else may write
// to it: a cache may be a group's.
const fileMode = 0o666

// tag marks the cache for programs that make backups, as Hugging Face's tools do
// (https://bford.info/cachedir/).
const (
	tagFile = "CACHEDIR.TAG"
	tag     = "Signature: 8a477f597d28d172789f06886806bc55\n# This folder is a cache: what is in it can be fetched again.\n"
)

// Begin makes what a cache has before there is a model in it.
func (c *Cache) Begin() error {
	if err := atomicfile.MakeFolders(c.Parts()); err != nil {
		return err
	}
	name := filepath.Join(c.Root, tagFile)
	if notExist(name) {
		// That it is a cache is good to know, and no reason to fail.
		atomicfile.Options{Mode: fileMode}.Write(name, func(w io.Writer) error {
			_, err := io.WriteString(w, tag)
			return err
		})
	}
	return nil
}

// Ref reads which commit a branch or tag was at when it was last fetched. The error is
// fs.ErrNotExist where it never was.
func (c *Cache) Ref(repo, revision string) (commit string, err error) {
	if IsCommit(revision) {
		return revision, nil
	}
	if !goodRevision(revision) {
		return "", fmt.Errorf("revision %s: %w", shown(revision), fs.ErrNotExist)
	}
	name := filepath.Join(c.Repo(repo), "refs", filepath.FromSlash(revision))
	data, err := readSmall(name, 4096)
	if err != nil {
		return "", err
	}
	if commit = string(bytes.TrimSpace(data)); !IsCommit(commit) {
		return "", fmt.Errorf("%s: holds %s: want a commit of 40 hexadecimal digits", name, shown(commit))
	}
	return commit, nil
}

// shortCommit is how many digits of a commit are enough to mean it.
const shortCommit = 7

// resolve is Ref, or the one commit in the cache whose number begins with the revision, as
// list shows it.
func (c *Cache) resolve(repo, revision string) (commit string, err error) {
	if commit, err = c.Ref(repo, revision); !missing(err) || len(revision) < shortCommit || len(revision) > 40 || !Digest(revision+strings.Repeat("0", 40-len(revision))).Valid() {
		return commit, err
	}
	var found string
	for _, known := range c.commits(repo) {
		if strings.HasPrefix(known, revision) {
			if found != "" {
				return "", fmt.Errorf("%s: revision %s: several commits begin so: want more of its digits", repo, revision)
			}
			found = known
		}
	}
	if found == "" {
		return "", err
	}
	return found, nil
}

// readSmall reads a regular file of at most so many bytes.
func readSmall(name string, most int64) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return nil, fmt.Errorf("%s: want a file of at most %d bytes", name, most)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// missing reports whether an error says that a file or a folder on the way to it is not
// there.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, notDir)
}
