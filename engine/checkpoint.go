package engine

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"windrow/checkpoint"
	"windrow/hub"
	"windrow/internal/unless"
	"windrow/models/tinygsm"
)

// Embedded reports whether a path means the embedded model: none, or its name
// where there is nothing of that name on disk.
func Embedded(path string) bool {
	if path == tinygsm.Name {
		_, err := os.Lstat(path)
		return errors.Is(err, fs.ErrNotExist)
	}
	return path == ""
}

// ModelName is what a model of that path is called: the last part of the path, or
// the embedded model's name.
func ModelName(path string) string {
	if Embedded(path) {
		return tinygsm.Name
	}
	if hub.IsName(path) {
		if name, err := hub.ParseName(path); err == nil {
			return name.Short()
		}
	}
	return filepath.Base(filepath.Clean(path))
}

// OpenCheckpoint opens the files of a model: those of a folder in the Hugging Face
// layout, a GGUF file, a name such as hf:Qwen/Qwen3-0.6B of what is in Hugging Face's
// cache (nothing is fetched), or the embedded model's. The wait ends with ctx, whatever
// the file system does.
func OpenCheckpoint(ctx context.Context, path string) (*checkpoint.Checkpoint, error) {
	return unless.Cancelled(ctx, func() (*checkpoint.Checkpoint, error) { return readCheckpoint(path) },
		func(c *checkpoint.Checkpoint) { c.Close() })
}

func readCheckpoint(path string) (*checkpoint.Checkpoint, error) {
	if hub.IsName(path) {
		found, err := cached(path)
		if err != nil {
			return nil, err
		}
		return checkpoint.Open(found.Path)
	}
	if !Embedded(path) {
		return checkpoint.Open(path)
	}
	if !tinygsm.Available {
		return nil, ErrNoEmbeddedModel
	}
	return checkpoint.New(tinygsm.Files())
}

// cached finds a model of that name in the cache; a *hub.MissingError says that it, or a
// part of it, is not there.
func cached(name string) (*hub.Found, error) {
	n, err := hub.ParseName(name)
	if err != nil {
		return nil, err
	}
	cache, err := hub.Locate(os.Getenv)
	if err != nil {
		return nil, err
	}
	return cache.Find(n)
}
