package checkpoint

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
		return nil, fmt.Errorf("model folder %s: is a file: want the folder that holds %s and %s", dir, ConfigFile, WeightsFile)
	}
	d, err := newFolder(dir)
	if err != nil {
		return nil, err
	}
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
	named    string // a file that the user named may be a link to anywhere

	mu   sync.Mutex
	maps []mmap.MMap
}

func newFolder(dir string) (*folder, error) {
	resolved, err := filepath.EvalSymlinks(dir)
	if err == nil {
		resolved, err = filepath.Abs(resolved)
	}
	if err != nil {
		return nil, fmt.Errorf("model folder %s: %w", dir, err)
	}
	return &folder{dir: dir, resolved: resolved}, nil
}

// path is how an error names a file: as the user did.
func (d *folder) path(name string) string { return filepath.Join(d.dir, name) }

// open opens a file of the folder, a regular one: to open a pipe or a device
// could wait for ever, or do something. What is there is asked before, and
// again of what was opened, so that nothing can be put in its place meanwhile.
func (d *folder) open(name string) (*os.File, int64, error) {
	path, err := d.resolve(name)
	if err != nil {
		return nil, 0, err
	}
	before, err := os.Lstat(path) // it has no links left
	if err == nil && !before.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s: want a regular file, found %s", d.path(name), kind(before.Mode()))
	}
	if err != nil {
		return nil, 0, d.failed(name, err)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|openWithoutWaiting, 0)
	if err != nil {
		return nil, 0, d.failed(name, err)
	}
	after, err := f.Stat()
	switch {
	case err != nil:
		err = d.failed(name, err)
	case !after.Mode().IsRegular() || !os.SameFile(before, after):
		err = fmt.Errorf("%s: was replaced while it was opened", d.path(name))
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, after.Size(), nil
}

// kind names what is no regular file.
func kind(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a folder"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "something else"
}

// failed names the file of an error of the system as the user named it; some
// of them name another path, or none.
func (d *folder) failed(name string, err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return fmt.Errorf("%s: %w", d.path(name), err)
}

// resolve follows links, but only to where the Hugging Face cache puts them:
// snapshots/REVISION/NAME points to blobs/HASH beside snapshots.
func (d *folder) resolve(name string) (string, error) {
	path, err := filepath.EvalSymlinks(filepath.Join(d.resolved, name))
	if errors.Is(err, fs.ErrNotExist) {
		// What is there and leads nowhere is not missing, optional or not.
		if _, there := os.Lstat(filepath.Join(d.resolved, name)); there == nil {
			return "", fmt.Errorf("%s: is a link to a file that is missing", d.path(name))
		}
		return "", fmt.Errorf("%s: %w", d.path(name), fs.ErrNotExist)
	}
	if err != nil {
		return "", d.failed(name, err)
	}
	inside := strings.HasPrefix(path, d.resolved+string(filepath.Separator)) || d.resolved == string(filepath.Separator)
	if !inside && name != d.named && !isBlob(path) {
		return "", fmt.Errorf("%s: is a link out of the model's folder: want it inside, or in a Hugging Face cache's blobs", d.path(name))
	}
	return path, nil
}

// isBlob reports whether a file lies in a Hugging Face cache: in a folder
// blobs beside a folder snapshots. Tools also link to it from folders outside
// of the cache.
func isBlob(path string) bool {
	blobs := filepath.Dir(path)
	if filepath.Base(blobs) != "blobs" {
		return false
	}
	info, err := os.Lstat(filepath.Join(filepath.Dir(blobs), "snapshots"))
	return err == nil && info.IsDir()
}

func (d *folder) read(name string) ([]byte, error) {
	f, size, err := d.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	most := int64(maxSmallFile)
	if limit, ok := smallFileLimits[name]; ok {
		most = limit
	}
	if size > most {
		return nil, fmt.Errorf("%s: %d bytes: want at most %d", d.path(name), size, most)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(f, data); err != nil {
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
