package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// cacheVariable is the environment variable that names the folder of what was
// measured, or "off" for none; by default it lies in the user's cache folder.
const cacheVariable = "WINDROW_CACHE"

// maxCacheFile bounds what is read of a cache file: a real one has 1 KiB.
const maxCacheFile = 64 << 10

// cachePath is where a kind of measurement is kept by its key; "" for nowhere.
func cachePath(kind, key string) string {
	folder := os.Getenv(cacheVariable)
	if folder == "off" {
		return ""
	}
	if folder == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return ""
		}
		folder = filepath.Join(cache, "windrow")
	}
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(folder, fmt.Sprintf("%s-%x.json", kind, sum[:8]))
}

// readCache returns the bytes of a cache file, nil where there is none that can
// be read.
func readCache(path string) []byte {
	if path == "" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxCacheFile))
	if err != nil {
		return nil
	}
	return b
}

// writeCache keeps v as JSON. A cache that cannot be written is no error: the
// next run measures again.
func writeCache(path string, v any) {
	if path == "" || os.MkdirAll(filepath.Dir(path), 0o755) != nil {
		return
	}
	_ = writeFile(path, func(w io.Writer) error { return writeJSON(w, v) })
}
