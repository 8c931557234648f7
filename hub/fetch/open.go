package fetch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"windrow/filelock"
	"windrow/hub"
	"windrow/internal/atomicfile"
	"windrow/internal/units"
)

// open takes a file's lock, as other tools do too, and opens its part. f.part stays nil
// where another process has fetched the file meanwhile.
func (t *transfer) open(ctx context.Context, f *file) error {
	unlock, err := t.lock(ctx, f.File)
	if err != nil {
		return err
	}
	f.unlock = unlock
	if t.stillLacks != nil {
		if lacks, err := t.stillLacks(ctx, f.File); err != nil || !lacks {
			unlock()
			f.unlock = nil
			t.recorded.Add(f.Size)
			return err
		}
	}
	h := journalHeader{key: f.key, size: f.Size, pieceSize: t.o.pieceSize}
	name := hexKey(f.key)
	if f.Hash.Valid() {
		name = string(f.Hash)
	}
	usual := filepath.Join(t.cache.Parts(), name)
	path := usual
	if t.o.shared || shared(t.cache.Root) {
		// Locks may keep nobody out: the part is this process's own.
		path = ownPart(usual)
	}
	for {
		f.part, err = openPart(ctx, path, h, f.newHash, func(n int64) { t.recorded.Add(n) })
		if !errors.Is(err, errPartHeld) {
			break
		}
		// Another model of the same content is being fetched. To wait could be for ever:
		// it may wait for a file that is locked here.
		path = ownPart(usual)
	}
	if err != nil {
		f.part = nil
		if isNoSpace(err) {
			err = t.noSpace(f, err)
		}
	}
	return err
}

// ownPart is the name of a part that no other process has.
func ownPart(path string) string {
	return fmt.Sprintf("%s-%016x", path, rand.Uint64())
}

// lockMode is what Hugging Face's tools give these files, whatever the umask: who shares a
// cache, as a group does, has to be able to lock them.
const lockMode = 0o664

// lock waits for a file's lock.
func (t *transfer) lock(ctx context.Context, f hub.File) (unlock func(), err error) {
	if !f.Hash.Valid() {
		return func() {}, nil // its hash is not known yet
	}
	path := t.cache.LockFile(t.repo, f.Hash)
	if err := atomicfile.MakeFolders(filepath.Dir(path)); err != nil {
		return nil, err
	}
	began, told := time.Now(), false
	for {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, lockMode)
		if err != nil {
			return nil, err
		}
		file.Chmod(lockMode) // where it is another's it stays as it is
		err = filelock.TryLock(file)
		if err == nil && sameFile(file, path) {
			file.Truncate(0)
			fmt.Fprintf(file, "windrow, process %d\n", os.Getpid())
			return func() { file.Close() }, nil
		}
		who := make([]byte, 64)
		n, _ := file.ReadAt(who, 0)
		file.Close()
		if err != nil && !errors.Is(err, filelock.ErrHeld) {
			return nil, err
		}
		if err != nil {
			holder := strings.ToValidUTF8(strings.TrimSpace(string(who[:n])), "")
			if holder == "" {
				holder = "another process"
			}
			if t.o.Wait >= 0 && time.Since(began) >= t.o.Wait {
				return nil, fmt.Errorf("%s: %.60q fetches it: wait for it, or end it", f.Path, holder)
			}
			if !told {
				told = true
				t.mu.Lock()
				t.say("wait", f.Path, fmt.Sprintf("%s: waiting for %.60q, which fetches it", f.Path, holder), f.Path+"lock")
				t.mu.Unlock()
			}
		}
		if err := pause(ctx, t.o.times.lock); err != nil {
			return nil, err
		}
	}
}

// sameFile reports whether a lock's file is still the one of its name: some tools remove
// it when they are done.
func sameFile(f *os.File, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(path)
	return err == nil && os.SameFile(open, now)
}

// noSpace says how much is wanted where the disk is full.
func (t *transfer) noSpace(f *file, err error) error {
	var lack int64
	for _, x := range t.files {
		lack += x.Size
	}
	lack -= t.recorded.Load()
	return fmt.Errorf("%s: the disk of %s is full: %s more is wanted; what came is kept (%w)", f.Path, t.cache.Root, units.Bytes(max(lack, 0)), lastError(err))
}

// lastError is the system's error without the path.
func lastError(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
