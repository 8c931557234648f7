package atomicfile

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
)

// Change is something that was done to files. Tests record what a program does, and try
// what a loss of power in the midst of it would leave.
type Change struct {
	Kind Kind
	Path string
	To   string // what a file was renamed to, or a link leads to
	At   int64  // where Data was written, or the size that a file was given
	Data []byte
}

// Kind is the kind of a Change.
type Kind int

// The kinds of changes. Created, Linked, Renamed, Removed and Made last when the folder
// was synced, Written and Resized when the file was.
const (
	Created Kind = iota + 1
	Written
	Resized
	Synced
	SyncedFolder
	Made // a folder
	Linked
	Renamed
	Removed
)

var observer atomic.Pointer[func(Change)]

// Observe has see told of each change that goes through this package, after it was done,
// until stop is called. It is for tests.
func Observe(see func(Change)) (stop func()) {
	observer.Store(&see)
	return func() { observer.Store(nil) }
}

func observed() bool { return observer.Load() != nil }

// note tells of a change that was done.
func note(err error, c Change) {
	if see := observer.Load(); see != nil && err == nil {
		c.Data = bytes.Clone(c.Data)
		(*see)(c)
	}
}

// Open opens a file to read and write, and makes it where it is not there. Its mode, as that
// of a folder that MakeFolders makes, is the umask's alone: what lies there may be a group's.
func Open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	}
	note(nil, Change{Kind: Created, Path: path})
	return f, nil
}

// WriteAt is the file's WriteAt.
func WriteAt(f *os.File, data []byte, at int64) error {
	n, err := f.WriteAt(data, at)
	note(nil, Change{Kind: Written, Path: f.Name(), At: at, Data: data[:n]})
	return err
}

// Resize is the file's Truncate.
func Resize(f *os.File, size int64) error {
	err := f.Truncate(size)
	note(err, Change{Kind: Resized, Path: f.Name(), At: size})
	return err
}

// Sync is the file's Sync.
func Sync(f *os.File) error {
	err := f.Sync()
	note(err, Change{Kind: Synced, Path: f.Name()})
	return err
}

// Rename is os.Rename.
func Rename(from, to string) error {
	err := os.Rename(from, to)
	note(err, Change{Kind: Renamed, Path: from, To: to})
	return err
}

// Remove is os.Remove.
func Remove(path string) error {
	err := os.Remove(path)
	note(err, Change{Kind: Removed, Path: path})
	return err
}

// Note tells of a change that was done by other means.
func Note(c Change) { note(nil, c) }

// MakeFolders makes a folder, durably, with those above it that lack.
func MakeFolders(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	above := filepath.Dir(path)
	if above != path {
		if err := MakeFolders(above); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o777); err != nil {
		if info, stat := os.Stat(path); stat == nil && info.IsDir() {
			return nil // somebody else was quicker
		}
		return err
	}
	note(nil, Change{Kind: Made, Path: path})
	if err := SyncFolder(above); !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil // it can be written to, and not be opened
}

// Appender writes to the end of a file.
type Appender struct {
	File *os.File
	end  int64
}

// NewAppender opens a file that is there, to be appended to.
func NewAppender(path string) (*Appender, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Appender{f, info.Size()}, nil
}

// Write implements io.Writer.
func (a *Appender) Write(p []byte) (int, error) {
	n, err := a.File.Write(p)
	note(nil, Change{Kind: Written, Path: a.File.Name(), At: a.end, Data: p[:n]})
	a.end += int64(n)
	return n, err
}

// Close closes the file.
func (a *Appender) Close() error { return a.File.Close() }
