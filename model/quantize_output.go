package model

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// output is a folder that is written beside its place and renamed when it is
// whole. DST.partial holds a marker, by which a later run knows that it may
// remove the leavings of a killed one, and the folder itself.
type output struct {
	dst, partial string
	made         fs.FileInfo // partial, as it was made
	// step, where set, is asked before each change on disk: tests fail there.
	step func(operation string) error
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
	if err := o.clean(); err != nil {
		return err
	}
	err := o.do("mkdir", func() error { return os.Mkdir(o.partial, 0o755) })
	if err == nil {
		err = o.do("marker", func() error { return os.WriteFile(filepath.Join(o.partial, partialMarker), nil, 0o644) })
	}
	if err == nil {
		err = o.do("mkdir", func() error { return os.Mkdir(filepath.Join(o.partial, partialModel), 0o755) })
	}
	if err == nil {
		o.made, err = os.Lstat(o.partial)
	}
	return err
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

// clean removes what a killed run left. What has no marker is not ours, unless
// it is empty: a run can be killed before it writes the marker.
func (o *output) clean() error {
	info, err := os.Lstat(o.partial)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		entries, err := os.ReadDir(o.partial)
		if err != nil {
			return err
		}
		if _, err := os.Lstat(filepath.Join(o.partial, partialMarker)); err == nil || len(entries) == 0 {
			return o.remove()
		}
	}
	return fmt.Errorf("%s: exists, and is not what a killed quantize left: remove it, or choose another name", o.partial)
}

// remove takes the marker last, so that a run that is killed here can be
// cleaned up, too.
func (o *output) remove() error {
	if err := o.do("remove", func() error { return os.RemoveAll(filepath.Join(o.partial, partialModel)) }); err != nil {
		return err
	}
	if err := o.do("remove", func() error { return os.RemoveAll(filepath.Join(o.partial, partialMarker)) }); err != nil {
		return err
	}
	return o.do("remove", func() error { return os.Remove(o.partial) })
}

// finish puts the folder in its place.
func (o *output) finish() error {
	if err := o.absent(); err != nil {
		return err
	}
	if now, err := os.Lstat(o.partial); err != nil || !os.SameFile(now, o.made) {
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
	if now, err := os.Lstat(o.partial); o.made != nil && err == nil && os.SameFile(now, o.made) {
		_ = o.remove()
	}
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
