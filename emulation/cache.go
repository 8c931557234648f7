package emulation

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Cache is a folder of builds. Everything in it is named by a hash of what it is
// made of, made under a lock and renamed, so that processes that build at the
// same time share the work.
type Cache string

// oldest is how long builds are kept that nobody has used.
const oldest = 7 * 24 * time.Hour

// OpenCache returns the user's cache.
func OpenCache() Cache {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return Cache(filepath.Join(dir, "windrow-emulator"))
}

// Make returns the path of a file or folder of the cache; f makes it if it is
// not there.
func (c Cache) Make(name string, f func(out string) error) (string, error) {
	path := filepath.Join(string(c), name)
	if _, err := os.Stat(path); err == nil {
		now := time.Now()
		return path, os.Chtimes(path, now, now)
	}
	if err := os.MkdirAll(string(c), 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(filepath.Join(string(c), name+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil { // made by another process meanwhile
		return path, nil
	}
	dir, err := os.MkdirTemp(string(c), "tmp-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, name)
	if err := f(out); err != nil {
		return "", err
	}
	if err := os.Rename(out, path); err != nil && !errors.Is(err, fs.ErrExist) {
		if _, gone := os.Stat(path); gone != nil {
			return "", err
		}
	}
	return path, nil
}

// Prune removes what has not been used for long; errors do not matter.
func (c Cache) Prune() {
	entries, err := os.ReadDir(string(c))
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > oldest {
			os.RemoveAll(filepath.Join(string(c), e.Name()))
		}
	}
}

// Compile runs the compiler. An error holds what it said.
func Compile(args ...string) error {
	out, err := exec.Command(Compiler, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", Compiler, err, bytes.TrimSpace(out))
	}
	return nil
}

// Hash names what is made of the parts.
func Hash(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d %s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))[:20]
}
