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
	"runtime"
	"strings"
)

// Write has write make the content of a new file beside path, makes it durable,
// and renames it to path, which it replaces. After an error path is as it was,
// and nothing lies beside it. The folder must be there. The file's mode is 0644
// less the umask.
func Write(path string, write func(io.Writer) error) error {
	return Options{}.Write(path, write)
}

// Options say how a file is written. The zero value is Write's.
type Options struct {
	// Mode is the file's, less the umask; 0: 0644.
	Mode fs.FileMode
	// Durable makes the renaming durable, too, before Write returns.
	Durable bool
	// Step, where not nil, is called before each thing that is done, by its name, and
	// in the midst of each write: tests end the process there.
	Step func(what string)
}

// Write is the function Write, with the options.
func (o Options) Write(path string, write func(io.Writer) error) error {
	split := o.Step != nil
	if !split {
		o.Step = func(string) {}
	}
	if o.Mode == 0 {
		o.Mode = 0o644
	}
	o.Step("create")
	f, err := create(path, o.Mode)
	if err != nil {
		return err
	}
	var w io.Writer = f
	switch {
	case split:
		w = stepped{f, o.Step}
	case observed():
		w = &Appender{File: f}
	}
	err = write(w)
	if err == nil {
		o.Step("sync")
		err = Sync(f)
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		o.Step("rename")
		err = Rename(f.Name(), path)
	}
	if err != nil {
		Remove(f.Name())
		return err
	}
	if o.Durable {
		o.Step("sync folder")
		return SyncFolder(filepath.Dir(path))
	}
	return nil
}

// SyncFolder makes what was created, renamed and removed in a folder durable. Windows
// does so by itself.
func SyncFolder(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = errors.Join(f.Sync(), f.Close())
	note(err, Change{Kind: SyncedFolder, Path: path})
	return err
}

// stepped writes in two halves, with steps before each.
type stepped struct {
	f    *os.File
	step func(what string)
}

// Write implements io.Writer.
func (w stepped) Write(p []byte) (int, error) {
	w.step("write")
	half, err := w.f.Write(p[:len(p)/2])
	if err != nil {
		return half, err
	}
	w.step("half written")
	n, err := w.f.Write(p[len(p)/2:])
	return half + n, err
}

// create makes a file beside path under a name that nothing has.
func create(path string, mode fs.FileMode) (f *os.File, err error) {
	for range 100 {
		name := fmt.Sprintf(".%s.%08x.tmp", filepath.Base(path), rand.Uint32())
		f, err = os.OpenFile(filepath.Join(filepath.Dir(path), name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if !errors.Is(err, fs.ErrExist) {
			note(err, Change{Kind: Created, Path: filepath.Join(filepath.Dir(path), name)})
			break
		}
	}
	return f, err
}

// IsTemporary reports whether a file's name is one of those that Write gives before it
// renames: what a process leaves that ends in the midst of it.
func IsTemporary(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, ".tmp")
}
