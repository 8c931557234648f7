package hub

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Fault is a file that is not what it should be.
type Fault struct {
	Path  string `json:"path"`
	Found string `json:"found"`
}

// Check is what Verify found of a revision.
type Check struct {
	Files  int     `json:"files"`
	Bytes  int64   `json:"bytes"`
	Faults []Fault `json:"faults"`
}

// Verify hashes all files of a revision, and notes in its manifest, where there is one,
// which are right: those that are not are fetched again. Files that another tool put
// there have their hash by the name of the blob that they are. progress, where not nil,
// is called with the bytes of each file that was read.
func (c *Cache) Verify(ctx context.Context, repo, commit string, progress func(bytes int64)) (*Check, error) {
	m, err := c.ReadManifest(repo, commit)
	if err != nil {
		return nil, err
	}
	check, snapshot := &Check{Faults: []Fault{}}, c.Snapshot(repo, commit)
	wanted := wantedFiles(snapshot, m)
	right := make([]os.FileInfo, len(wanted))
	for i, f := range wanted {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		check.Files++
		path := filepath.Join(snapshot, filepath.FromSlash(f.Path))
		if f.Hash == "" {
			f.Hash = linkedDigest(path)
		}
		info, fault := CheckContent(ctx, path, f)
		if fault != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			check.Faults = append(check.Faults, Fault{f.Path, fault.Error()})
			continue
		}
		right[i] = info
		check.Bytes += info.Size()
		if progress != nil {
			progress(info.Size())
		}
	}
	if m == nil {
		return check, nil
	}
	now := time.Now()
	err = c.UpdateManifest(repo, commit, func(m *Manifest) error {
		for i, f := range wanted {
			ok := right[i] != nil
			var changed time.Time
			if ok {
				changed = right[i].ModTime()
			}
			if ok && f.Verified != "" && f.Time == changed.UnixNano() {
				continue // when it was first seen stays known
			}
			m.Note(f, ok, changed, now)
		}
		return nil
	})
	if err != nil && unwritable(err) {
		err = nil // a cache that can only be read is verified as well
	}
	return check, err
}

// CheckContent reads a file and compares its size and digest with what f says. An error
// says what was found.
func CheckContent(ctx context.Context, path string, f File) (os.FileInfo, error) {
	file, err := os.Open(path)
	if missing(err) {
		return nil, fmt.Errorf("is missing")
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("is no file")
	case f.Size >= 0 && info.Size() != f.Size:
		return nil, fmt.Errorf("has %d bytes: want %d", info.Size(), f.Size)
	case f.Hash == "":
		return nil, fmt.Errorf("nothing says what its hash should be")
	}
	got, err := hashOf(f.Hash, until{ctx, file}, info.Size())
	if err != nil {
		return nil, err
	}
	if got != f.Hash {
		return nil, fmt.Errorf("has the hash %s: want %s", got, f.Hash)
	}
	return info, nil
}

// until reads a file for as long as a context lasts.
type until struct {
	ctx context.Context
	f   *os.File
}

// Read implements io.Reader.
func (u until) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.f.Read(p)
}

// linkedDigest is the digest that the blob is named by to which a snapshot's file leads;
// "" where it is no link.
func linkedDigest(path string) Digest {
	target, err := os.Readlink(path)
	if d := Digest(filepath.Base(target)); err == nil && d.Valid() {
		return d
	}
	return ""
}

// HashFile is the SHA-256 of a file, and its size in bytes.
func HashFile(ctx context.Context, path string) (Digest, int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", 0, err
	}
	d, err := hashOf(Digest(make([]byte, 64)), until{ctx, f}, info.Size())
	return d, info.Size(), err
}
