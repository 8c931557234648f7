package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"windrow/decoder"
)

// cacheVariable is the environment variable that names the folder of what was
// measured, or "off" for none; by default it lies in the user's cache folder.
const cacheVariable = "WINDROW_CACHE"

// maxCostFile bounds what is read of a cache file: a real one has 1 KiB.
const maxCostFile = 64 << 10

// costFile is a cached cost model. The key is there in full, so that a file
// tells what it is about and a collision of names is noticed.
type costFile struct {
	Key    string              `json:"key"`
	Points []decoder.CostPoint `json:"points"`
}

// costPath is where the cost of a key is kept; "" for nowhere.
func costPath(key string) string {
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
	return filepath.Join(folder, fmt.Sprintf("cost-%x.json", sum[:8]))
}

// readCost returns a cached cost model, nil where there is none that can be
// used: it is then measured again.
func readCost(key string) *decoder.CostModel {
	path := costPath(key)
	if path == "" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxCostFile))
	if err != nil {
		return nil
	}
	return parseCost(b, key)
}

func parseCost(b []byte, key string) *decoder.CostModel {
	var file costFile
	if json.Unmarshal(b, &file) != nil || file.Key != key || len(file.Points) < 2 {
		return nil
	}
	c, err := decoder.NewCostModel(file.Points)
	if err != nil {
		return nil
	}
	return c
}

// writeCost keeps a cost model. A cache that cannot be written is no error:
// the next run measures again.
func writeCost(key string, c *decoder.CostModel) {
	path := costPath(key)
	if path == "" || os.MkdirAll(filepath.Dir(path), 0o755) != nil {
		return
	}
	_ = writeFile(path, func(w io.Writer) error { return writeJSON(w, costFile{key, c.Points()}) })
}
