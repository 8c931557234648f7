// Package atomicfile writes a file whole or not at all.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// Write has write make the content of a new file beside path, makes it durable,
// and renames it to path, which it replaces. After an error path is as it was,
// and nothing lies beside it. The folder must be there. The file's mode is 0644
// less the umask.
func Write(path string, write func(io.Writer) error) error {
	f, err := create(path)
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// create makes a file beside path under a name that nothing has.
func create(path string) (f *os.File, err error) {
	for range 100 {
		name := fmt.Sprintf(".%s.%08x.tmp", filepath.Base(path), rand.Uint32())
		f, err = os.OpenFile(filepath.Join(filepath.Dir(path), name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	return f, err
}
