package model

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/edsrzf/mmap-go"
)

// OpenFolder opens a Hugging Face model folder. Weights are memory-mapped:
// they take memory only as they are read, and shared with other processes. A
// weights file must not be changed or cut while it is open.
func OpenFolder(dir string) (*Checkpoint, error) {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("model folder %s: no such folder", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("model folder: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("model folder %s: is a file: want the folder that holds %s and %s", dir, configFile, weightsFile)
	}
	resolved, err := filepath.EvalSymlinks(dir)
	if err == nil {
		resolved, err = filepath.Abs(resolved)
	}
	if err != nil {
		return nil, fmt.Errorf("model folder: %w", err)
	}
	d := &folder{dir: dir, resolved: resolved}
	c, err := newCheckpoint(d)
	if err != nil {
		return nil, err
	}
	c.mapped = d.maps
	return c, nil
}

// folder reads files of one directory.
type folder struct {
	dir      string // as the user named it
	resolved string // absolute, without links

	mu   sync.Mutex
	maps []mmap.MMap
}

func (d *folder) path(name string) string { return filepath.Join(d.dir, name) }

// open opens a regular file of the folder: a device or a pipe could block.
func (d *folder) open(name string) (*os.File, int64, error) {
	path, err := d.resolve(name)
	if err != nil {
		return nil, 0, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s: want a regular file", d.path(name))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// resolve follows links, but only to where the Hugging Face cache puts them:
// snapshots/REVISION/NAME points to blobs/HASH.
func (d *folder) resolve(name string) (string, error) {
	path, err := filepath.EvalSymlinks(filepath.Join(d.resolved, name))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("%s: %w", d.path(name), fs.ErrNotExist)
		}
		return "", err
	}
	inside := strings.HasPrefix(path, d.resolved+string(filepath.Separator)) || d.resolved == string(filepath.Separator)
	if !inside && filepath.Base(filepath.Dir(path)) != "blobs" {
		return "", fmt.Errorf("%s: is a link out of the model's folder to %s: want it inside, or in a Hugging Face cache's blobs", d.path(name), path)
	}
	return path, nil
}

func (d *folder) read(name string) ([]byte, error) {
	f, size, err := d.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > maxSmallFile {
		return nil, fmt.Errorf("%s: %d bytes: want at most %d", d.path(name), size, maxSmallFile)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSmallFile))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", d.path(name), err)
	}
	return data, nil
}

func (d *folder) weights(name string) ([]byte, error) {
	f, size, err := d.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size == 0 { // an empty mapping is an error of the system's own wording
		return nil, nil
	}
	if size != int64(int(size)) {
		return nil, fmt.Errorf("%s: %d bytes: too large to address", d.path(name), size)
	}
	data, err := mmap.Map(f, mmap.RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", d.path(name), err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.maps = append(d.maps, data)
	return data, nil
}

func (d *folder) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for i := range d.maps {
		errs = append(errs, d.maps[i].Unmap())
	}
	d.maps = nil
	return errors.Join(errs...)
}
