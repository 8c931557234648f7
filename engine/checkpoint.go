package engine

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"windrow/checkpoint"
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
	return filepath.Base(filepath.Clean(path))
}

// OpenCheckpoint opens the files of a model: those of a folder in the Hugging Face
// layout, a GGUF file, or the embedded model's. The wait ends with ctx, whatever
// the file system does.
func OpenCheckpoint(ctx context.Context, path string) (*checkpoint.Checkpoint, error) {
	return unless.Cancelled(ctx, func() (*checkpoint.Checkpoint, error) { return readCheckpoint(path) },
		func(c *checkpoint.Checkpoint) { c.Close() })
}

func readCheckpoint(path string) (*checkpoint.Checkpoint, error) {
	if !Embedded(path) {
		return checkpoint.Open(path)
	}
	if !tinygsm.Available {
		return nil, ErrNoEmbeddedModel
	}
	return checkpoint.New(tinygsm.Files())
}
