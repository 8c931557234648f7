package convert

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"windrow/filelock"
)

// output is a folder that is written beside its place and renamed when it is
// whole. DST.partial holds a marker and the folder itself. A run locks the
// marker while it lives: a later run leaves a living one alone, and takes over
// what a killed one left.
//
// internal/atomicfile does as much for a file, and cannot for this: a rename replaces
// a file and no folder that holds something, so an output has to be absent from
// beginning to end; and minutes of writing leave something behind when they are
// killed, which a file of a moment does not.
type output struct {
	dst, partial string
	marker       *os.File    // open: locked by this run
	made         fs.FileInfo // the folder in partial, as this run made it
	// step, where set, is asked before each change on disk: tests fail there.
	step func(operation string) error
	// lock, where set, stands for filelock.TryLock.
	lock func(*os.File) error
}

const (
	partialMarker = "windrow-quantize"
	partialModel  = "model"
)

// do runs one change on disk.
func (o *output) do(operation string, change func() error) error {
	if o.step != nil {
		if err := o.step(operation); err != nil {
			return err
		}
	}
	return change()
}

// begin makes the partial folder.
func (o *output) begin(dst string) error {
	o.dst = filepath.Clean(dst)
	o.partial = o.dst + ".partial"
	if err := o.absent(); err != nil {
		return err
	}
	if info, err := os.Stat(filepath.Dir(o.dst)); err != nil || !info.IsDir() {
		return fmt.Errorf("%s: no such folder to write %s in", filepath.Dir(o.dst), filepath.Base(o.dst))
	}
	// A run that ends may take its folder away while this one enters it.
	for range 100 {
		if gone, err := o.enter(); !gone {
			if err != nil {
				return err
			}
			break
		}
	}
	if o.marker == nil {
		return fmt.Errorf("%s: comes and goes: other runs write there, choose another name", o.partial)
	}
	if err := o.absent(); err != nil { // a run that was faster
		return err
	}
	model := filepath.Join(o.partial, partialModel)
	err := o.do("remove", func() error { return os.RemoveAll(model) })
	if err == nil {
		err = o.do("mkdir", func() error { return os.Mkdir(model, 0o755) })
	}
	if err == nil {
		o.made, err = os.Lstat(model)
	}
	return err
}

// enter makes the partial folder, or takes over what a killed run left, and
// holds its marker. gone says that it vanished meanwhile.
func (o *output) enter() (gone bool, err error) {
	err = o.do("mkdir", func() error { return os.Mkdir(o.partial, 0o755) })
	if errors.Is(err, fs.ErrExist) {
		err = o.ours()
	}
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	path := filepath.Join(o.partial, partialMarker)
	var f *os.File
	err = o.do("marker", func() (err error) {
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	lock := o.lock
	if lock == nil {
		lock = filelock.TryLock
	}
	if err = lock(f); err != nil {
		f.Close()
		if errors.Is(err, filelock.ErrHeld) {
			err = fmt.Errorf("%s: another run is writing %s: wait for it, or choose another name", o.partial, filepath.Base(o.dst))
		}
		return false, err
	}
	// A marker that was removed before it was locked is nobody's.
	opened, err := f.Stat()
	if err == nil {
		var there fs.FileInfo
		if there, err = os.Lstat(path); errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(opened, there) {
			f.Close()
			return true, nil
		}
	}
	if err != nil {
		f.Close()
		return false, err
	}
	o.marker = f
	return false, nil
}

// absent makes sure that nothing is overwritten.
func (o *output) absent() error {
	switch _, err := os.Lstat(o.dst); {
	case err == nil:
		return fmt.Errorf("%s: exists: want the name of a new folder", o.dst)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return nil
}

// ours refuses a partial folder that no run has made: one without a marker,
// unless it is empty, as a run can be killed before it writes the marker.
func (o *output) ours() error {
	info, err := os.Lstat(o.partial)
	if err != nil {
		return err
	}
	if info.IsDir() {
		entries, err := os.ReadDir(o.partial)
		if err != nil {
			return err
		}
		// By one listing: a run that ends removes the marker, and the folder behind it.
		if len(entries) == 0 || slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == partialMarker }) {
			return nil
		}
	}
	return fmt.Errorf("%s: exists, and is not what a killed quantize left: remove it, or choose another name", o.partial)
}

// remove takes the marker last, so that a run that is killed here can be
// cleaned up, too, and lets go of it when all is gone: nobody enters before.
// Where an open file cannot be removed, nobody else's can be, either.
func (o *output) remove() error {
	defer o.release()
	if err := o.do("remove", func() error { return os.RemoveAll(filepath.Join(o.partial, partialModel)) }); err != nil {
		return err
	}
	if runtime.GOOS == "windows" {
		o.release()
	}
	if err := o.do("remove", func() error { return os.Remove(filepath.Join(o.partial, partialMarker)) }); err != nil {
		return err
	}
	return o.do("remove", func() error { return os.Remove(o.partial) })
}

// release lets go of the marker.
func (o *output) release() {
	if o.marker != nil {
		o.marker.Close()
		o.marker = nil
	}
}

// mine reports whether the folder is still the one that this run made: where
// a file system has no locks, another run may have replaced it.
func (o *output) mine() bool {
	now, err := os.Lstat(filepath.Join(o.partial, partialModel))
	return err == nil && os.SameFile(now, o.made)
}

// finish puts the folder in its place.
func (o *output) finish() error {
	if err := o.absent(); err != nil {
		return err
	}
	if !o.mine() {
		return fmt.Errorf("%s: was replaced by another run", o.partial)
	}
	if err := o.do("rename", func() error { return os.Rename(filepath.Join(o.partial, partialModel), o.dst) }); err != nil {
		return err
	}
	_ = o.remove() // the model is whole; the next run to the same name removes the rest
	return nil
}

// abort removes a partial folder after an error, where it is still ours.
func (o *output) abort() {
	if o.marker != nil && (o.made == nil || o.mine()) {
		_ = o.remove()
	}
	o.release()
}

// writeFile writes a small file.
func (o *output) writeFile(name string, data []byte) error {
	f, err := o.create(name)
	if err != nil {
		return err
	}
	if err := f.writeAt(data, 0); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.finish()
}

// create opens a file in the partial folder.
func (o *output) create(name string) (f *outputFile, err error) {
	path := filepath.Join(o.partial, partialModel, name)
	f = &outputFile{output: o}
	err = o.do("create", func() (err error) {
		f.File, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		return err
	})
	return f, err
}

type outputFile struct {
	*os.File
	output *output
}

func (f *outputFile) writeAt(data []byte, at int64) error {
	return f.output.do("write", func() error {
		_, err := f.WriteAt(data, at)
		return err
	})
}

// finish makes the file durable before its folder is renamed.
func (f *outputFile) finish() error {
	return errors.Join(f.output.do("sync", f.Sync), f.Close())
}
